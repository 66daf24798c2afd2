// What of a weight's form is known when a kernel is compiled, of those that come through shared memory (kernels/weight_stream.h).
#pragma once
#include "ops/cuda/kernels/weight.h"

namespace penstock::cuda {

inline constexpr int kStreamWarps = 8, kRingBytes = 8960;  // of a block; of a warp

// 16 bits: BF16.
template <int kOfBits, int kOfGroup, ScaleForm kOfScales, bool kHasOffsets, bool kHasZeros>
struct Coding {
  static constexpr int kBits = kOfBits, kGroup = kOfGroup, kGroups = 64 / kOfGroup;
  static constexpr bool kCodes = kBits < 16, kSuper = kOfScales == ScaleForm::kSuper;
  static constexpr bool kOffsets = kHasOffsets, kZeros = kHasZeros;
  static constexpr int kCodeBytes = kBits * 128, kScaleBytes = kSuper ? 1 : 2, kExtraBytes = kSuper ? 1 : 2;
  static constexpr int kExtraAt = 16 * kGroups * kScaleBytes;  // behind the codes
  static constexpr int kUnitBytes =
      kCodes ? kCodeBytes + kExtraAt + (kOffsets || kZeros ? 16 * kGroups * kExtraBytes : 0) : 2048;
  static constexpr int kFactorBytes = kSuper ? 16 * (kOffsets ? 4 : 2) : 0;
  // A warp takes so many units at once.
  static constexpr int kUnits = kSuper ? 4 : 2, kItemCols = 64 * kUnits;
  static constexpr int kItemBytes = kUnits * kUnitBytes + kFactorBytes;
  // Planes whose codes are multiplied each for themselves: of 8 bits two.
  static constexpr int kPlanes = kBits == 8 ? 2 : 1;
  // An item's inputs in shared memory: pairs, their sums times what every code is more than its level, sums for the offsets.
  template <int kTokens>
  static constexpr int kPairBytes = kUnits * 256 * kTokens;
  template <int kTokens>
  static constexpr int kSumBytes = kCodes ? kUnits * 64 * kTokens : 0;  // of a plane
  template <int kTokens>
  static constexpr int kInputBytes =
      kPairBytes<kTokens> + kPlanes * kSumBytes<kTokens> + (kOffsets ? 64 * kTokens : 0);
};
using OfBF16 = Coding<16, 64, ScaleForm::kHalf, false, false>;

// fn.operator()<Coding>() for what stream_coding() says.
template <class Fn>
PENSTOCK_DEVICE void with_coding(StreamCoding coding, Fn fn) {
  using enum ScaleForm;
  if (coding == StreamCoding::kBF16) fn.template operator()<OfBF16>();
  if (coding == StreamCoding::kHalf8) fn.template operator()<Coding<8, 32, kHalf, false, false>>();
  if (coding == StreamCoding::kHalf4) fn.template operator()<Coding<4, 32, kHalf, false, false>>();
  if (coding == StreamCoding::kWide4) fn.template operator()<Coding<4, 64, kHalf, false, false>>();
  if (coding == StreamCoding::kWide4Zeros) fn.template operator()<Coding<4, 64, kHalf, false, true>>();
  if (coding == StreamCoding::kSuper4) fn.template operator()<Coding<4, 32, kSuper, true, false>>();
  if (coding == StreamCoding::kSuper5) fn.template operator()<Coding<5, 32, kSuper, true, false>>();
  if (coding == StreamCoding::kSuper6) fn.template operator()<Coding<6, 16, kSuper, false, false>>();
}

}  // namespace penstock::cuda
