#include "ops/cuda/kernels/wide_body.h"

namespace penstock::cuda {

template <int Tokens, StreamCoding Of>
PENSTOCK_BODY void WideExpertProduct<Tokens, Of>::operator()(const Thread& t) const {
  const int expert = tile_experts[t.x * (Tokens / ExpertProduct::kTokens)];
  if (expert < 0 || t.y * One::kOutputs >= experts[expert].weight.rows) return;
  const Product product = {
      experts[expert].weight, {nullptr, 0, out.rows, 0}, out, experts[expert].bias, row_scales};
  One{product, inputs, nullptr, out.rows, nullptr, 1}(t);
}

#define PENSTOCK_WIDE_EXPERT(Of)                           \
  PENSTOCK_KERNEL(WideExpertProduct<64, StreamCoding::Of>) \
  PENSTOCK_KERNEL(WideExpertProduct<128, StreamCoding::Of>)
PENSTOCK_WIDE_EXPERT(kNone)
PENSTOCK_WIDE_EXPERT(kBF16)
PENSTOCK_WIDE_EXPERT(kF16)
PENSTOCK_WIDE_EXPERT(kHalf8)
PENSTOCK_WIDE_EXPERT(kHalf4)
PENSTOCK_WIDE_EXPERT(kWide4)
PENSTOCK_WIDE_EXPERT(kWide4Zeros)
PENSTOCK_WIDE_EXPERT(kSuper4)
PENSTOCK_WIDE_EXPERT(kSuper5)
PENSTOCK_WIDE_EXPERT(kSuper6)

}  // namespace penstock::cuda
