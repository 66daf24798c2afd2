// Layout of the codes of 16 rows of a quantized matrix in a panel.
//
// A panel is a sequence of units of kUnitK columns. A unit holds, for every 32 columns (a step),
// the bit planes of the codes, then the scales of its groups for 16 rows. In a step, dword vector j
// (0..7) is 16 rows x 4 columns: byte 4r + i is row r, column 4j + i. Planes, in this order, each
// line of 64 bytes holding the bits of several vectors:
//   8 bits: vector j is line j.
//   4 bits: line l holds vector 2l in the low halves and 2l + 1 in the high halves (codes of 4, 5
//           and 6 bits).
//   2 bits: line l holds vector 4l + s in bits 2s, 2s + 1 (codes of 2 and 3 bits; the upper bits
//           of 6).
//   1 bit:  the one line holds vector s in bit s. (codes of 1 bit; the upper bit of 3 and 5; signs)
// Weights of a grid keep the file's indices, whose points kernels look up: a step has one line for
// every four points of a row (byte 4r + c of line l is the lower 8 bits of the index of row r's
// point 4l + c), then a line of signs if every weight has one. After the steps are the upper bits
// of the indices, [32 bits][16 rows][4 bytes]: each row's are a sequence in the order of columns,
// lowest bits first.
// Scales: with super-scales, int8 sub-scales [group][16] (and sub-mins), then FP16 scales [16] (and
// mins); otherwise FP16 scales [group][16] (and offsets, or int8 zeros), F8 scales [group][16], or
// nothing if the row's factor is the only scale. 2-bit codes with mins pack sub-scale and sub-min
// as nibbles of a byte. Odd sub-scales: n means 2n + 1, [two groups][16], with the even group in
// the low nibble.
#pragma once
#include <bit>

#include "kernels/panel_codes.h"

namespace penstock {

template <class Q>
struct PanelLayout {
  static constexpr bool kGrid = quant::GridCoded<Q>;
  static constexpr int kIndexLines = [] {  // per step, with a grid
    if constexpr (kGrid) {
      return 8 / Q::kColumns;
    } else {
      return 0;
    }
  }();
  static constexpr int kHighBits = [] {  // bits of an index beyond the lower 8
    if constexpr (kGrid) {
      return Q::kIndexBits - 8;
    } else {
      return 0;
    }
  }();
  static constexpr bool kSigns = [] {
    if constexpr (kGrid) {
      return Q::kHasSigns;
    } else {
      return false;
    }
  }();
  static constexpr int kStepBytes = 64 * (kGrid ? kIndexLines + kSigns : Q::kBits);
  static constexpr bool kWholeRow = Q::kGroupSize == panel::kWholeRow;
  static constexpr bool kZeros = panel::IntegerZeros<Q>;
  static constexpr int kUnitK = Q::kHasSuperScales || Q::kGroupSize > 32 || kZeros ? 256 : 64;
  static constexpr int kSteps = kUnitK / 32;
  static constexpr int kGroups = kWholeRow ? 0 : kUnitK / (kWholeRow ? 1 : Q::kGroupSize);
  static constexpr bool kPackedMins = Q::kHasSuperScales && Q::kHasOffset && Q::kBits == 2;
  static constexpr bool kSeparateMins = Q::kHasOffset && !kPackedMins;
  static constexpr int kScaleBytes = kGroups * (kGrid                                      ? 8
                                                : Q::kHasSuperScales || panel::F8Scales<Q> ? 16
                                                                                           : 32);
  static constexpr int kOffsetBytes = !kSeparateMins ? 0 : kZeros ? kGroups * 16 : kScaleBytes;
  // Byte offsets in a unit.
  static constexpr int kHigh = kSteps * kStepBytes;                     // upper bits of indices
  static constexpr int kScales = kHigh + kIndexLines * kHighBits * 64;  // sub-scales or scales
  static constexpr int kOffsets = kScales + kScaleBytes;  // sub-mins, offsets or zeros, if separate
  static constexpr int kSuper = kOffsets + kOffsetBytes;  // FP16 scale, then min, of a unit
  static constexpr int kEnd = kSuper + (Q::kHasSuperScales ? (Q::kHasOffset ? 64 : 32) : 0);
  static constexpr int kUnitBytes = (kEnd + 63) / 64 * 64;
  // kBias: the difference between the unsigned number that a kernel multiplies and its level.
  // kMaxCode: the largest such number.
  static constexpr int kMaxLevel = [] {
    if constexpr (panel::OwnLevels<Q>) {
      return 127;
    } else if constexpr (Q::kIsCodebook) {
      int most = 0;
      for (const int level : Q::kCodebook)
        most = level > most ? level : -level > most ? -level : most;
      return most;
    } else {
      return Q::level((1 << Q::kBits) - 1);
    }
  }();
  static constexpr int kBias = [] {
    if constexpr (Q::kIsCodebook) {
      return static_cast<int>(std::bit_ceil(static_cast<unsigned>(kMaxLevel + 1)));
    } else {
      return Q::kBias;
    }
  }();
  static constexpr int kMaxCode = kBias + kMaxLevel;
  // Returns the group of column `k` of a unit.
  static constexpr int group_of(int k) {
    return kWholeRow ? 0 : k / (kWholeRow ? 1 : Q::kGroupSize);
  }
};

}  // namespace penstock
