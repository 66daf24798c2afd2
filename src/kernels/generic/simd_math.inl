// Elementary functions over Simd (16 float lanes). Included after an instruction set's simd.h.
#pragma once

namespace penstock {
namespace {

using F = Simd::F;

// Polynomial c[0] + c[1] x + ... by Horner's rule.
template <int N>
inline F polynomial(const float (&c)[N], F x) {
  F r = Simd::set1(c[N - 1]);
  for (int i = N - 2; i >= 0; --i) r = Simd::fma(r, x, Simd::set1(c[i]));
  return r;
}

// e^x, relative error below 2e-7; exactly 1 at 0, 0 below -103, infinity above 88.73.
inline F exp(F x) {
  constexpr float kC[] = {1.000000011e+00f, 5.000000050e-01f, 1.666649867e-01f,
                          4.166634010e-02f, 8.369872347e-03f, 1.394216243e-03f};
  x = Simd::min(Simd::set1(89.0f), Simd::max(Simd::set1(-104.0f), x));  // NaN stays NaN
  const F n = Simd::round(Simd::mul(x, Simd::set1(1.44269504f)));
  // x - n ln 2 in two parts: the first product is exact.
  F r = Simd::fma(n, Simd::set1(-0.693359375f), x);
  r = Simd::fma(n, Simd::set1(2.12194440e-4f), r);
  return Simd::times_pow2(Simd::fma(polynomial(kC, r), r, Simd::set1(1.0f)), n);
}

inline F sigmoid(F x) {
  return Simd::div(Simd::set1(1.0f), Simd::add(Simd::set1(1.0f), exp(Simd::sub(Simd::zero(), x))));
}

// log(1 + exp(x)), as max(x, 0) + 2 atanh(y / (2 + y)) of y = exp(-|x|), by the series of atanh up
// to 1 / 3. Relative error below 5e-7.
inline F softplus(F x) {
  constexpr float kC[] = {1.0f / 3, 1.0f / 5, 1.0f / 7, 1.0f / 9, 1.0f / 11, 1.0f / 13};
  const F y = exp(Simd::min(x, Simd::sub(Simd::zero(), x)));
  const F z = Simd::div(y, Simd::add(y, Simd::set1(2.0f))), square = Simd::mul(z, z);
  F series = Simd::set1(kC[5]);
  for (int i = 4; i >= 0; --i) series = Simd::fma(series, square, Simd::set1(kC[i]));
  series = Simd::fma(series, square, Simd::set1(1.0f));
  return Simd::fma(Simd::add(z, z), series, Simd::max(Simd::zero(), x));
}

// tanh(x), relative error below 5e-7.
inline F tanh(F x) {
  constexpr float kC[] = {-3.333332748e-01f, 1.333265993e-01f, -5.383534471e-02f, 2.092599024e-02f,
                          -5.995910066e-03f};
  const F one = Simd::set1(1.0f), square = Simd::mul(x, x);
  const F small = Simd::fma(Simd::mul(polynomial(kC, square), square), x, x);
  // 1 - 2 / (e^2x + 1), which has the right limits at both infinities.
  const F e = exp(Simd::add(x, x));
  const F large = Simd::sub(one, Simd::div(Simd::set1(2.0f), Simd::add(e, one)));
  return Simd::select_less(square, Simd::set1(0.4f), small, large);
}

// The error function, absolute error below 3e-7 (Abramowitz and Stegun 7.1.26).
inline F erf(F x) {
  constexpr float kC[] = {0.254829592f, -0.284496736f, 1.421413741f, -1.453152027f, 1.061405429f};
  const F one = Simd::set1(1.0f), minus = Simd::sub(Simd::zero(), x), a = Simd::max(x, minus);
  const F t = Simd::div(one, Simd::fma(Simd::set1(0.3275911f), a, one));
  const F tail = Simd::mul(Simd::mul(polynomial(kC, t), t), exp(Simd::mul(x, minus)));
  const F positive = Simd::sub(one, tail);
  return Simd::select_less(x, Simd::zero(), Simd::sub(Simd::zero(), positive), positive);
}

}  // namespace
}  // namespace penstock
