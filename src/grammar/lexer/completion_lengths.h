// The set of all numbers of steps in which each state of an automaton can reach acceptance, not
// only the least.
//
// The sets of states that accept in exactly n steps are periodic from some n on, so that a bound of
// 10^9 costs as much as one of 10. Used for characters of strings, items of arrays and members of
// objects.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "grammar/parts/budget.h"

namespace penstock::grammar {

inline constexpr uint64_t kNoLimit = UINT64_MAX;

// A range of numbers of characters, items or members.
struct CountWindow {
  uint64_t min = 0, max = kNoLimit;  // inclusive
  bool empty() const { return min > max; }
  bool trivial() const { return min == 0 && max == kNoLimit; }
  bool operator==(const CountWindow&) const = default;
  // Returns the window of the remaining number after n. REQUIRES: n <= max.
  CountWindow after(uint64_t n) const {
    return {min > n ? min - n : 0, max == kNoLimit ? max : max - n};
  }
};

inline CountWindow operator&(const CountWindow& a, const CountWindow& b) {
  return {a.min > b.min ? a.min : b.min, a.max < b.max ? a.max : b.max};
}

// Maps windows that `horizon` more characters (items, members) cannot tell apart to one window.
// REQUIRES: the lengths that it is used with become periodic within the horizon.
inline CountWindow clipped(CountWindow window, uint64_t horizon) {
  const bool wide =
      window.max == kNoLimit || (window.max > horizon && window.max - window.min > horizon);
  if (!wide) return window;
  return {window.min < horizon ? window.min : horizon, kNoLimit};
}

class CompletionLengths {
 public:
  // The automaton: for each state its successors (in any order, with or without duplicates) and
  // whether it accepts.
  struct Graph {
    std::vector<std::vector<uint32_t>> successors;
    std::vector<bool> accepts;
  };

  CompletionLengths() = default;
  // Errors: kTooLarge.
  static Compiled<CompletionLengths> of(const Graph& graph, Budget& budget);

  // Whether state can reach acceptance in a number of steps within the window.
  bool any_within(uint32_t state, CountWindow window) const;
  // The number of steps from which on the sets are periodic; no shortest way is longer.
  size_t n_sets() const { return n_sets_; }

 private:
  bool holds(uint32_t state, uint64_t n) const;
  size_t words_ = 0;              // words of 64 bits per set
  size_t n_sets_ = 0, loop_ = 0;  // sets [loop_, n_sets_) are the period
  std::vector<uint64_t> sets_;    // [n_sets_, words_]: bit per state
  // Length of the shortest way from each state; n_sets_: acceptance cannot be reached.
  std::vector<uint32_t> shortest_;
  // Least number from which on each state can accept in every number of steps; n_sets_: none.
  std::vector<uint32_t> always_from_;
};

}  // namespace penstock::grammar
