// Q4_0, Q4_1, Q5_0, Q5_1, Q8_0: blocks of 32 elements with one scale and, for *_1, an offset.
#pragma once
#include <cstring>

#include "quant/block.h"

namespace penstock::quant {

// Adds the fifth bit of 32 codes: bit j of a little-endian 32-bit word belongs to element j.
inline void add_fifth_bits(const uint8_t* high, uint8_t* codes) {
  for (int b = 0; b < 4; ++b) {
    // Byte j of `spread` keeps bit j; adding 0x7f carries a set bit to the top of its byte.
    const uint64_t spread = high[b] * 0x0101010101010101u & 0x8040201008040201u;
    const uint64_t top = (spread + 0x7f7f7f7f7f7f7f7fu) & 0x8080808080808080u;
    uint64_t eight;
    std::memcpy(&eight, codes + 8 * b, 8);
    eight |= top >> 3;
    std::memcpy(codes + 8 * b, &eight, 8);
  }
}

struct Q4_0 : LinearCode<4, 8, 32, false> {
  static constexpr QuantType kType = QuantType::kQ4_0;
  static constexpr std::string_view kName = "q4_0";
  static constexpr int kGgmlId = 2;
  static constexpr int kFtype = 2;
  static constexpr int kBlockSize = 32;
  struct Block {
    Half scale;
    uint8_t nibbles[16];
  };
  static void codes(const Block& block, uint8_t* codes, float* scales, float*) {
    scales[0] = to_float(block.scale);
    unpack_nibbles_32(block.nibbles, codes);
  }
  static void decode(const Block& block, float* out) { decode_codes<Q4_0>(block, out); }
  static void encode(const float* in, const float* importance, Block& block);
};

struct Q4_1 : LinearCode<4, 0, 32, true> {
  static constexpr QuantType kType = QuantType::kQ4_1;
  static constexpr std::string_view kName = "q4_1";
  static constexpr int kGgmlId = 3;
  static constexpr int kFtype = 3;
  static constexpr int kBlockSize = 32;
  struct Block {
    Half scale;
    Half offset;
    uint8_t nibbles[16];
  };
  static void codes(const Block& block, uint8_t* codes, float* scales, float* offsets) {
    scales[0] = to_float(block.scale);
    offsets[0] = to_float(block.offset);
    unpack_nibbles_32(block.nibbles, codes);
  }
  static void decode(const Block& block, float* out) { decode_codes<Q4_1>(block, out); }
  static void encode(const float* in, const float* importance, Block& block);
};

struct Q5_0 : LinearCode<5, 16, 32, false> {
  static constexpr QuantType kType = QuantType::kQ5_0;
  static constexpr std::string_view kName = "q5_0";
  static constexpr int kGgmlId = 6;
  static constexpr int kFtype = 8;
  static constexpr int kBlockSize = 32;
  struct Block {
    Half scale;
    uint8_t high[4];
    uint8_t nibbles[16];
  };
  static void codes(const Block& block, uint8_t* codes, float* scales, float*) {
    scales[0] = to_float(block.scale);
    unpack_nibbles_32(block.nibbles, codes);
    add_fifth_bits(block.high, codes);
  }
  static void decode(const Block& block, float* out) { decode_codes<Q5_0>(block, out); }
  static void encode(const float* in, const float* importance, Block& block);
};

struct Q5_1 : LinearCode<5, 0, 32, true> {
  static constexpr QuantType kType = QuantType::kQ5_1;
  static constexpr std::string_view kName = "q5_1";
  static constexpr int kGgmlId = 7;
  static constexpr int kFtype = 9;
  static constexpr int kBlockSize = 32;
  struct Block {
    Half scale;
    Half offset;
    uint8_t high[4];
    uint8_t nibbles[16];
  };
  static void codes(const Block& block, uint8_t* codes, float* scales, float* offsets) {
    scales[0] = to_float(block.scale);
    offsets[0] = to_float(block.offset);
    unpack_nibbles_32(block.nibbles, codes);
    add_fifth_bits(block.high, codes);
  }
  static void decode(const Block& block, float* out) { decode_codes<Q5_1>(block, out); }
  static void encode(const float* in, const float* importance, Block& block);
};

struct Q8_0 : LinearCode<8, 128, 32, false> {
  static constexpr QuantType kType = QuantType::kQ8_0;
  static constexpr std::string_view kName = "q8_0";
  static constexpr int kGgmlId = 8;
  static constexpr int kFtype = 7;
  static constexpr int kBlockSize = 32;
  struct Block {
    Half scale;
    int8_t values[32];
  };
  static void codes(const Block& block, uint8_t* codes, float* scales, float*) {
    scales[0] = to_float(block.scale);
    for (int j = 0; j < 32; ++j) codes[j] = static_cast<uint8_t>(block.values[j] + 128);
  }
  static void decode(const Block& block, float* out) { decode_codes<Q8_0>(block, out); }
  static void encode(const float* in, const float* importance, Block& block);
};

static_assert(sizeof(Q4_0::Block) == 18 && sizeof(Q4_1::Block) == 20 && sizeof(Q5_0::Block) == 22 &&
              sizeof(Q5_1::Block) == 24 && sizeof(Q8_0::Block) == 34);

}  // namespace penstock::quant
