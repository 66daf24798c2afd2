// The interface of an encoding's struct, and decoding shared by all encodings of small integer
// codes.
//
// An encoding is a struct with
//   kType, kName, kGgmlId (or -1), kBlockSize (elements), struct Block (exactly as in files,
//   little-endian), kFtype if llama.cpp has a number for files whose matrices all have it
//   (general.file_type), decode(const Block&, float out[kBlockSize]) and, if there is an encoder,
//   encode(const float in[kBlockSize], const float* importance, Block&)
//   (importance: kBlockSize weights or null).
//
// Encodings of integer codes also derive from LinearCode, CodebookCode or GridCode and have
//   codes(const Block&, uint8_t codes[kBlockSize], float scales[kGroups], float offsets[kGroups]):
//   value[i] = scales[i / kGroupSize] * level(codes[i]) + offsets[i / kGroupSize]
// with codes of kBits bits (TQ1_0 and TQ2_0: 0, 1, 2) and offsets untouched unless kHasOffset.
// Encodings whose group scales are small integers (kHasSuperScales) also have
//   super_scales(const Block&, float& scale, float& min, int8_t sub_scales[kGroups], int8_t
//   sub_mins[kGroups]): scales[g] = scale * sub_scales[g] * kUnit, offsets[g] = -(min *
//   sub_mins[g]); min and sub_mins untouched unless kHasOffset.
// Grid encodings also have
//   points(const Block&, uint16_t points[kBlockSize / kColumns], uint8_t signs[kBlockSize / 8]).
// Packers need nothing else to change the layout of weights.
#pragma once
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/half.h"
#include "quant/quant_type.h"

namespace penstock::quant {

static_assert(std::endian::native == std::endian::little, "blocks are mapped, not converted");

// Linear codes: level = step * code - bias.
template <int Bits, int Bias, int Group, bool Offset, int Step = 1>
struct LinearCode {
  static constexpr int kBits = Bits;
  static constexpr int kBias = Bias;
  static constexpr int kStep = Step;
  static constexpr int kGroupSize = Group;
  static constexpr bool kHasOffset = Offset;
  static constexpr bool kIsCodebook = false;
  static constexpr bool kHasSuperScales = false;
  static constexpr int level(int code) { return Step * code - Bias; }
};

// Codes that index a table of 16 levels.
template <const std::array<int8_t, 16>& Table, int Group>
struct CodebookCode {
  static constexpr int kBits = 4;
  static constexpr int kGroupSize = Group;
  static constexpr bool kHasOffset = false;
  static constexpr bool kIsCodebook = true;
  static constexpr bool kHasSuperScales = false;
  static constexpr const std::array<int8_t, 16>& kCodebook = Table;
  static constexpr int level(int code) { return Table[static_cast<size_t>(code)]; }
};

// The points of a grid in two representations; see grids.h.
template <int Size>
struct Grid {
  static constexpr int kSize = Size;
  uint32_t points[Size];
  uint8_t halves[2][Size];
};

// Grid codes: kColumns adjacent weights share an index of kIndexBits bits into a grid (grids.h),
// each point of which is kColumns codes. With Signs, every weight has its own sign, bit kSignBit of
// its code. Codes index a table of 16 levels. Scales of groups are odd: 1, 3, ..., 31.
template <const auto& Points, const std::array<int8_t, 16>& Table, int Columns, int Group,
          bool Signs>
struct GridCode : CodebookCode<Table, Group> {
  static constexpr int kColumns = Columns;
  static constexpr const Grid<Points.kSize>& kGrid = Points;
  static constexpr int kIndexBits = std::countr_zero(static_cast<unsigned>(Points.kSize));
  static constexpr bool kHasSigns = Signs;
  static constexpr int kSignBit = Columns == 8 ? 2 : 3;
  static constexpr bool kHasSuperScales = true;
  static constexpr int kBlockSize = 256;
};

template <class Q>
concept GridCoded = requires { Q::kGrid; };
template <class Q>
concept IntegerCoded = requires(const typename Q::Block& block, uint8_t* codes, float* floats) {
  { Q::level(0) } -> std::same_as<int>;
  Q::codes(block, codes, floats, floats);
};
template <class Q>
concept Encodable =
    requires(const float* in, typename Q::Block& block) { Q::encode(in, in, block); };

template <class Q>
inline constexpr int kGroups = Q::kBlockSize / Q::kGroupSize;

template <IntegerCoded Q>
void decode_codes(const typename Q::Block& block, float* out) {
  uint8_t codes[Q::kBlockSize];
  float scales[kGroups<Q>];
  float offsets[kGroups<Q>] = {};
  Q::codes(block, codes, scales, offsets);
  for (int i = 0; i < Q::kBlockSize; ++i) {
    const int group = i / Q::kGroupSize;
    out[i] = scales[group] * static_cast<float>(Q::level(codes[i]));
    if constexpr (Q::kHasOffset) out[i] += offsets[group];
  }
}

// Constant factor of values beside scale and level: a power of two, unless scales include
// it.
template <class Q>
inline constexpr float kUnit = [] {
  if constexpr (requires { Q::kUnit; }) {
    return Q::kUnit;
  } else {
    return 1.0f;
  }
}();

// Computes the group scales and offsets of a block with integer sub-scales.
template <class Q>
void expand_super_scales(const typename Q::Block& block, float* scales, float* offsets) {
  float scale = 0;
  float min = 0;
  int8_t sub_scales[kGroups<Q>];
  int8_t sub_mins[kGroups<Q>] = {};
  Q::super_scales(block, scale, min, sub_scales, sub_mins);
  for (int group = 0; group < kGroups<Q>; ++group) {
    scales[group] = scale * static_cast<float>(sub_scales[group]) * kUnit<Q>;
    if constexpr (Q::kHasOffset) offsets[group] = -(min * static_cast<float>(sub_mins[group]));
  }
}

// 16 bytes hold 32 codes: element j in the low nibble of byte j, element j + 16 in the high one.
inline void unpack_nibbles_32(const uint8_t* in, uint8_t* codes) {
  for (int j = 0; j < 16; ++j) {
    codes[j] = in[j] & 0x0f;
    codes[j + 16] = in[j] >> 4;
  }
}

}  // namespace penstock::quant
