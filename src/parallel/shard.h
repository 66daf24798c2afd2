// Which share of a model's weights one of several ranks has.
#pragma once
#include <cstdint>

namespace penstock {

struct Shard {
  int rank = 0;
  int n_ranks = 1;

  struct Range {
    int first, count;
  };
  // This rank's part of n things that are cut at multiples of `unit` only; the first ranks have more where n does not
  // divide evenly, the last ones may have none.
  constexpr Range range(int n, int unit = 1) const {
    const int64_t n_units = (n + unit - 1) / unit;
    const auto cut = [&](int at) {
      const int64_t end = (n_units * at + n_ranks - 1) / n_ranks * unit;
      return static_cast<int>(end < n ? end : n);
    };
    return {cut(rank), cut(rank + 1) - cut(rank)};
  }
};

}  // namespace penstock
