#include "grammar/lexer/completion_lengths.h"

#include <algorithm>
#include <map>

namespace penstock::grammar {
namespace {

using Set = std::vector<uint64_t>;

bool has(const Set& set, uint32_t i) { return (set[i / 64] >> (i % 64) & 1) != 0; }

// Returns the states with a successor in the set.
Set one_step_before(const CompletionLengths::Graph& graph, const Set& set) {
  Set result(set.size(), 0);
  for (uint32_t state = 0; state < graph.successors.size(); ++state) {
    const auto& to = graph.successors[state];
    if (std::any_of(to.begin(), to.end(), [&](uint32_t t) { return has(set, t); }))
      result[state / 64] |= 1ULL << (state % 64);
  }
  return result;
}

}  // namespace

Compiled<CompletionLengths> CompletionLengths::of(const Graph& graph, Budget& budget) {
  const size_t n_states = graph.successors.size();
  size_t n_edges = n_states;
  for (const auto& to : graph.successors) n_edges += to.size();
  CompletionLengths result;
  result.words_ = (n_states + 63) / 64;
  Set set(result.words_, 0);
  for (uint32_t i = 0; i < n_states; ++i) {
    if (graph.accepts[i]) set[i / 64] |= 1ULL << (i % 64);
  }
  std::map<Set, size_t> seen;
  while (true) {
    const auto [it, is_new] = seen.emplace(set, result.n_sets_);
    if (!is_new) {
      result.loop_ = it->second;
      break;
    }
    // Visiting all edges is cheaper than creating them, hence the divisor.
    if (!budget.take_edges(n_edges / 64 + 1))
      return too_large("the counts of a repetition are too large");
    result.sets_.insert(result.sets_.end(), set.begin(), set.end());
    ++result.n_sets_;
    set = one_step_before(graph, set);
  }
  result.shortest_.assign(n_states, static_cast<uint32_t>(result.n_sets_));
  result.always_from_.assign(n_states, static_cast<uint32_t>(result.n_sets_));
  for (uint32_t state = 0; state < n_states; ++state) {
    for (auto n = static_cast<uint32_t>(result.n_sets_); n-- > 0;) {
      if (!result.holds(state, n)) continue;
      result.shortest_[state] = n;
      if (result.always_from_[state] == n + 1) result.always_from_[state] = n;
    }
    // A state that fails within the period fails forever.
    if (result.always_from_[state] > result.loop_)
      result.always_from_[state] = static_cast<uint32_t>(result.n_sets_);
  }
  return result;
}

bool CompletionLengths::holds(uint32_t state, uint64_t n) const {
  if (n >= n_sets_) n = loop_ + (n - loop_) % (n_sets_ - loop_);
  return (sets_[n * words_ + state / 64] >> (state % 64) & 1) != 0;
}

bool CompletionLengths::any_within(uint32_t state, CountWindow window) const {
  const uint32_t shortest = shortest_[state];
  if (window.empty() || shortest == n_sets_ || window.max < shortest) return false;
  if (std::max<uint64_t>(window.min, always_from_[state]) <= window.max &&
      always_from_[state] < n_sets_)
    return true;
  const uint64_t first = std::max<uint64_t>(window.min, shortest);
  const uint64_t last = std::min<uint64_t>(window.max, first + n_sets_);
  for (uint64_t n = first; n <= last; ++n) {
    if (holds(state, n)) return true;
  }
  return false;
}

}  // namespace penstock::grammar
