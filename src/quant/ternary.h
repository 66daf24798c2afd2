// TQ1_0 (five weights per byte) and TQ2_0 (four per byte): weights are -1, 0 or 1 times one scale
// per 256.
#pragma once
#include "quant/block.h"

namespace penstock::quant {

// Returns digit n (most significant first) of a byte that holds ceil(256 * x / 243) for a
// five-digit base-3 number x.
inline uint8_t ternary_digit(uint8_t byte, int n) {
  constexpr uint8_t kPow3[5] = {1, 3, 9, 27, 81};
  const auto shifted = static_cast<uint8_t>(byte * kPow3[n]);
  return static_cast<uint8_t>((shifted * 3) >> 8);
}

struct TQ1_0 : LinearCode<2, 1, 256, false> {
  static constexpr QuantType kType = QuantType::kTQ1_0;
  static constexpr std::string_view kName = "tq1_0";
  static constexpr int kGgmlId = 34;
  static constexpr int kFtype = 36;
  static constexpr int kBlockSize = 256;
  struct Block {
    // 32 bytes: elements 0..159; 16 bytes: 160..239; digit-major
    uint8_t fives[48];
    uint8_t fours[4];  // elements 240..255
    Half scale;
  };
  static void codes(const Block& block, uint8_t* codes, float* scales, float*) {
    scales[0] = to_float(block.scale);
    for (int i = 0; i < 160; ++i) codes[i] = ternary_digit(block.fives[i % 32], i / 32);
    for (int i = 0; i < 80; ++i) codes[160 + i] = ternary_digit(block.fives[32 + i % 16], i / 16);
    for (int i = 0; i < 16; ++i) codes[240 + i] = ternary_digit(block.fours[i % 4], i / 4);
  }
  static void decode(const Block& block, float* out) { decode_codes<TQ1_0>(block, out); }
  static void encode(const float* in, const float* importance, Block& block);
};

struct TQ2_0 : LinearCode<2, 1, 256, false> {
  static constexpr QuantType kType = QuantType::kTQ2_0;
  static constexpr std::string_view kName = "tq2_0";
  static constexpr int kGgmlId = 35;
  static constexpr int kFtype = 37;
  static constexpr int kBlockSize = 256;
  struct Block {
    // element half * 128 + plane * 32 + l in bits 2 * plane of byte half * 32 + l
    uint8_t crumbs[64];
    Half scale;
  };
  static void codes(const Block& block, uint8_t* codes, float* scales, float*) {
    scales[0] = to_float(block.scale);
    for (int i = 0; i < 256; ++i)
      codes[i] = (block.crumbs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
  }
  static void decode(const Block& block, float* out) { decode_codes<TQ2_0>(block, out); }
  static void encode(const float* in, const float* importance, Block& block);
};

static_assert(sizeof(TQ1_0::Block) == 54 && sizeof(TQ2_0::Block) == 66);

}  // namespace penstock::quant
