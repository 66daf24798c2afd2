// Transposes a unit's keys to the layout of values without changing their bits, for layers whose
// values are the first features of their keys (see attention_kernels.h for both layouts). Included
// after an instruction set's simd.h.
//
// An element of E bytes is a block of tokens and features, in different order in keys and values.
// Keys are a matrix [features][tokens] of such elements, and values are its transpose.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/attention_kernels.h"
#include "kernels/generic/transpose.inl"

namespace penstock {
namespace {

constexpr int value_bytes(KvFormat format) {
  return format == KvFormat::kF32 ? 4 : format == KvFormat::kI8 ? 1 : 2;
}

// Transposes each block of Side x Side values of an element.
template <int Side, class T, int N, int... I>
[[gnu::always_inline]] inline void turn_blocks(Register<T, N>& x,
                                               std::integer_sequence<int, I...>) {
  constexpr int kBlock = Side * Side;
  x.lanes = __builtin_shufflevector(x.lanes, x.lanes,
                                    (I / kBlock * kBlock + I % Side * Side + I % kBlock / Side)...);
}

template <KvFormat K>
[[gnu::always_inline]] inline void turn_within(std::byte* bytes) {
  constexpr int kBytes = Simd::kRegisterBytes;
  if constexpr (K == KvFormat::kBF16) {
    Register<uint16_t, kBytes / 2> x;
    load_register(bytes, x);
    turn_blocks<2>(x, std::make_integer_sequence<int, kBytes / 2>());
    __builtin_memcpy(bytes, &x, kBytes);
  } else if constexpr (K == KvFormat::kI8) {
    Register<uint8_t, kBytes> x;
    load_register(bytes, x);
    turn_blocks<4>(x, std::make_integer_sequence<int, kBytes>());
    __builtin_memcpy(bytes, &x, kBytes);
  }
}

// Type of a lane, lanes per element, and features (or tokens) per element.
template <KvFormat K>
struct TurnedElement;
template <>
struct TurnedElement<KvFormat::kF32> {
  using Lane = uint32_t;
  static constexpr int kLanes = 1, kSide = 1;
};
template <>
struct TurnedElement<KvFormat::kF16> {
  using Lane = uint16_t;
  static constexpr int kLanes = 1, kSide = 1;
};
template <>
struct TurnedElement<KvFormat::kBF16> {
  using Lane = uint64_t;
  static constexpr int kLanes = 1, kSide = 2;
};
template <>
struct TurnedElement<KvFormat::kI8> {
  using Lane = uint64_t;
  static constexpr int kLanes = 2, kSide = 4;
};

// Transposes the first n_features (a multiple of 16) of a unit's keys to the layout of values.
template <KvFormat K>
void turn_unit(const std::byte* keys, int n_features, std::byte* values) {
  using E = TurnedElement<K>;
  using Lane = typename E::Lane;
  constexpr int kElementBytes = E::kLanes * int{sizeof(Lane)};
  constexpr int kTokens = kUnitTokens / E::kSide;  // elements per row of keys
  constexpr int kMost = Simd::kRegisterBytes / kElementBytes,
                kRows = kMost < kTokens ? kMost : kTokens;
  constexpr int kBytes = kRows * kElementBytes;
  const int features = n_features / E::kSide;  // elements per row of values
  for (int f = 0; f < features; f += kRows) {
    for (int t = 0; t < kTokens; t += kRows) {
      Register<Lane, kRows * E::kLanes> rows[kRows];
      for (int i = 0; i < kRows; ++i) {
        load_register(keys + (int64_t{f + i} * kTokens + t) * kElementBytes, rows[i]);
        turn_within<K>(reinterpret_cast<std::byte*>(&rows[i]));
      }
      transpose<E::kLanes>(rows);
      for (int i = 0; i < kRows; ++i)
        __builtin_memcpy(values + (int64_t{t + i} * features + f) * kElementBytes, &rows[i],
                         kBytes);
    }
  }
}

}  // namespace
}  // namespace penstock
