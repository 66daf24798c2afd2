// Deterministic automata (DFAs) over bytes, which accept the spellings of a lexeme.
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
  // the byte completes the spelling of one character
  bool ends_char;
  uint32_t target;
};

// Immutable after finish(). Every state but kDead can reach an accepting one.
class ByteDfa {
 public:
  static constexpr uint32_t kDead = 0;
  static constexpr uint32_t kEndsChar = 1U << 31;  // flag in the results of step()

  ByteDfa() : states_(1) {}

  uint32_t start() const { return start_; }
  uint32_t n_states() const { return static_cast<uint32_t>(states_.size()); }
  // Returns the target state, with the flag kEndsChar if the byte completes a character; kDead if
  // the byte is not allowed.
  uint32_t step(uint32_t state, uint8_t byte) const {
    const State& s = states_[state];
    if (s.row != 0) return rows_[s.row - 1][byte];
    for (const ByteEdge& e : edges(state)) {
      if (byte < e.first) return kDead;
      if (byte <= e.last) return e.target | (e.ends_char ? kEndsChar : 0);
    }
    return kDead;
  }
  // Returns the state after all bytes, without kEndsChar.
  uint32_t run(uint32_t state, std::string_view bytes) const;
  std::span<const ByteEdge> edges(uint32_t state) const {
    return {edges_.data() + states_[state].edges, states_[state].n_edges};
  }
  uint32_t tag(uint32_t state) const { return states_[state].tag; }  // 0: the state does not accept
  // The state accepts and has no edges.
  bool is_final(uint32_t state) const { return states_[state].n_edges == 0; }
  // The corresponding states of the automaton over characters: after a whole character the one
  // state; inside a character the states that may follow it. Empty when the spelling is complete or
  // the lexeme has no lengths.
  std::span<const uint32_t> char_states(uint32_t state) const {
    return {char_states_.data() + states_[state].chars, states_[state].n_chars};
  }
  bool inside_char(uint32_t state) const { return states_[state].inside_char; }

  // Construction. States may come in any order. REQUIRES: the edges of a state are ascending and
  // disjoint.
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
    // 1 + index into rows_; 0: few edges, searched linearly
    uint32_t row = 0;
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

// Returns an automaton that accepts each text with its tag; of equal texts the first one's tag.
ByteDfa make_literal_dfa(std::vector<TaggedText> texts);

}  // namespace penstock::grammar
