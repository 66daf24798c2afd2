// Operations still to be written: no cache can be made, so no model reaches them.
#include "ops/cuda/cuda_ops.h"

namespace penstock::cuda {

Result<std::unique_ptr<KvCache>> CudaOps::make_cache(const CacheSpec&, std::span<const int>) {
  return make_error(ErrorCode::kUnsupported, "backend cuda: has no KV cache yet");
}
void CudaOps::moe(Tensor, Tensor, const MoeParams&, Tensor) { PENSTOCK_CHECK(false); }
void CudaOps::rotate(Tensor, Tensor, const RopeParams&, int) { PENSTOCK_CHECK(false); }
void CudaOps::rope_and_store(Tensor, Tensor, Tensor, const RopeParams*, KvCache&, int) {
  PENSTOCK_CHECK(false);
}
void CudaOps::attend(Tensor, const KvCache&, const AttentionParams&, Tensor) { PENSTOCK_CHECK(false); }
void CudaOps::move_kv(KvCache&, int, std::span<const int32_t>, std::span<const int32_t>) {
  PENSTOCK_CHECK(false);
}
void CudaOps::causal_conv(Tensor, const ConvParams&, KvCache&, Tensor) { PENSTOCK_CHECK(false); }
void CudaOps::gated_delta(Tensor, Tensor, Tensor, const DeltaParams&, KvCache&, Tensor) {
  PENSTOCK_CHECK(false);
}
void CudaOps::state_space(Tensor, Tensor, Tensor, const StateSpaceParams&, KvCache&, Tensor) {
  PENSTOCK_CHECK(false);
}

}  // namespace penstock::cuda
