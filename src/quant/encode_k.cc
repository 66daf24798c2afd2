#include <cstring>

#include "quant/k_quants.h"
#include "quant/super_block.h"

namespace penstock::quant {

namespace {

void pack_scales_6bit(const uint8_t* scales, const uint8_t* mins, uint8_t* out) {
  for (int j = 0; j < 4; ++j) {
    out[j] = static_cast<uint8_t>(scales[j] | (scales[j + 4] >> 4) << 6);
    out[j + 4] = static_cast<uint8_t>(mins[j] | (mins[j + 4] >> 4) << 6);
    out[j + 8] = static_cast<uint8_t>((scales[j + 4] & 0x0f) | (mins[j + 4] & 0x0f) << 4);
  }
}

// Packs the low two bits of codes >> shift.
void pack_crumbs(const uint8_t* codes, int shift, uint8_t* out) {
  std::memset(out, 0, 64);
  for (int i = 0; i < 256; ++i) {
    out[i / 128 * 32 + i % 32] |=
        static_cast<uint8_t>((codes[i] >> shift & 3) << (i % 128 / 32 * 2));
  }
}

void pack_super_nibbles(const uint8_t* codes, uint8_t* out) {
  std::memset(out, 0, 128);
  for (int i = 0; i < 256; ++i) {
    out[i / 64 * 32 + i % 32] |= static_cast<uint8_t>((codes[i] & 0x0f) << (i % 64 / 32 * 4));
  }
}

// Packs bit `bit` of every code: element i's becomes bit i / 32 of byte i % 32.
void pack_high_bits(const uint8_t* codes, int bit, uint8_t* out) {
  std::memset(out, 0, 32);
  for (int i = 0; i < 256; ++i)
    out[i % 32] |= static_cast<uint8_t>((codes[i] >> bit & 1) << (i / 32));
}

}  // namespace

void Q2_K::encode(const float* in, const float* importance, Block& block) {
  const AffineSuper<Q2_K> encoded = encode_affine_super<Q2_K>(in, importance, 15);
  block.scale = encoded.scale;
  block.min = encoded.min;
  for (int g = 0; g < 16; ++g)
    block.scales[g] = static_cast<uint8_t>(encoded.sub_scales[g] | encoded.sub_mins[g] << 4);
  pack_crumbs(encoded.codes, 0, block.crumbs);
}

void Q3_K::encode(const float* in, const float* importance, Block& block) {
  const SymmetricSuper<Q3_K> encoded = encode_symmetric_super<Q3_K>(in, importance, -32, 31);
  block.scale = encoded.scale;
  std::memset(block.scales, 0, sizeof(block.scales));
  for (int g = 0; g < 16; ++g) {
    const int code = encoded.sub_scales[g] + 32;
    block.scales[g % 8] |= static_cast<uint8_t>((code & 0x0f) << (g / 8 * 4));
    block.scales[8 + g % 4] |= static_cast<uint8_t>((code >> 4) << (g / 4 * 2));
  }
  pack_crumbs(encoded.codes, 0, block.crumbs);
  pack_high_bits(encoded.codes, 2, block.high);
}

void Q4_K::encode(const float* in, const float* importance, Block& block) {
  const AffineSuper<Q4_K> encoded = encode_affine_super<Q4_K>(in, importance, 63);
  block.scale = encoded.scale;
  block.min = encoded.min;
  pack_scales_6bit(encoded.sub_scales, encoded.sub_mins, block.scales);
  pack_super_nibbles(encoded.codes, block.nibbles);
}

void Q5_K::encode(const float* in, const float* importance, Block& block) {
  const AffineSuper<Q5_K> encoded = encode_affine_super<Q5_K>(in, importance, 63);
  block.scale = encoded.scale;
  block.min = encoded.min;
  pack_scales_6bit(encoded.sub_scales, encoded.sub_mins, block.scales);
  pack_super_nibbles(encoded.codes, block.nibbles);
  pack_high_bits(encoded.codes, 4, block.high);
}

void Q6_K::encode(const float* in, const float* importance, Block& block) {
  const SymmetricSuper<Q6_K> encoded = encode_symmetric_super<Q6_K>(in, importance, -128, 127);
  block.scale = encoded.scale;
  std::memcpy(block.scales, encoded.sub_scales, sizeof(block.scales));
  pack_crumbs(encoded.codes, 4, block.crumbs);
  std::memset(block.nibbles, 0, sizeof(block.nibbles));
  for (int i = 0; i < 256; ++i) {
    block.nibbles[i / 128 * 64 + i % 64] |=
        static_cast<uint8_t>((encoded.codes[i] & 0x0f) << (i % 128 / 64 * 4));
  }
}

}  // namespace penstock::quant
