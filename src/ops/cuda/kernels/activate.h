// Activation functions of kernels.
#pragma once
#include "kernels/activation.h"
#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {

PENSTOCK_DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

PENSTOCK_DEVICE float activated(const ActivationFunction& f, float x) {
  const float* const p = f.parameters;
  switch (f.kind) {
    case Activation::kSilu: return x * sigmoid(x);
    case Activation::kGelu: return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    case Activation::kGeluTanh:
      // 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3)
      return x * sigmoid(2 * 0.7978845608f * x * (1.0f + 0.044715f * x * x));
    case Activation::kRelu: return fmaxf(x, 0.0f);
    case Activation::kRelu2: return x > 0.0f ? x * x : 0.0f;
    case Activation::kXielu:
      return x > 0.0f ? p[0] * x * x + p[2] * x : p[1] * (expm1f(fminf(x, p[3])) - x) + p[2] * x;
    case Activation::kClampedSilu: {
      const float v = fminf(x, p[1]);
      return v * sigmoid(p[0] * v);
    }
    case Activation::kSigmoid: return sigmoid(x);
    case Activation::kClamp: return fmaxf(p[0], fminf(x, p[1]));
    case Activation::kSoftplus: return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
    case Activation::kBoundedSilu: return fminf(x * sigmoid(x), p[0]);
    case Activation::kSoftCappedSilu: return p[0] * tanhf(x / p[0]) * sigmoid(x);
    case Activation::kCappedSilu: return fminf(x, p[0]) * sigmoid(fminf(x, p[0]));
  }
  return x;
}

// Returns f(x) * by, or the gated form of f if it has its own.
PENSTOCK_DEVICE float gated(const ActivationFunction& f, float x, float by) {
  const bool bounded = f.kind == Activation::kBoundedSilu || f.kind == Activation::kCappedSilu;
  if (f.kind == Activation::kSoftCappedSilu)
    return activated(f, x) * f.parameters[1] * tanhf(by / f.parameters[1]);
  const float value = activated(f, x), most = f.parameters[bounded ? 0 : 1];
  if (!bounded && f.kind != Activation::kClampedSilu) return value * by;
  return value * (fmaxf(-most, fminf(by, most)) + (bounded ? 0.0f : 1.0f));
}

}  // namespace penstock::cuda
