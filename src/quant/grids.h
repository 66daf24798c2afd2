// Grid encodings: IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S. Groups of eight or four
// weights share an index into a grid of points.
#pragma once
#include <cstring>

#include "quant/block.h"

namespace penstock::quant {

// The points, as codes of their columns. For eight columns, byte i of a word holds column i in its
// low nibble and column 4 + i in its high nibble; for four columns, byte i holds column i. For
// grids without shifts, `halves` has the first and the second half of the columns in a byte each,
// from the lowest bits up.
// kIQ1Grid: 2,048 points raised by an eighth, then the same points lowered by an eighth.
extern const Grid<4096> kIQ1Grid;
extern const Grid<256> kIQ2XXSGrid;
extern const Grid<512> kIQ2XSGrid;
extern const Grid<1024> kIQ2SGrid;
extern const Grid<256> kIQ3XXSGrid;
extern const Grid<512> kIQ3SGrid;

// In eighths: -1, 0, 1, each raised or lowered by one eighth.
inline constexpr std::array<int8_t, 16> kIQ1Levels = {-7, 1, 9, 0, -9, -1, 7};
// the fourth code is unused; codes 8 and above repeat
inline constexpr std::array<int8_t, 16> kIQ2Levels = {8, 25, 43, 0, -8, -25, -43, 0,
                                                      8, 25, 43, 0, -8, -25, -43, 0};
inline constexpr std::array<int8_t, 16> kIQ3XXSLevels = {4,  12,  20,  28,  36,  44,  52,  62,
                                                         -4, -12, -20, -28, -36, -44, -52, -62};
inline constexpr std::array<int8_t, 16> kIQ3SLevels = {1,  3,  5,  7,  9,  11,  13,  15,
                                                       -1, -3, -5, -7, -9, -11, -13, -15};

// Returns eight signs with an even number of negative ones from the first seven, which files store.
inline uint8_t even_signs(uint32_t seven) {
  seven &= 127;
  return static_cast<uint8_t>(seven | (std::popcount(seven) & 1) << 7);
}

// Returns the codes of a point's columns. Bit i of signs belongs to column i.
template <class Q>
void point_codes(uint32_t index, uint32_t signs, uint8_t* codes) {
  const uint32_t point = Q::kGrid.points[index];
  for (int i = 0; i < Q::kColumns; ++i) {
    const uint32_t code = point >> (8 * (i % 4) + i / 4 * 4) & 15;
    codes[i] = static_cast<uint8_t>(code | (signs >> i & 1) << Q::kSignBit);
  }
}

// Expands the codes of a block from its points and signs.
template <class Q>
void expand_points(const typename Q::Block& block, uint8_t* codes, float* scales, float* offsets) {
  expand_super_scales<Q>(block, scales, offsets);
  uint16_t points[Q::kBlockSize / Q::kColumns];
  uint8_t signs[Q::kBlockSize / 8] = {};
  Q::points(block, points, signs);
  for (int i = 0; i < Q::kBlockSize; i += Q::kColumns) {
    point_codes<Q>(points[i / Q::kColumns], static_cast<uint32_t>(signs[i / 8] >> (i % 8)),
                   codes + i);
  }
}

// Unpacks odd sub-scales 2n + 1. Two groups share a byte, with the even group in its low nibble.
inline void odd_scales(const uint8_t* nibbles, int n, int8_t* sub_scales) {
  for (int g = 0; g < n; ++g)
    sub_scales[g] = static_cast<int8_t>(2 * (nibbles[g / 2] >> (g % 2 * 4) & 15) + 1);
}

struct IQ1_S : GridCode<kIQ1Grid, kIQ1Levels, 8, 32, false> {
  static constexpr QuantType kType = QuantType::kIQ1_S;
  static constexpr std::string_view kName = "iq1_s";
  static constexpr int kGgmlId = 19;
  static constexpr int kFtype = 24;
  static constexpr float kUnit = 0.125f;
  struct Block {
    Half scale;
    uint8_t low[32];  // low bits of the indices
    // per group: three bits for each of four indices, three of the scale, one for lowered points
    uint16_t high[8];
  };
  static void super_scales(const Block& block, float& scale, float&, int8_t* sub_scales, int8_t*) {
    scale = to_float(block.scale);
    for (int g = 0; g < 8; ++g)
      sub_scales[g] = static_cast<int8_t>(2 * (block.high[g] >> 12 & 7) + 1);
  }
  static void points(const Block& block, uint16_t* points, uint8_t*) {
    for (int i = 0; i < 32; ++i) {
      const int high = block.high[i / 4] >> (i % 4 * 3) & 7, lowered = block.high[i / 4] >> 15;
      points[i] = static_cast<uint16_t>(block.low[i] | high << 8 | lowered << 11);
    }
  }
  static void codes(const Block& block, uint8_t* codes, float* scales, float* offsets) {
    expand_points<IQ1_S>(block, codes, scales, offsets);
  }
  static void decode(const Block& block, float* out) { decode_codes<IQ1_S>(block, out); }
  static void encode(const float* in, const float* importance, Block& block);
};

struct IQ1_M : GridCode<kIQ1Grid, kIQ1Levels, 8, 16, false> {
  static constexpr QuantType kType = QuantType::kIQ1_M;
  static constexpr std::string_view kName = "iq1_m";
  static constexpr int kGgmlId = 29;
  static constexpr int kFtype = 31;
  static constexpr float kUnit = 0.125f;
  struct Block {
    uint8_t low[32];  // low bits of the indices
    // 4 bits per index: its three high bits, and one if the point is lowered
    uint8_t high[16];
    // three bits for each of four groups, then four bits of the block's FP16 scale
    uint16_t scales[4];
  };
  static void super_scales(const Block& block, float& scale, float&, int8_t* sub_scales, int8_t*) {
    uint16_t bits = 0;
    for (int k = 0; k < 4; ++k) {
      bits |= static_cast<uint16_t>(block.scales[k] >> 12 << (4 * k));
      for (int j = 0; j < 4; ++j)
        sub_scales[4 * k + j] = static_cast<int8_t>(2 * (block.scales[k] >> (3 * j) & 7) + 1);
    }
    scale = to_float(Half{bits});
  }
  static void points(const Block& block, uint16_t* points, uint8_t*) {
    for (int i = 0; i < 32; ++i) {
      const int nibble = block.high[i / 2] >> (i % 2 * 4) & 15;
      points[i] = static_cast<uint16_t>(block.low[i] | nibble << 8);
    }
  }
  static void codes(const Block& block, uint8_t* codes, float* scales, float* offsets) {
    expand_points<IQ1_M>(block, codes, scales, offsets);
  }
  static void decode(const Block& block, float* out) { decode_codes<IQ1_M>(block, out); }
  static void encode(const float* in, const float* importance, Block& block);
};

struct IQ2_XXS : GridCode<kIQ2XXSGrid, kIQ2Levels, 8, 32, true> {
  static constexpr QuantType kType = QuantType::kIQ2_XXS;
  static constexpr std::string_view kName = "iq2_xxs";
  static constexpr int kGgmlId = 16;
  static constexpr int kFtype = 19;
  static constexpr float kUnit = 0.125f;
  struct Group {
    uint8_t points[4];
    // a 32-bit word, low half first: four times seven signs, then four bits of the scale
    uint16_t rest[2];
    uint32_t word() const { return rest[0] | static_cast<uint32_t>(rest[1]) << 16; }
  };
  struct Block {
    Half scale;
    Group groups[8];
  };
  static void super_scales(const Block& block, float& scale, float&, int8_t* sub_scales, int8_t*) {
    scale = to_float(block.scale);
    for (int g = 0; g < 8; ++g)
      sub_scales[g] = static_cast<int8_t>(2 * (block.groups[g].word() >> 28) + 1);
  }
  static void points(const Block& block, uint16_t* points, uint8_t* signs) {
    for (int i = 0; i < 32; ++i) {
      points[i] = block.groups[i / 4].points[i % 4];
      signs[i] = even_signs(block.groups[i / 4].word() >> (i % 4 * 7));
    }
  }
  static void codes(const Block& block, uint8_t* codes, float* scales, float* offsets) {
    expand_points<IQ2_XXS>(block, codes, scales, offsets);
  }
  static void decode(const Block& block, float* out) { decode_codes<IQ2_XXS>(block, out); }
  static void encode(const float* in, const float* importance, Block& block);
};

struct IQ2_XS : GridCode<kIQ2XSGrid, kIQ2Levels, 8, 16, true> {
  static constexpr QuantType kType = QuantType::kIQ2_XS;
  static constexpr std::string_view kName = "iq2_xs";
  static constexpr int kGgmlId = 17;
  static constexpr int kFtype = 20;
  static constexpr float kUnit = 0.125f;
  struct Block {
    Half scale;
    uint16_t points[32];  // nine bits of the index, then seven signs
    uint8_t scales[8];
  };
  static void super_scales(const Block& block, float& scale, float&, int8_t* sub_scales, int8_t*) {
    scale = to_float(block.scale);
    odd_scales(block.scales, 16, sub_scales);
  }
  static void points(const Block& block, uint16_t* points, uint8_t* signs) {
    for (int i = 0; i < 32; ++i) {
      points[i] = block.points[i] & 511;
      signs[i] = even_signs(block.points[i] >> 9);
    }
  }
  static void codes(const Block& block, uint8_t* codes, float* scales, float* offsets) {
    expand_points<IQ2_XS>(block, codes, scales, offsets);
  }
  static void decode(const Block& block, float* out) { decode_codes<IQ2_XS>(block, out); }
  static void encode(const float* in, const float* importance, Block& block);
};

struct IQ2_S : GridCode<kIQ2SGrid, kIQ2Levels, 8, 16, true> {
  static constexpr QuantType kType = QuantType::kIQ2_S;
  static constexpr std::string_view kName = "iq2_s";
  static constexpr int kGgmlId = 22;
  static constexpr int kFtype = 28;
  static constexpr float kUnit = 0.125f;
  struct Block {
    Half scale;
    uint8_t low[32];  // low bits of the indices
    uint8_t signs[32];
    uint8_t high[8];  // two high bits of each index
    uint8_t scales[8];
  };
  static void super_scales(const Block& block, float& scale, float&, int8_t* sub_scales, int8_t*) {
    scale = to_float(block.scale);
    odd_scales(block.scales, 16, sub_scales);
  }
  static void points(const Block& block, uint16_t* points, uint8_t* signs) {
    for (int i = 0; i < 32; ++i) {
      points[i] = static_cast<uint16_t>(block.low[i] | (block.high[i / 4] >> (i % 4 * 2) & 3) << 8);
    }
    std::memcpy(signs, block.signs, 32);
  }
  static void codes(const Block& block, uint8_t* codes, float* scales, float* offsets) {
    expand_points<IQ2_S>(block, codes, scales, offsets);
  }
  static void decode(const Block& block, float* out) { decode_codes<IQ2_S>(block, out); }
  static void encode(const float* in, const float* importance, Block& block);
};

struct IQ3_XXS : GridCode<kIQ3XXSGrid, kIQ3XXSLevels, 4, 32, true> {
  static constexpr QuantType kType = QuantType::kIQ3_XXS;
  static constexpr std::string_view kName = "iq3_xxs";
  static constexpr int kGgmlId = 18;
  static constexpr int kFtype = 23;
  static constexpr float kUnit = 0.25f;
  struct Block {
    Half scale;
    uint8_t points[64];
    uint16_t rest[8][2];  // per group, as in IQ2_XXS
  };
  static uint32_t word(const Block& block, int group) {
    return block.rest[group][0] | static_cast<uint32_t>(block.rest[group][1]) << 16;
  }
  static void super_scales(const Block& block, float& scale, float&, int8_t* sub_scales, int8_t*) {
    scale = to_float(block.scale);
    for (int g = 0; g < 8; ++g) sub_scales[g] = static_cast<int8_t>(2 * (word(block, g) >> 28) + 1);
  }
  static void points(const Block& block, uint16_t* points, uint8_t* signs) {
    for (int i = 0; i < 64; ++i) points[i] = block.points[i];
    for (int i = 0; i < 32; ++i) signs[i] = even_signs(word(block, i / 4) >> (i % 4 * 7));
  }
  static void codes(const Block& block, uint8_t* codes, float* scales, float* offsets) {
    expand_points<IQ3_XXS>(block, codes, scales, offsets);
  }
  static void decode(const Block& block, float* out) { decode_codes<IQ3_XXS>(block, out); }
  static void encode(const float* in, const float* importance, Block& block);
};

struct IQ3_S : GridCode<kIQ3SGrid, kIQ3SLevels, 4, 32, true> {
  static constexpr QuantType kType = QuantType::kIQ3_S;
  static constexpr std::string_view kName = "iq3_s";
  static constexpr int kGgmlId = 21;
  static constexpr int kFtype = 26;
  struct Block {
    Half scale;
    uint8_t low[64];  // low bits of the indices
    uint8_t high[8];  // one high bit of each index
    uint8_t signs[32];
    uint8_t scales[4];
  };
  static void super_scales(const Block& block, float& scale, float&, int8_t* sub_scales, int8_t*) {
    scale = to_float(block.scale);
    odd_scales(block.scales, 8, sub_scales);
  }
  static void points(const Block& block, uint16_t* points, uint8_t* signs) {
    for (int i = 0; i < 64; ++i) {
      points[i] = static_cast<uint16_t>(block.low[i] | (block.high[i / 8] >> (i % 8) & 1) << 8);
    }
    std::memcpy(signs, block.signs, 32);
  }
  static void codes(const Block& block, uint8_t* codes, float* scales, float* offsets) {
    expand_points<IQ3_S>(block, codes, scales, offsets);
  }
  static void decode(const Block& block, float* out) { decode_codes<IQ3_S>(block, out); }
  static void encode(const float* in, const float* importance, Block& block);
};

static_assert(sizeof(IQ1_S::Block) == 50 && sizeof(IQ1_M::Block) == 56 &&
              sizeof(IQ2_XXS::Block) == 66 && sizeof(IQ2_XS::Block) == 74 &&
              sizeof(IQ2_S::Block) == 82 && sizeof(IQ3_XXS::Block) == 98 &&
              sizeof(IQ3_S::Block) == 110);

}  // namespace penstock::quant
