#include "grammar/lexer/byte_dfa.h"

#include <algorithm>

namespace penstock::grammar {
namespace {

constexpr size_t kFewEdges = 6;
constexpr size_t kMaxRows = 2048;  // of 1 KiB each

}  // namespace

uint32_t ByteDfa::run(uint32_t state, std::string_view bytes) const {
  for (const char c : bytes) {
    if (state == kDead) break;
    state = step(state, static_cast<uint8_t>(c)) & ~kEndsChar;
  }
  return state;
}

uint32_t ByteDfa::add_state() {
  states_.emplace_back();
  return n_states() - 1;
}

void ByteDfa::set_edges(uint32_t state, std::span<const ByteEdge> list) {
  states_[state].edges = static_cast<uint32_t>(edges_.size());
  for (const ByteEdge& e : list) {
    const bool has_last = edges_.size() > states_[state].edges;
    if (has_last && edges_.back().target == e.target && edges_.back().ends_char == e.ends_char &&
        edges_.back().last + 1 == e.first) {
      edges_.back().last = e.last;
    } else {
      edges_.push_back(e);
    }
  }
  states_[state].n_edges = static_cast<uint32_t>(edges_.size()) - states_[state].edges;
}

void ByteDfa::set_char_states(uint32_t state, std::span<const uint32_t> chars, bool inside_char) {
  states_[state].chars = static_cast<uint32_t>(char_states_.size());
  states_[state].n_chars = static_cast<uint32_t>(chars.size());
  states_[state].inside_char = inside_char;
  char_states_.insert(char_states_.end(), chars.begin(), chars.end());
}

void ByteDfa::finish() {
  for (uint32_t i = 0; i < n_states() && rows_.size() < kMaxRows; ++i) {
    if (states_[i].n_edges <= kFewEdges) continue;
    auto& row = rows_.emplace_back();
    row.fill(kDead);
    for (const ByteEdge& e : edges(i)) {
      std::fill(row.begin() + e.first, row.begin() + e.last + 1,
                e.target | (e.ends_char ? kEndsChar : 0));
    }
    states_[i].row = static_cast<uint32_t>(rows_.size());
  }
}

namespace {

// The sorted texts [begin, end), which share their first `depth` bytes and start at `state`.
struct Bundle {
  size_t begin, end, depth;
  uint32_t state;
};

}  // namespace

ByteDfa make_literal_dfa(std::vector<TaggedText> texts) {
  std::stable_sort(texts.begin(), texts.end(),
                   [](const auto& a, const auto& b) { return a.text < b.text; });
  ByteDfa dfa;
  dfa.set_start(texts.empty() ? ByteDfa::kDead : dfa.add_state());
  std::vector<Bundle> open{{0, texts.size(), 0, dfa.start()}};
  std::vector<ByteEdge> edges;
  while (!open.empty()) {
    Bundle at = open.back();
    open.pop_back();
    for (bool first = true; at.begin < at.end && texts[at.begin].text.size() == at.depth;
         ++at.begin, first = false) {
      if (first) dfa.set_tag(at.state, texts[at.begin].tag);
    }
    edges.clear();
    for (size_t begin = at.begin; begin < at.end;) {
      const auto byte = static_cast<uint8_t>(texts[begin].text[at.depth]);
      size_t end = begin;
      while (end < at.end && static_cast<uint8_t>(texts[end].text[at.depth]) == byte) ++end;
      edges.push_back({byte, byte, false, dfa.add_state()});
      open.push_back({begin, end, at.depth + 1, edges.back().target});
      begin = end;
    }
    dfa.set_edges(at.state, edges);
  }
  dfa.finish();
  return dfa;
}

}  // namespace penstock::grammar
