// Q1_0 and Q2_0: weights of 1 or 2 bits with one scale per block.
#pragma once
#include "quant/block.h"

namespace penstock::quant {

// Q1_0: -1 or 1 times the scale.
struct Q1_0 : LinearCode<1, 1, 128, false, 2> {
  static constexpr QuantType kType = QuantType::kQ1_0;
  static constexpr std::string_view kName = "q1_0";
  static constexpr int kGgmlId = 41;
  static constexpr int kFtype = 40;
  static constexpr int kBlockSize = 128;
  struct Block {
    Half scale;
    uint8_t bits[16];  // element i: bit i % 8 of byte i / 8
  };
  static void codes(const Block& block, uint8_t* codes, float* scales, float*) {
    scales[0] = to_float(block.scale);
    for (int i = 0; i < 128; ++i) codes[i] = block.bits[i / 8] >> (i % 8) & 1;
  }
  static void decode(const Block& block, float* out) { decode_codes<Q1_0>(block, out); }
  static void encode(const float* in, const float* importance, Block& block);
};

// Q2_0: -1, 0, 1 or 2 times the scale.
struct Q2_0 : LinearCode<2, 1, 64, false> {
  static constexpr QuantType kType = QuantType::kQ2_0;
  static constexpr std::string_view kName = "q2_0";
  static constexpr int kGgmlId = 42;
  static constexpr int kFtype = 41;
  static constexpr int kBlockSize = 64;
  struct Block {
    Half scale;
    uint8_t crumbs[16];  // element i: bits 2 * (i % 4) of byte i / 4
  };
  static void codes(const Block& block, uint8_t* codes, float* scales, float*) {
    scales[0] = to_float(block.scale);
    for (int i = 0; i < 64; ++i) codes[i] = block.crumbs[i / 4] >> (i % 4 * 2) & 3;
  }
  static void decode(const Block& block, float* out) { decode_codes<Q2_0>(block, out); }
  static void encode(const float* in, const float* importance, Block& block);
};

static_assert(sizeof(Q1_0::Block) == 18 && sizeof(Q2_0::Block) == 18);

}  // namespace penstock::quant
