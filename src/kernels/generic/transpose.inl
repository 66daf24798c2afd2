// Transposes square blocks of registers, with the compiler's vector extensions.
#pragma once
#include <cstddef>
#include <utility>

namespace penstock {
namespace {

// A register of N lanes.
template <class T, int N>
struct Register {
  typedef T Lanes __attribute__((vector_size(N * sizeof(T))));
  Lanes lanes;
};

template <class R>
[[gnu::always_inline]] inline void load_register(const std::byte* from, R& to) {
  __builtin_memcpy(&to, from, sizeof(R));
}

// low, high = groups of G lanes of a and b, interleaved.
template <int G, class T, int N, int... I>
[[gnu::always_inline]] inline void interleave(const Register<T, N>& a, const Register<T, N>& b,
                                              Register<T, N>& low, Register<T, N>& high,
                                              std::integer_sequence<int, I...>) {
  low.lanes = __builtin_shufflevector(a.lanes, b.lanes, (I / G / 2 * G + I % G + I / G % 2 * N)...);
  high.lanes =
      __builtin_shufflevector(a.lanes, b.lanes, (N / 2 + I / G / 2 * G + I % G + I / G % 2 * N)...);
}

// Transposes a square of N / G rows of N / G groups of G lanes.
template <int G, class T, int N>
[[gnu::always_inline]] inline void transpose(Register<T, N> (&rows)[N / G]) {
  constexpr int kRows = N / G;
  Register<T, N> next[kRows];
  for (int stage = 1; stage < kRows; stage *= 2) {
    for (int i = 0; i < kRows / 2; ++i) {
      interleave<G>(rows[i], rows[i + kRows / 2], next[2 * i], next[2 * i + 1],
                    std::make_integer_sequence<int, N>());
    }
    for (int i = 0; i < kRows; ++i) rows[i] = next[i];
  }
}

}  // namespace
}  // namespace penstock
