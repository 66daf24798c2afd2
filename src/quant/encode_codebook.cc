#include <cstring>

#include "quant/codebook.h"
#include "quant/plain.h"
#include "quant/super_block.h"

namespace penstock::quant {

namespace {

// Returns the code of the nearest E2M1 level; of two equally near ones, the first in the table.
uint8_t nearest_e2m1(float value) {
  uint8_t best = 0;
  for (uint8_t code = 1; code < 16; ++code) {
    if (std::fabs(value - kE2M1Levels[code]) < std::fabs(value - kE2M1Levels[best])) best = code;
  }
  return best;
}

// Chooses the codes of n values for a scale; returns their weighted squared error.
float round_e2m1(const float* in, const float* importance, int n, float scale, uint8_t* codes) {
  float error = 0;
  for (int i = 0; i < n; ++i) {
    codes[i] = nearest_e2m1(in[i] / scale);
    const float difference = in[i] - scale * kE2M1Levels[codes[i]];
    error += difference * difference * (importance != nullptr ? importance[i] : 1.0f);
  }
  return error;
}

}  // namespace

void IQ4_NL::encode(const float* in, const float* importance, Block& block) {
  float weights[32];
  error_weights(in, importance, 32, weights);
  block.scale = to_half(fit_scale<IQ4_NL>(in, weights, 32));
  const float inverse = reciprocal(to_float(block.scale));
  uint8_t codes[32];
  for (int i = 0; i < 32; ++i) codes[i] = nearest_code<IQ4_NL>(in[i] * inverse);
  pack_nibbles(codes, block.nibbles);
}

void IQ4_XS::encode(const float* in, const float* importance, Block& block) {
  const SymmetricSuper<IQ4_XS> encoded = encode_symmetric_super<IQ4_XS>(in, importance, -32, 31);
  block.scale = encoded.scale;
  block.scales_high = 0;
  std::memset(block.scales_low, 0, sizeof(block.scales_low));
  for (int g = 0; g < 8; ++g) {
    const int code = encoded.sub_scales[g] + 32;
    block.scales_low[g / 2] |= static_cast<uint8_t>((code & 0x0f) << (g % 2 * 4));
    block.scales_high |= static_cast<uint16_t>((code >> 4) << (2 * g));
    pack_nibbles(encoded.codes + g * 32, block.nibbles + g * 16);
  }
}

// Chooses the exponent that puts the largest magnitude into the top binade of E2M1, or an adjacent
// exponent with a smaller error.
void MXFP4::encode(const float* in, const float* importance, Block& block) {
  const float max = std::fabs(signed_max(in, 32));
  const int usual = max > 0 && std::isfinite(max) ? std::ilogb(max) - 2 + 127 : 0;
  float best = HUGE_VALF;
  for (const int exponent : {usual, usual + 1, usual - 1}) {
    if (exponent < 0 || exponent > 254) continue;
    uint8_t codes[32];
    const float scale = half_of_e8m0(static_cast<uint8_t>(exponent));
    const float error = round_e2m1(in, importance, 32, scale, codes);
    if (!(error < best)) continue;
    best = error;
    block.exponent = static_cast<uint8_t>(exponent);
    pack_nibbles(codes, block.nibbles);
  }
}

// Chooses the scale that puts the largest magnitude on the highest level, or a nearby scale with a
// smaller error.
void NVFP4::encode(const float* in, const float* importance, Block& block) {
  for (int g = 0; g < 4; ++g, in += 16) {
    const float* weights = importance != nullptr ? importance + 16 * g : nullptr;
    const int usual = encode_f8e4m3(std::fabs(signed_max(in, 16)) / 6.0f);
    float best = HUGE_VALF;
    for (int code = std::max(usual - 4, 1); code <= std::min(usual + 6, 0x7e); ++code) {
      uint8_t codes[16];
      const float scale = decode_f8e4m3(static_cast<uint8_t>(code)) * 0.5f;
      const float error = round_e2m1(in, weights, 16, scale, codes);
      if (!(error < best)) continue;
      best = error;
      block.scales[g] = static_cast<uint8_t>(code);
      for (int j = 0; j < 8; ++j) {
        block.nibbles[8 * g + j] = static_cast<uint8_t>(codes[j] | codes[j + 8] << 4);
      }
    }
  }
}

}  // namespace penstock::quant
