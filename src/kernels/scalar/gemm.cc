// Portable matrix products: the specification of the others, and what machines without a table of their own
// run.
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "kernels/gemm_kernels.h"
#include "kernels/gemm_tables.h"
#include "kernels/panel_layout.h"

namespace penstock {
namespace {

struct Scalar {
  static constexpr int kLanes = 16;
  static constexpr int kMaxRows = 4;
  static constexpr int kStreams = 1;
  struct Bytes {
    uint8_t v[64];
  };
  struct Ints {
    int32_t v[16];
  };
  struct Floats {
    float v[16];
  };

  template <class F>
  [[gnu::always_inline]] static Bytes bytes(F f) {
    Bytes r;
    for (int i = 0; i < 64; ++i) r.v[i] = static_cast<uint8_t>(f(i));
    return r;
  }
  template <class F>
  [[gnu::always_inline]] static Floats floats(F f) {
    Floats r;
    for (int i = 0; i < 16; ++i) r.v[i] = f(i);
    return r;
  }
  template <class T>
  [[gnu::always_inline]] static T read(const uint8_t* p, int i) {
    T value;
    std::memcpy(&value, p + sizeof(T) * i, sizeof(T));
    return value;
  }

  static Bytes load(const uint8_t* p) {
    return bytes([&](int i) { return p[i]; });
  }
  static Bytes load_table(const uint8_t* p) {
    return bytes([&](int i) { return p[i % 16]; });
  }
  static Bytes splat_byte(int b) {
    return bytes([&](int) { return b; });
  }
  static Bytes bit_and(const Bytes& a, const Bytes& b) {
    return bytes([&](int i) { return a.v[i] & b.v[i]; });
  }
  static Bytes or_and(const Bytes& a, const Bytes& b, const Bytes& mask) {
    return bytes([&](int i) { return a.v[i] | (b.v[i] & mask.v[i]); });
  }
  // The callers mask what a 16-bit shift would carry from one byte to the next.
  template <int N>
  static Bytes shift_left(const Bytes& a) {
    return bytes([&](int i) { return a.v[i] << N; });
  }
  template <int N>
  static Bytes shift_right(const Bytes& a) {
    return bytes([&](int i) { return a.v[i] >> N; });
  }
  static Bytes lookup(const Bytes& codes, const Bytes& table) {
    return bytes([&](int i) { return table.v[codes.v[i]]; });
  }

  template <int Bias, int MaxCode, int N>
  static Ints dot(const Bytes* w, const int8_t* x, int32_t negative_sum) {
    Ints r;
    for (int row = 0; row < 16; ++row) {
      int32_t sum = Bias * negative_sum;
      for (int j = 0; j < N; ++j) {
        for (int i = 0; i < 4; ++i) sum += w[j].v[4 * row + i] * x[4 * j + i];
      }
      r.v[row] = sum;
    }
    return r;
  }

  static Floats zero() {
    return floats([](int) { return 0.0f; });
  }
  static Floats splat(float x) {
    return floats([&](int) { return x; });
  }
  static Floats negate(const Floats& a) {
    return floats([&](int i) { return -a.v[i]; });
  }
  static Floats mul(const Floats& a, const Floats& b) {
    return floats([&](int i) { return a.v[i] * b.v[i]; });
  }
  static Floats add(const Floats& a, const Floats& b) {
    return floats([&](int i) { return a.v[i] + b.v[i]; });
  }
  static Floats fma(const Floats& a, const Floats& b, const Floats& c) {
    return floats([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
  }
  static Floats to_float(const Ints& a) {
    return floats([&](int i) { return static_cast<float>(a.v[i]); });
  }
  static Floats load_half(const uint8_t* p) {
    return floats([&](int i) { return penstock::to_float(Half{read<uint16_t>(p, i)}); });
  }
  static Floats load_i8(const uint8_t* p) {
    return floats([&](int i) { return static_cast<float>(static_cast<int8_t>(p[i])); });
  }
  static Floats load_low_nibbles(const uint8_t* p) {
    return floats([&](int i) { return static_cast<float>(p[i] & 15); });
  }
  static Floats load_high_nibbles(const uint8_t* p) {
    return floats([&](int i) { return static_cast<float>(p[i] >> 4); });
  }
  static Floats load_aligned(const uint8_t* p) {
    return floats([&](int i) { return read<float>(p, i); });
  }
  static void load_bf16_pairs(const uint8_t* p, Floats& even, Floats& odd) {
    even = floats([&](int i) { return penstock::to_float(BFloat16{read<uint16_t>(p, 2 * i)}); });
    odd = floats([&](int i) { return penstock::to_float(BFloat16{read<uint16_t>(p, 2 * i + 1)}); });
  }
  static Floats load_f32(const float* p, int n_valid) {
    return floats([&](int i) { return i < n_valid ? p[i] : 0.0f; });
  }
  static void store(float* p, const Floats& a, int n_valid) {
    for (int i = 0; i < 16 && i < n_valid; ++i) p[i] = a.v[i];
  }
  static Floats abs_max(const Floats& a, const Floats& b) {
    return floats([&](int i) { return std::fabs(b.v[i]) > a.v[i] ? std::fabs(b.v[i]) : a.v[i]; });
  }
  static float max_of(const Floats& a) {
    float m = a.v[0];
    for (float x : a.v) m = x > m ? x : m;
    return m;
  }
  static void store_rounded(int8_t* p, const Floats& a) {
    for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(std::nearbyintf(a.v[i]));
  }
};

#include "kernels/generic/float_gemm.inl"

#include "kernels/generic/int8_gemm.inl"

#include "kernels/generic/gemm_table.inl"

}  // namespace

constinit const GemmKernels kScalarGemmKernels =
    make_gemm_kernels<Scalar>("scalar", static_cast<quant::All*>(nullptr));

}  // namespace penstock
