#include "grammar/lexer/lexeme_endings.h"

#include <algorithm>
#include <queue>
#include <utility>

namespace penstock::grammar {

LexemeEndings::LexemeEndings(const Lexeme& lexeme) : lexeme_(lexeme) {
  const ByteDfa& dfa = lexeme.dfa;
  std::vector<std::vector<uint32_t>> before(dfa.n_states());
  std::vector<uint64_t> costs(dfa.n_states(), kNoEnding);
  std::queue<uint32_t> open;
  for (uint32_t state = 1; state < dfa.n_states(); ++state) {
    for (const ByteEdge& e : dfa.edges(state)) before[e.target].push_back(state);
    if (dfa.tag(state) == 0) continue;
    costs[state] = 0;
    open.push(state);
  }
  for (; !open.empty(); open.pop()) {
    for (const uint32_t from : before[open.front()]) {
      if (lower(costs[from], costs[open.front()] + 1)) open.push(from);
    }
  }
  by_chars_.push_back(std::move(costs));
}

// Returns the lengths for one character more than `behind`. Edges inside a character form no loops,
// so that a few rounds suffice.
std::vector<uint64_t> LexemeEndings::further(const std::vector<uint64_t>& behind) const {
  const ByteDfa& dfa = lexeme_.dfa;
  std::vector<uint64_t> costs(behind.size(), kNoEnding);
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t state = dfa.n_states(); state-- > 1;) {
      for (const ByteEdge& e : dfa.edges(state))
        changed |=
            lower(costs[state], sum_of_bytes(1, e.ends_char ? behind[e.target] : costs[e.target]));
    }
  }
  return costs;
}

uint64_t LexemeEndings::of(uint32_t state, uint64_t min_chars) const {
  if (min_chars > kMostChars ||
      (min_chars > 0 && min_chars * lexeme_.dfa.n_states() > kMostEntries))
    return kNoEnding;
  const std::scoped_lock lock(mutex_);
  while (by_chars_.size() <= min_chars) by_chars_.push_back(further(by_chars_.back()));
  return by_chars_[min_chars][state];
}

uint64_t FreshEnding::of(uint32_t state, uint64_t min_chars, uint32_t reserved_state,
                         std::vector<std::string_view> taken) {
  next_ = {{state, reserved_state, min_chars, std::move(taken)}};
  for (uint64_t depth = 0; !next_.empty() && depth < best_; ++depth) {
    const std::vector<Place> now = std::exchange(next_, {});
    for (const Place& at : now) look(at, depth);
  }
  return work_.failed() ? kNoEnding : best_;
}

void FreshEnding::look(const Place& at, uint64_t depth) {
  const bool is_reserved = at.reserved != ByteDfa::kDead;
  if (at.taken.empty() && !is_reserved) {
    lower(best_, sum_of_bytes(depth, endings_.of(at.state, at.min_chars)));
    return;
  }
  if (!work_.spend(1 + at.taken.size())) return;
  const ByteDfa& dfa = endings_.lexeme().dfa;
  const bool ends_taken = std::ranges::any_of(at.taken, &std::string_view::empty) ||
                          (is_reserved && reserved_->tag(at.reserved) != 0);
  if (dfa.tag(at.state) != 0 && at.min_chars == 0 && !ends_taken) lower(best_, depth);
  for (const ByteEdge& edge : dfa.edges(at.state)) {
    for (int byte = edge.first; byte <= edge.last; ++byte)
      look(at, edge, static_cast<uint8_t>(byte), depth);
  }
}

void FreshEnding::look(const Place& at, const ByteEdge& edge, uint8_t byte, uint64_t depth) {
  if (!work_.spend(1 + at.taken.size() / 8)) return;
  Place there{
      edge.target, ByteDfa::kDead, at.min_chars - (edge.ends_char && at.min_chars > 0 ? 1 : 0), {}};
  if (at.reserved != ByteDfa::kDead)
    there.reserved = reserved_->step(at.reserved, byte) & ~ByteDfa::kEndsChar;
  for (const std::string_view text : at.taken) {
    if (!text.empty() && static_cast<uint8_t>(text[0]) == byte)
      there.taken.push_back(text.substr(1));
  }
  if (there.taken.empty() && there.reserved == ByteDfa::kDead) {
    lower(best_, sum_of_bytes(depth + 1, endings_.of(there.state, there.min_chars)));
  } else {
    next_.push_back(std::move(there));
  }
}

}  // namespace penstock::grammar
