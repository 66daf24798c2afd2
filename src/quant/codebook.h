// 4-bit codes that index a table of uneven levels: IQ4_NL, IQ4_XS, MXFP4.
#pragma once
#include "quant/block.h"

namespace penstock::quant {

// IQ4 levels, denser near zero, where most weights are.
inline constexpr std::array<int8_t, 16> kIq4Levels = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                      1,    13,   25,  38,  53,  69,  89,  113};
// Levels of E2M1 floats, times 2.
inline constexpr std::array<int8_t, 16> kE2M1Levels = {0, 1,  2,  3,  4,  6,  8,  12,
                                                       0, -1, -2, -3, -4, -6, -8, -12};

// Returns half of 2^(exponent - 127), an E8M0 scale, for doubled levels; 255 (NaN) gives 2^127.
inline float half_of_e8m0(uint8_t exponent) {
  if (exponent < 2) return std::bit_cast<float>(0x00200000u << exponent);  // subnormal
  return std::bit_cast<float>(static_cast<uint32_t>(exponent - 1) << 23);
}

struct IQ4_NL : CodebookCode<kIq4Levels, 32> {
  static constexpr QuantType kType = QuantType::kIQ4_NL;
  static constexpr std::string_view kName = "iq4_nl";
  static constexpr int kGgmlId = 20;
  static constexpr int kFtype = 25;
  static constexpr int kBlockSize = 32;
  struct Block {
    Half scale;
    uint8_t nibbles[16];
  };
  static void codes(const Block& block, uint8_t* codes, float* scales, float*) {
    scales[0] = to_float(block.scale);
    unpack_nibbles_32(block.nibbles, codes);
  }
  static void decode(const Block& block, float* out) { decode_codes<IQ4_NL>(block, out); }
  static void encode(const float* in, const float* importance, Block& block);
};

struct IQ4_XS : CodebookCode<kIq4Levels, 32> {
  static constexpr QuantType kType = QuantType::kIQ4_XS;
  static constexpr std::string_view kName = "iq4_xs";
  static constexpr int kGgmlId = 23;
  static constexpr int kFtype = 30;
  static constexpr int kBlockSize = 256;
  static constexpr bool kHasSuperScales = true;
  struct Block {
    Half scale;
    uint16_t scales_high;   // 2 bits per group
    uint8_t scales_low[4];  // 4 bits per group
    uint8_t nibbles[128];   // 16 bytes per group
  };
  static void super_scales(const Block& block, float& scale, float&, int8_t* sub_scales, int8_t*) {
    scale = to_float(block.scale);
    for (int j = 0; j < 8; ++j) {
      const int low = (block.scales_low[j / 2] >> (j % 2 * 4)) & 0x0f;
      const int high = (block.scales_high >> (2 * j)) & 3;
      sub_scales[j] = static_cast<int8_t>((low | high << 4) - 32);
    }
  }
  static void codes(const Block& block, uint8_t* codes, float* scales, float* offsets) {
    expand_super_scales<IQ4_XS>(block, scales, offsets);
    for (int j = 0; j < 8; ++j) unpack_nibbles_32(block.nibbles + j * 16, codes + j * 32);
  }
  static void decode(const Block& block, float* out) { decode_codes<IQ4_XS>(block, out); }
  static void encode(const float* in, const float* importance, Block& block);
};

struct MXFP4 : CodebookCode<kE2M1Levels, 32> {
  static constexpr QuantType kType = QuantType::kMXFP4;
  static constexpr std::string_view kName = "mxfp4";
  static constexpr int kGgmlId = 39;
  static constexpr int kFtype = 38;
  static constexpr int kBlockSize = 32;
  struct Block {
    uint8_t exponent;
    uint8_t nibbles[16];
  };
  static void codes(const Block& block, uint8_t* codes, float* scales, float*) {
    scales[0] = half_of_e8m0(block.exponent);
    unpack_nibbles_32(block.nibbles, codes);
  }
  static void decode(const Block& block, float* out) { decode_codes<MXFP4>(block, out); }
  static void encode(const float* in, const float* importance, Block& block);
};

// NVFP4: scales are F8 E4M3 numbers for doubled levels. Their sign is ignored, and 0x7f is zero.
struct NVFP4 : CodebookCode<kE2M1Levels, 16> {
  static constexpr QuantType kType = QuantType::kNVFP4;
  static constexpr std::string_view kName = "nvfp4";
  static constexpr int kGgmlId = 40;
  static constexpr int kFtype = 39;
  static constexpr int kBlockSize = 64;
  static constexpr bool kHasF8Scales = true;
  // half of 2^8, the factor between E4M3 and FP16 with the same exponent bits
  static constexpr float kUnit = 128.0f;
  struct Block {
    uint8_t scales[4];
    // per 16 elements: the first eight in low nibbles, the next eight in high nibbles
    uint8_t nibbles[32];
  };
  // Returns exponent and mantissa of a group's scale.
  static uint8_t f8_scale(const Block& block, int group) {
    return block.scales[group] == 0x7f ? uint8_t{0}
                                       : static_cast<uint8_t>(block.scales[group] & 0x7f);
  }
  static void codes(const Block& block, uint8_t* codes, float* scales, float*) {
    for (int g = 0; g < 4; ++g) {
      scales[g] = to_float(Half{static_cast<uint16_t>(f8_scale(block, g) << 7)}) * kUnit;
    }
    unpack(block, codes);
  }
  static void unpack(const Block& block, uint8_t* codes) {
    for (int i = 0; i < 32; ++i) {
      const int at = i / 8 * 16 + i % 8;
      codes[at] = block.nibbles[i] & 15;
      codes[at + 8] = block.nibbles[i] >> 4;
    }
  }
  static void decode(const Block& block, float* out) { decode_codes<NVFP4>(block, out); }
  static void encode(const float* in, const float* importance, Block& block);
};

static_assert(sizeof(IQ4_NL::Block) == 18 && sizeof(IQ4_XS::Block) == 136 &&
              sizeof(MXFP4::Block) == 17 && sizeof(NVFP4::Block) == 36);

}  // namespace penstock::quant
