// Compile-time properties of weights that are streamed through shared memory
// (kernels/weight_stream.h).
#pragma once
#include "ops/cuda/kernels/weight.h"

namespace penstock::cuda {

inline constexpr int kStreamWarps = 8, kRingBytes = 8960;  // per block; per warp

// kOfBits = 16: BF16. kHasE2M1: codes are bits of numbers, not consecutive levels.
template <int kOfBits, int kOfGroup, ScaleForm kOfScales, bool kHasOffsets, bool kHasZeros,
          bool kHasE2M1 = false>
struct Coding {
  static constexpr int kBits = kOfBits, kGroup = kOfGroup, kGroups = 64 / kOfGroup;
  static constexpr bool kCodes = kBits < 16, kSuper = kOfScales == ScaleForm::kSuper;
  static constexpr bool kOffsets = kHasOffsets, kZeros = kHasZeros, kE2M1 = kHasE2M1;
  static constexpr bool kSums = kCodes && !kE2M1;  // inputs are summed for the excess of codes
  static constexpr int kCodeBytes = kBits * 128, kExtraBytes = kSuper ? 1 : 2,
                       kScaleBytes = kSuper                           ? 1
                                     : kOfScales == ScaleForm::kFloat ? 4
                                                                      : 2;
  static constexpr int kExtraAt = 16 * kGroups * kScaleBytes;  // after the codes
  static constexpr int kUnitBytes =
      kCodes ? kCodeBytes + kExtraAt + (kOffsets || kZeros ? 16 * kGroups * kExtraBytes : 0) : 2048;
  static constexpr int kFactorBytes = kSuper ? 16 * (kOffsets ? 4 : 2) : 0;
  // Units that a warp takes at once.
  static constexpr int kUnits = kSuper ? 4 : 2, kItemCols = 64 * kUnits;
  static constexpr int kItemBytes = kUnits * kUnitBytes + kFactorBytes;
  // Planes whose codes are multiplied separately: two for 8 bits.
  static constexpr int kPlanes = kBits == 8 ? 2 : 1;
  // An item's inputs in shared memory: pairs; their sums, times the difference of levels and codes;
  // sums for the offsets.
  template <int kTokens>
  static constexpr int kPairBytes = kUnits * 256 * kTokens;
  template <int kTokens>
  static constexpr int kSumBytes = kSums ? kUnits * 64 * kTokens : 0;  // per plane
  template <int kTokens>
  static constexpr int kInputBytes =
      kPairBytes<kTokens> + kPlanes * kSumBytes<kTokens> + (kOffsets ? 64 * kTokens : 0);
};
using OfBF16 = Coding<16, 64, ScaleForm::kHalf, false, false>;

template <StreamCoding Of>
struct CodingOf {
  using enum ScaleForm;
  using enum StreamCoding;
  static constexpr auto choose() {
    if constexpr (Of == kBF16) return OfBF16();
    if constexpr (Of == kHalf8) return Coding<8, 32, kHalf, false, false>();
    if constexpr (Of == kHalf4) return Coding<4, 32, kHalf, false, false>();
    if constexpr (Of == kWide4) return Coding<4, 64, kHalf, false, false>();
    if constexpr (Of == kWide4Zeros) return Coding<4, 64, kHalf, false, true>();
    if constexpr (Of == kSuper4) return Coding<4, 32, kSuper, true, false>();
    if constexpr (Of == kSuper5) return Coding<5, 32, kSuper, true, false>();
    if constexpr (Of == kSuper6) return Coding<6, 16, kSuper, false, false>();
    if constexpr (Of == kE2M1) return Coding<4, 32, kFloat, false, false, true>();
  }
  using Type = decltype(choose());
};

}  // namespace penstock::cuda
