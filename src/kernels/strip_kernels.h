// Products of dense matrices in strips, for work on whole matrices other than inference (Hessians,
// factorizations, quantizers' searches). A strip has 128 bytes of neighbouring columns of all rows,
// row after row; strips follow one another.
#pragma once
#include <cstdint>

namespace penstock {

inline constexpr int kStripFloats = 32, kStripDoubles = 16;
inline constexpr int kStripRows = 8;  // columns of `a` that one call multiplies

struct StripKernels {
  // c[i][j] += sum over k < n of a[k][i] * b[k][j], i < 8, j < 32. Rows of a, b and c are one strip
  // apart; `a` may begin inside a strip. n >= 0; c overlaps neither of the others.
  void (*add_f32)(int64_t n, const float* a, const float* b, float* c);
  // c[i][j] -= sum over k < n of a[k][i] * b[k][j] in doubles, i < 8, j < 16.
  void (*subtract_f64)(int64_t n, const double* a, const double* b, double* c);
};

}  // namespace penstock
