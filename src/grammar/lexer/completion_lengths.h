// How many steps it takes from each state of an automaton to acceptance: all the answers, not only the least.
//
// The sets of states that accept in exactly n steps repeat from some n on, so that bounds of 10^9 cost what bounds of
// 10 do. Used for characters of strings, items of arrays and members of objects alike.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "grammar/parts/budget.h"

namespace penstock::grammar {

inline constexpr uint64_t kNoLimit = UINT64_MAX;

// A number of characters, items or members.
struct CountWindow {
  uint64_t min = 0, max = kNoLimit;  // inclusive
  bool empty() const { return min > max; }
  bool trivial() const { return min == 0 && max == kNoLimit; }
  bool operator==(const CountWindow&) const = default;
  // What is left of the window when n have been counted. REQUIRES: n <= max.
  CountWindow after(uint64_t n) const { return {min > n ? min - n : 0, max == kNoLimit ? max : max - n}; }
};

inline CountWindow operator&(const CountWindow& a, const CountWindow& b) {
  return {a.min > b.min ? a.min : b.min, a.max < b.max ? a.max : b.max};
}

// Windows that differ only in what `horizon` more characters (items, members) cannot reach are made one.
// REQUIRES: the answers of the lengths it is used with repeat within the horizon.
inline CountWindow clipped(CountWindow window, uint64_t horizon) {
  const bool wide = window.max == kNoLimit || (window.max > horizon && window.max - window.min > horizon);
  if (!wide) return window;
  return {window.min < horizon ? window.min : horizon, kNoLimit};
}

class CompletionLengths {
 public:
  // The automaton: for each state the states one step leads to (in any order, repeated or not), and whether it accepts.
  struct Graph {
    std::vector<std::vector<uint32_t>> successors;
    std::vector<bool> accepts;
  };

  CompletionLengths() = default;
  // Errors: kTooLarge.
  static Compiled<CompletionLengths> of(const Graph& graph, Budget& budget);

  // Whether acceptance can be reached from state in a number of steps within the window.
  bool any_within(uint32_t state, CountWindow window) const;
  // From this many steps on the answers repeat; no shortest way is longer.
  size_t n_sets() const { return n_sets_; }

 private:
  bool holds(uint32_t state, uint64_t n) const;
  size_t words_ = 0;                   // per set
  size_t n_sets_ = 0, loop_ = 0;       // sets [loop_, n_sets_) repeat for ever
  std::vector<uint64_t> sets_;         // [n_sets_, words_]: bit per state
  std::vector<uint32_t> shortest_;     // n_sets_: there is no way
  std::vector<uint32_t> always_from_;  // every n from here on will do; n_sets_: no such n
};

}  // namespace penstock::grammar
