// Q2_K to Q6_K: blocks of 256 elements, whose groups of 16 or 32 have small integer scales.
#pragma once
#include "quant/block.h"

namespace penstock::quant {

// Unpacks eight 6-bit scales and eight 6-bit mins from 12 bytes, the format of Q4_K and Q5_K.
inline void unpack_scales_6bit(const uint8_t* in, int8_t* scales, int8_t* mins) {
  for (int j = 0; j < 4; ++j) {
    scales[j] = static_cast<int8_t>(in[j] & 63);
    mins[j] = static_cast<int8_t>(in[j + 4] & 63);
    scales[j + 4] = static_cast<int8_t>((in[j + 8] & 0x0f) | ((in[j] >> 6) << 4));
    mins[j + 4] = static_cast<int8_t>((in[j + 8] >> 4) | ((in[j + 4] >> 6) << 4));
  }
}

// 64 bytes hold 256 codes of 2 bits: element half * 128 + plane * 32 + l in bits 2 * plane of byte
// half * 32 + l.
inline void unpack_crumbs_256(const uint8_t* in, uint8_t* codes) {
  for (int half = 0; half < 2; ++half) {
    for (int plane = 0; plane < 4; ++plane) {
      for (int l = 0; l < 32; ++l)
        codes[half * 128 + plane * 32 + l] = (in[half * 32 + l] >> (2 * plane)) & 3;
    }
  }
}

// 128 bytes hold 256 codes of 4 bits: of each 64 codes, the first 32 in low nibbles, the next 32 in
// high nibbles.
inline void unpack_nibbles_256(const uint8_t* in, uint8_t* codes) {
  for (int part = 0; part < 4; ++part) {
    for (int l = 0; l < 32; ++l) {
      codes[part * 64 + l] = in[part * 32 + l] & 0x0f;
      codes[part * 64 + 32 + l] = in[part * 32 + l] >> 4;
    }
  }
}

// Adds one more bit to 256 codes: element i's is bit i / 32 of byte i % 32.
template <int Bit>
inline void add_high_bits(const uint8_t* high, uint8_t* codes) {
  for (int plane = 0; plane < 8; ++plane) {
    for (int l = 0; l < 32; ++l) {
      codes[plane * 32 + l] |= static_cast<uint8_t>(((high[l] >> plane) & 1) << Bit);
    }
  }
}

struct Q2_K : LinearCode<2, 0, 16, true> {
  static constexpr QuantType kType = QuantType::kQ2_K;
  static constexpr std::string_view kName = "q2_k";
  static constexpr int kGgmlId = 10;
  static constexpr int kFtype = 10;
  static constexpr int kBlockSize = 256;
  static constexpr bool kHasSuperScales = true;
  struct Block {
    uint8_t scales[16];  // scale in the low nibble, min in the high nibble
    uint8_t crumbs[64];
    Half scale;
    Half min;
  };
  static void super_scales(const Block& block, float& scale, float& min, int8_t* sub_scales,
                           int8_t* sub_mins) {
    scale = to_float(block.scale);
    min = to_float(block.min);
    for (int j = 0; j < 16; ++j) {
      sub_scales[j] = static_cast<int8_t>(block.scales[j] & 0x0f);
      sub_mins[j] = static_cast<int8_t>(block.scales[j] >> 4);
    }
  }
  static void codes(const Block& block, uint8_t* codes, float* scales, float* offsets) {
    expand_super_scales<Q2_K>(block, scales, offsets);
    unpack_crumbs_256(block.crumbs, codes);
  }
  static void decode(const Block& block, float* out) { decode_codes<Q2_K>(block, out); }
  static void encode(const float* in, const float* importance, Block& block);
};

struct Q3_K : LinearCode<3, 4, 16, false> {
  static constexpr QuantType kType = QuantType::kQ3_K;
  static constexpr std::string_view kName = "q3_k";
  static constexpr int kGgmlId = 11;
  static constexpr int kFtype = 12;
  static constexpr int kBlockSize = 256;
  static constexpr bool kHasSuperScales = true;
  struct Block {
    // element i's third bit: bit i / 32 of byte i % 32
    uint8_t high[32];
    uint8_t crumbs[64];
    uint8_t scales[12];
    Half scale;
  };
  static void super_scales(const Block& block, float& scale, float&, int8_t* sub_scales, int8_t*) {
    scale = to_float(block.scale);
    for (int j = 0; j < 16; ++j) {
      const int low = (block.scales[j % 8] >> (j / 8 * 4)) & 0x0f;
      const int high = (block.scales[8 + j % 4] >> (j / 4 * 2)) & 3;
      sub_scales[j] = static_cast<int8_t>((low | high << 4) - 32);
    }
  }
  static void codes(const Block& block, uint8_t* codes, float* scales, float* offsets) {
    expand_super_scales<Q3_K>(block, scales, offsets);
    unpack_crumbs_256(block.crumbs, codes);
    add_high_bits<2>(block.high, codes);
  }
  static void decode(const Block& block, float* out) { decode_codes<Q3_K>(block, out); }
  static void encode(const float* in, const float* importance, Block& block);
};

struct Q4_K : LinearCode<4, 0, 32, true> {
  static constexpr QuantType kType = QuantType::kQ4_K;
  static constexpr std::string_view kName = "q4_k";
  static constexpr int kGgmlId = 12;
  static constexpr int kFtype = 15;
  static constexpr int kBlockSize = 256;
  static constexpr bool kHasSuperScales = true;
  struct Block {
    Half scale;
    Half min;
    uint8_t scales[12];
    uint8_t nibbles[128];
  };
  static void super_scales(const Block& block, float& scale, float& min, int8_t* sub_scales,
                           int8_t* sub_mins) {
    scale = to_float(block.scale);
    min = to_float(block.min);
    unpack_scales_6bit(block.scales, sub_scales, sub_mins);
  }
  static void codes(const Block& block, uint8_t* codes, float* scales, float* offsets) {
    expand_super_scales<Q4_K>(block, scales, offsets);
    unpack_nibbles_256(block.nibbles, codes);
  }
  static void decode(const Block& block, float* out) { decode_codes<Q4_K>(block, out); }
  static void encode(const float* in, const float* importance, Block& block);
};

struct Q5_K : LinearCode<5, 0, 32, true> {
  static constexpr QuantType kType = QuantType::kQ5_K;
  static constexpr std::string_view kName = "q5_k";
  static constexpr int kGgmlId = 13;
  static constexpr int kFtype = 17;
  static constexpr int kBlockSize = 256;
  static constexpr bool kHasSuperScales = true;
  struct Block {
    Half scale;
    Half min;
    uint8_t scales[12];
    // element i's fifth bit: bit i / 32 of byte i % 32
    uint8_t high[32];
    uint8_t nibbles[128];
  };
  static void super_scales(const Block& block, float& scale, float& min, int8_t* sub_scales,
                           int8_t* sub_mins) {
    scale = to_float(block.scale);
    min = to_float(block.min);
    unpack_scales_6bit(block.scales, sub_scales, sub_mins);
  }
  static void codes(const Block& block, uint8_t* codes, float* scales, float* offsets) {
    expand_super_scales<Q5_K>(block, scales, offsets);
    unpack_nibbles_256(block.nibbles, codes);
    add_high_bits<4>(block.high, codes);
  }
  static void decode(const Block& block, float* out) { decode_codes<Q5_K>(block, out); }
  static void encode(const float* in, const float* importance, Block& block);
};

struct Q6_K : LinearCode<6, 32, 16, false> {
  static constexpr QuantType kType = QuantType::kQ6_K;
  static constexpr std::string_view kName = "q6_k";
  static constexpr int kGgmlId = 14;
  static constexpr int kFtype = 18;
  static constexpr int kBlockSize = 256;
  static constexpr bool kHasSuperScales = true;
  struct Block {
    // per 128 elements: the first 64 in low nibbles, the next 64 in high nibbles
    uint8_t nibbles[128];
    uint8_t crumbs[64];
    int8_t scales[16];
    Half scale;
  };
  static void super_scales(const Block& block, float& scale, float&, int8_t* sub_scales, int8_t*) {
    scale = to_float(block.scale);
    for (int j = 0; j < 16; ++j) sub_scales[j] = block.scales[j];
  }
  static void codes(const Block& block, uint8_t* codes, float* scales, float* offsets) {
    expand_super_scales<Q6_K>(block, scales, offsets);
    unpack_crumbs_256(block.crumbs, codes);
    for (int half = 0; half < 2; ++half) {
      for (int l = 0; l < 64; ++l) {
        const uint8_t nibbles = block.nibbles[half * 64 + l];
        uint8_t* low = codes + half * 128 + l;
        low[0] = static_cast<uint8_t>((nibbles & 0x0f) | low[0] << 4);
        low[64] = static_cast<uint8_t>((nibbles >> 4) | low[64] << 4);
      }
    }
  }
  static void decode(const Block& block, float* out) { decode_codes<Q6_K>(block, out); }
  static void encode(const float* in, const float* importance, Block& block);
};

static_assert(sizeof(Q2_K::Block) == 84 && sizeof(Q3_K::Block) == 110 &&
              sizeof(Q4_K::Block) == 144 && sizeof(Q5_K::Block) == 176 &&
              sizeof(Q6_K::Block) == 210);

}  // namespace penstock::quant
