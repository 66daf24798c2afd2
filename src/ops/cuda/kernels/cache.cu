#include "ops/cuda/kernels/cache.h"

#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {

// A thread copies the same bytes of every token, so overlapping moves take effect in order.
PENSTOCK_BODY void MoveKv::operator()(const Thread& t) const {
  for (int i = 0; i < n; ++i) {
    if (!layer.stores(from[i]) || !layer.stores(to[i])) continue;
    for (int part = 0; part < (layer.has_values() ? 2 : 1); ++part) {
      const int bytes = part == 0 ? layer.row_bytes : layer.value_row_bytes;
      const int n_words = (bytes + 3) / 4;
      const std::byte* const source =
          part == 0 ? layer.key(from[i], t.x) : layer.value(from[i], t.x);
      std::byte* const target = part == 0 ? layer.key(to[i], t.x) : layer.value(to[i], t.x);
      for (int w = t.index; w < n_words; w += kThreads) {
        for (int b = 4 * w; b < 4 * w + 4 && b < bytes; ++b) target[b] = source[b];
      }
      if (layer.is_narrow()) {
        const std::byte* const factors =
            part == 0 ? layer.key_factors(from[i], t.x) : layer.value_factors(from[i], t.x);
        std::byte* const copies =
            part == 0 ? layer.key_factors(to[i], t.x) : layer.value_factors(to[i], t.x);
        const int n_groups = part == 0 ? layer.key_groups : layer.value_groups;
        for (int g = t.index; g < n_groups; g += kThreads) copies[g] = factors[g];
      }
      if (layer.has_scales() && t.index == 0) {
        if (part == 0) *layer.key_scale(to[i], t.x) = *layer.key_scale(from[i], t.x);
        if (part == 1) *layer.value_scale(to[i], t.x) = *layer.value_scale(from[i], t.x);
      }
    }
  }
}
PENSTOCK_KERNEL(MoveKv)

}  // namespace penstock::cuda
