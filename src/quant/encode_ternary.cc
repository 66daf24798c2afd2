#include <cmath>
#include <cstring>

#include "quant/fit.h"
#include "quant/ternary.h"

namespace penstock::quant {

namespace {

// Computes codes 0, 1, 2 of the values divided by their largest magnitude; returns that scale.
Half encode_ternary(const float* in, uint8_t* codes) {
  const float scale = std::fabs(signed_max(in, 256));
  const float inverse = reciprocal(scale);
  for (int i = 0; i < 256; ++i) {
    const float value = std::round(in[i] * inverse);
    codes[i] = value > 0 ? 2 : value < 0 ? 0 : 1;
  }
  return to_half(scale);
}

// Packs n digits, `stride` apart, most significant first: ceil(256 * x / 243).
uint8_t pack_base3(const uint8_t* codes, int n, int stride) {
  int value = 0;
  for (int i = 0; i < 5; ++i) value = value * 3 + (i < n ? codes[i * stride] : 0);
  return static_cast<uint8_t>((value * 256 + 242) / 243);
}

}  // namespace

void TQ1_0::encode(const float* in, const float*, Block& block) {
  uint8_t codes[256];
  block.scale = encode_ternary(in, codes);
  for (int j = 0; j < 32; ++j) block.fives[j] = pack_base3(codes + j, 5, 32);
  for (int j = 0; j < 16; ++j) block.fives[32 + j] = pack_base3(codes + 160 + j, 5, 16);
  for (int j = 0; j < 4; ++j) block.fours[j] = pack_base3(codes + 240 + j, 4, 4);
}

void TQ2_0::encode(const float* in, const float*, Block& block) {
  uint8_t codes[256];
  block.scale = encode_ternary(in, codes);
  std::memset(block.crumbs, 0, sizeof(block.crumbs));
  for (int i = 0; i < 256; ++i) {
    block.crumbs[i / 128 * 32 + i % 32] |= static_cast<uint8_t>(codes[i] << (i % 128 / 32 * 2));
  }
}

}  // namespace penstock::quant
