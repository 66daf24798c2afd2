// The share of a model's weights that one of several ranks has: a part of every layer (Shard), some
// of the layers (Stage), or both.
#pragma once
#include <cstdint>

namespace penstock {

struct Shard {
  int rank = 0;
  int n_ranks = 1;

  struct Range {
    int first, count;
  };
  // This rank's part of n items, which are divided at multiples of `unit` only. When n does not
  // divide evenly, the first ranks have more, and the last ones may have none.
  constexpr Range range(int n, int unit = 1) const {
    const int64_t n_units = (n + unit - 1) / unit;
    const auto cut = [&](int at) {
      const int64_t end = (n_units * at + n_ranks - 1) / n_ranks * unit;
      return static_cast<int>(end < n ? end : n);
    };
    return {cut(rank), cut(rank + 1) - cut(rank)};
  }
};

// A stage of a pipeline: a run of consecutive layers. The first stage has the embedding, the last
// computes the logits.
struct Stage {
  int index = 0;
  int count = 1;
  constexpr bool first() const { return index == 0; }
  constexpr bool last() const { return index + 1 == count; }
};

}  // namespace penstock
