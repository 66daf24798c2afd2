// Row-wise kernels: normalization, activations, rotation. n >= 1, any alignment. The result of a
// row depends on that row only, not on how rows are batched or divided among threads.
#pragma once
#include "kernels/activation.h"

namespace penstock {

struct VectorKernels {
  // out = x / sqrt(mean(x^2) + eps) * weight; weight may be null (ones), out may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, int n, float* out);
  // out = (x - mean) / sqrt(variance + eps) * weight + bias; weight and bias may be null, out may
  // be x.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, int n,
                     float* out);
  void (*add_scaled)(float* x, const float* delta, float scale, int n);  // x += delta * scale
  // x *= factor; cap * tanh(x / cap)
  void (*scale_softcap)(float* x, float factor, float softcap, int n);
  void (*activate)(float* x, const ActivationFunction& f, int n);  // x = f(x)
  // out = f(gate) * up; out may be gate or up.
  void (*activate_mul)(const float* gate, const float* up, const ActivationFunction& f, int n,
                       float* out);
  // Rotates pairs (i, i + half) or, interleaved, (2i, 2i + 1) of x[2 * half] by the angle with
  // cos[i], sin[i].
  void (*rope)(float* x, const float* cos, const float* sin, int half, bool interleaved);
  // x = round(x * 127 / m) * m / 127, m = max(|x|, 1e-5), halves to even.
  void (*round_int8)(float* x, int n);
  // x = exp(x - max) / sum. Returns log(sum(exp(x))).
  float (*softmax)(float* x, int n);
};

}  // namespace penstock
