#include "quant/few_bits.h"
#include "quant/fit.h"

namespace penstock::quant {

// For fixed signs, the least-squares scale is the mean magnitude.
void Q1_0::encode(const float* in, const float* importance, Block& block) {
  float sum = 0, weights = 0;
  for (int i = 0; i < 128; ++i) {
    const float weight = importance != nullptr ? importance[i] : 1.0f;
    sum += weight * std::fabs(in[i]);
    weights += weight;
    block.bits[i / 8] |= static_cast<uint8_t>((in[i] >= 0 ? 1 : 0) << (i % 8));
  }
  block.scale = to_half(sum * reciprocal(weights));
}

void Q2_0::encode(const float* in, const float* importance, Block& block) {
  float weights[64];
  error_weights(in, importance, 64, weights);
  block.scale = to_half(fit_scale<Q2_0>(in, weights, 64));
  const float inverse = reciprocal(to_float(block.scale));
  for (int i = 0; i < 64; ++i) {
    block.crumbs[i / 4] |= static_cast<uint8_t>(nearest_code<Q2_0>(in[i] * inverse) << (i % 4 * 2));
  }
}

}  // namespace penstock::quant
