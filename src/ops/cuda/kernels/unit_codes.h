// A lane's codes of a unit as BF16 levels, with their scales: for products of many rows
// (kernels/wide_product.h). Streamed weights are multiplied as 128 + code instead
// (kernels/weight_stream.h).
#pragma once
#include "ops/cuda/kernels/weight_stream.h"

namespace penstock::cuda {

// A lane's codes of a unit as A fragments of levels, like load_weights(), computed without a table.
// BF16 has 8 bits of precision, so 128 + code (up to 7 bits) has the code in its low bits, and so
// has 2048 + 16 code (4 bits).
template <class C>
struct UnitCodes : LaneCodes<C> {
  // the first level less the excess kOver, as two BF16
  uint32_t less;

  static constexpr float kOver = C::kBits == 8 ? 2048.0f + 128.0f : 128.0f;
  PENSTOCK_DEVICE UnitCodes(const std::byte* unit, int of_lane, uint32_t of_levels)
      : LaneCodes<C>(unit, of_lane), less(of_levels) {}

  PENSTOCK_DEVICE uint32_t pair(int s, int i) const {
    const Words<4>& high = this->high;
    uint32_t codes[4];
    this->fragment(0, s, codes);
    if constexpr (C::kBits == 8) {
      const uint32_t upper = and_or(high.words[s] >> 4 * i, 0x000f000fu, 0x45004500u);
      return add_bf16_pairs(codes[i], add_bf16_pairs(upper, less));
    }
    return add_bf16_pairs(codes[i], less);
  }
};

// A lane's scales of a unit, for rows g and g + 8 (half); see group_scale().
template <class C>
struct UnitScales {
  static constexpr int kScaleWords = 2 * C::kGroups * C::kScaleBytes / 4;  // per lane
  uint32_t scales[2], extra = 0;
  uint32_t factors[2];
  float unit;

  PENSTOCK_DEVICE UnitScales(const std::byte* slot, int g, float of_unit) : unit(of_unit) {
    const std::byte* const at = slot + C::kCodeBytes;
    if constexpr (kScaleWords == 2) {
      const auto two = load<Words<2>>(at, g);
      scales[0] = two.words[0], scales[1] = two.words[1];
    } else {
      scales[0] = load<uint32_t>(at, g);
    }
    if constexpr (C::kOffsets || C::kZeros) extra = load<uint32_t>(at + C::kExtraAt, g);
    if constexpr (!C::kSuper) return;
    for (int half = 0; half < 2; ++half) {
      const std::byte* const of_row = slot + C::kUnitBytes;
      factors[half] =
          C::kOffsets ? load<uint32_t>(of_row, g + 8 * half) : load<uint16_t>(of_row, g + 8 * half);
    }
  }
  PENSTOCK_DEVICE GroupScale at(int half, int group) const {
    GroupScale of = {1.0f, 0.0f, 0.0f};
    const int i = half * C::kGroups + group;
    if constexpr (C::kSuper) {
      of.scale = half_to_float(static_cast<uint16_t>(factors[half])) *
                 float_of_int8(scales[i / 4] >> 8 * (i % 4)) * unit;
      if constexpr (C::kOffsets)
        of.offset = -(half_to_float(static_cast<uint16_t>(factors[half] >> 16)) *
                      float_of_int8(extra >> 8 * (i % 4)));
    } else {
      of.scale = half_to_float(static_cast<uint16_t>(scales[i / 2] >> 16 * (i % 2)));
      if constexpr (C::kZeros)
        of.zero =
            static_cast<float>(static_cast<int16_t>(static_cast<uint16_t>(extra >> 16 * (i % 2))));
    }
    return of;
  }
};

}  // namespace penstock::cuda
