// Deterministic automata over bytes: how a lexeme is spelled.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::grammar {

struct ByteEdge {
  uint8_t first, last;  // inclusive
  bool ends_char;       // the byte ends the spelling of one character of the content
  uint32_t target;
};

// Immutable after finish(). Every state but kDead can reach an accepting one.
class ByteDfa {
 public:
  static constexpr uint32_t kDead = 0;
  static constexpr uint32_t kEndsChar = 1U << 31;  // set in what step() returns

  ByteDfa() : states_(1) {}

  uint32_t start() const { return start_; }
  uint32_t n_states() const { return static_cast<uint32_t>(states_.size()); }
  // The target, with kEndsChar where the byte ends a character; kDead where the byte is not allowed.
  uint32_t step(uint32_t state, uint8_t byte) const {
    const State& s = states_[state];
    if (s.row != 0) return rows_[s.row - 1][byte];
    for (const ByteEdge& e : edges(state)) {
      if (byte < e.first) return kDead;
      if (byte <= e.last) return e.target | (e.ends_char ? kEndsChar : 0);
    }
    return kDead;
  }
  // The state without kEndsChar that the bytes lead to.
  uint32_t run(uint32_t state, std::string_view bytes) const;
  std::span<const ByteEdge> edges(uint32_t state) const {
    return {edges_.data() + states_[state].edges, states_[state].n_edges};
  }
  uint32_t tag(uint32_t state) const { return states_[state].tag; }            // 0: does not accept
  bool is_final(uint32_t state) const { return states_[state].n_edges == 0; }  // accepts, and nothing goes on
  // States of the automaton over characters: the state itself where a character has just ended, else those it may be
  // in after the character that is being spelled. Empty where the spelling is over, or lengths are never asked for.
  std::span<const uint32_t> char_states(uint32_t state) const {
    return {char_states_.data() + states_[state].chars, states_[state].n_chars};
  }
  bool inside_char(uint32_t state) const { return states_[state].inside_char; }

  // Building: states in any order, edges of a state ascending and apart.
  uint32_t add_state();
  void set_edges(uint32_t state, std::span<const ByteEdge> edges);
  void set_tag(uint32_t state, uint32_t tag) { states_[state].tag = tag; }
  void set_char_states(uint32_t state, std::span<const uint32_t> chars, bool inside_char);
  void set_start(uint32_t state) { start_ = state; }
  void finish();

 private:
  struct State {
    uint32_t edges = 0, n_edges = 0;
    uint32_t tag = 0;
    uint32_t chars = 0, n_chars = 0;
    uint32_t row = 0;  // 1 + index into rows_; 0: the edges are few
    bool inside_char = false;
  };
  std::vector<State> states_;
  std::vector<ByteEdge> edges_;
  std::vector<uint32_t> char_states_;
  std::vector<std::array<uint32_t, 256>> rows_;
  uint32_t start_ = kDead;
};

struct TaggedText {
  std::string text;
  uint32_t tag;  // > 0
};

// Accepts each text with its tag; of equal ones the first counts.
ByteDfa make_literal_dfa(std::vector<TaggedText> texts);

}  // namespace penstock::grammar
