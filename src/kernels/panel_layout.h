// How the codes of 16 rows of a quantized matrix lie in a panel.
//
// A panel is a sequence of units of kUnitK columns. A unit holds, for every 32 columns (a step), the bit
// planes of the codes, then the scales of its groups for 16 rows. In a step, dword vector j (0..7) is 16 rows
// x 4 columns: byte 4r + i is row r, column 4j + i. Planes, in this order, each line of 64 bytes holding the
// bits of several vectors:
//   8 bits: vector j is line j.
//   4 bits: line l holds vector 2l in the low halves and 2l + 1 in the high halves. (codes of 4, 5 and 6
//   bits) 2 bits: line l holds vector 4l + s in bits 2s, 2s + 1. (codes of 2 and 3 bits; the upper bits of 6)
//   1 bit:  the one line holds vector s in bit s. (the upper bit of 3 and 5)
// Scales: with super-scales, int8 sub-scales [group][16] (and sub-mins), then FP16 scales [16] (and mins);
// otherwise FP16 scales [group][16] (and offsets, or int8 zeros), or nothing where the row's factor is the
// only scale. 2-bit codes with mins pack sub-scale and sub-min as two halves of a byte.
#pragma once
#include "kernels/panel_codes.h"

namespace penstock {

template <class Q>
struct PanelLayout {
  static constexpr int kStepBytes = 64 * Q::kBits;
  static constexpr bool kWholeRow = Q::kGroupSize == panel::kWholeRow;
  static constexpr bool kZeros = panel::IntegerZeros<Q>;
  static constexpr int kUnitK = Q::kHasSuperScales || Q::kGroupSize > 32 || kZeros ? 256 : 64;
  static constexpr int kSteps = kUnitK / 32;
  static constexpr int kGroups = kWholeRow ? 0 : kUnitK / (kWholeRow ? 1 : Q::kGroupSize);
  static constexpr bool kPackedMins = Q::kHasSuperScales && Q::kHasOffset && Q::kBits == 2;
  static constexpr bool kSeparateMins = Q::kHasOffset && !kPackedMins;
  static constexpr int kScaleBytes = kGroups * (Q::kHasSuperScales ? 16 : 32);
  static constexpr int kOffsetBytes = !kSeparateMins ? 0 : kZeros ? kGroups * 16 : kScaleBytes;
  // Byte offsets in a unit.
  static constexpr int kScales = kSteps * kStepBytes;     // sub-scales or scales
  static constexpr int kOffsets = kScales + kScaleBytes;  // sub-mins, offsets or zeros, if separate
  static constexpr int kSuper = kOffsets + kOffsetBytes;  // FP16 scale, then min, of a unit
  static constexpr int kEnd = kSuper + (Q::kHasSuperScales ? (Q::kHasOffset ? 64 : 32) : 0);
  static constexpr int kUnitBytes = (kEnd + 63) / 64 * 64;
  // What the unsigned number that a kernel multiplies is above the level it stands for.
  static constexpr int kBias = [] {
    if constexpr (Q::kIsCodebook)
      return 128;
    else
      return Q::kBias;
  }();
  static constexpr int kMaxCode = Q::kIsCodebook ? 255 : (1 << Q::kBits) - 1;
  // The group that column `k` of a unit belongs to.
  static constexpr int group_of(int k) { return kWholeRow ? 0 : k / (kWholeRow ? 1 : Q::kGroupSize); }
};

}  // namespace penstock
