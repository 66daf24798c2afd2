#include "ops/narrow_cache.h"

#include <algorithm>

#include "kernels/attention_kernels.h"

namespace penstock {

Status check_narrow(const CacheSpec& spec) {
  if (spec.dtype != KvDType::kI4) return {};
  if (spec.first_index_layer > 0 || spec.first_entry_layer > 0) {
    return make_error(
        ErrorCode::kUnsupported,
        "KV cache: INT4 is not there for sparse attention, expected F32, F16, BF16 or "
        "INT8");
  }
  for (const KvLayerSpec& layer : spec.layers) {
    if (layer.head_dim > kMostNarrowDim || layer.value_dim() > kMostNarrowDim)
      return errorf(ErrorCode::kUnsupported,
                    "KV cache: INT4 is there for heads of at most {} features, got {}",
                    kMostNarrowDim, std::max(layer.head_dim, layer.value_dim()));
  }
  return {};
}

}  // namespace penstock
