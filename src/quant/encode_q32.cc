// Without importance, results equal those of other GGUF tools, bit for bit; with importance, the
// scale is searched.
#include "quant/fit.h"
#include "quant/q32.h"

namespace penstock::quant {

namespace {

constexpr int kSize = 32;

void pack_fifth_bits(const uint8_t* codes, uint8_t* high) {
  for (int j = 0; j < kSize; ++j)
    high[j / 8] |= static_cast<uint8_t>((codes[j] >> 4 & 1) << (j % 8));
}

// Truncates a number to an integer in [0, max]; NaN gives 0.
uint8_t truncate(float value, float max) {
  value = value > 0 ? value : 0;
  return static_cast<uint8_t>(value < max ? value : max);
}

template <class Q>
Half encode_symmetric(const float* in, const float* importance, uint8_t* codes) {
  float scale = signed_max(in, kSize) / -Q::kBias;
  if (importance == nullptr) {
    const float inverse = reciprocal(scale);
    for (int i = 0; i < kSize; ++i)
      codes[i] = truncate(in[i] * inverse + (Q::kBias + 0.5f), (1 << Q::kBits) - 1);
    return to_half(scale);
  }
  float weights[kSize];
  error_weights(in, importance, kSize, weights);
  const Half half = to_half(fit_scale<Q>(in, weights, kSize));
  const float inverse = reciprocal(to_float(half));
  for (int i = 0; i < kSize; ++i) codes[i] = nearest_code<Q>(in[i] * inverse);
  return half;
}

template <class Q>
void encode_offset(const float* in, const float* importance, typename Q::Block& block,
                   uint8_t* codes) {
  constexpr int kMax = (1 << Q::kBits) - 1;
  if (importance == nullptr) {
    float low = in[0];
    float high = in[0];
    for (int i = 1; i < kSize; ++i) {
      low = std::min(low, in[i]);
      high = std::max(high, in[i]);
    }
    const float scale = (high - low) / kMax;
    const float inverse = reciprocal(scale);
    for (int i = 0; i < kSize; ++i) codes[i] = truncate((in[i] - low) * inverse + 0.5f, kMax);
    block.scale = to_half(scale);
    block.offset = to_half(low);
    return;
  }
  float weights[kSize];
  error_weights(in, importance, kSize, weights);
  const AffineFit fit = fit_affine(in, weights, kSize, kMax, false);
  block.scale = to_half(fit.scale);
  block.offset = to_half(fit.offset);
  const float inverse = reciprocal(to_float(block.scale));
  const float offset = to_float(block.offset);
  for (int i = 0; i < kSize; ++i) codes[i] = nearest_code<Q>((in[i] - offset) * inverse);
}

}  // namespace

void Q4_0::encode(const float* in, const float* importance, Block& block) {
  uint8_t codes[kSize];
  block.scale = encode_symmetric<Q4_0>(in, importance, codes);
  pack_nibbles(codes, block.nibbles);
}

void Q5_0::encode(const float* in, const float* importance, Block& block) {
  uint8_t codes[kSize];
  block.scale = encode_symmetric<Q5_0>(in, importance, codes);
  pack_nibbles(codes, block.nibbles);
  pack_fifth_bits(codes, block.high);
}

void Q4_1::encode(const float* in, const float* importance, Block& block) {
  uint8_t codes[kSize];
  encode_offset<Q4_1>(in, importance, block, codes);
  pack_nibbles(codes, block.nibbles);
}

void Q5_1::encode(const float* in, const float* importance, Block& block) {
  uint8_t codes[kSize];
  encode_offset<Q5_1>(in, importance, block, codes);
  pack_nibbles(codes, block.nibbles);
  pack_fifth_bits(codes, block.high);
}

// No search: 8 bits leave nothing to gain.
void Q8_0::encode(const float* in, const float*, Block& block) {
  const float scale = std::fabs(signed_max(in, kSize)) / 127.0f;
  const float inverse = reciprocal(scale);
  block.scale = to_half(scale);
  for (int i = 0; i < kSize; ++i) {
    const float value = std::round(in[i] * inverse);
    block.values[i] = static_cast<int8_t>(value > -127 ? (value < 127 ? value : 127) : -127);
  }
}

}  // namespace penstock::quant
