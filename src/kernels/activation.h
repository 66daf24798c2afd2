// Activation functions of feed-forward layers.
#pragma once
#include <cstdint>

namespace penstock {

enum class Activation : uint8_t {
  kSilu,
  kGelu,
  kGeluTanh,
  kRelu,
  kRelu2,
  // p x^2 + b x for x > 0, else n (expm1(min(x, e)) - x) + b x, of parameters {p, n, b, e}
  kXielu,
  // gpt-oss: min(x, m) sigmoid(a min(x, m)), of {a, m}; its gated form times clamp(up, -m, m) + 1
  kClampedSilu,
  kSigmoid,
  kClamp,     // max(l, min(x, h)), of {l, h}
  kSoftplus,  // log(1 + exp(x))
  // Step 3.5: min(silu(x), m), of {m}; its gated form times clamp(up, -m, m)
  kBoundedSilu,
  // GLM-5.3: silu(min(x, m)), of {m}; its gated form times clamp(up, -m, m)
  kCappedSilu,
  // Inkling 2: m tanh(x / m) sigmoid(x), of {m, u}; its gated form times u tanh(up / u)
  kSoftCappedSilu,
};
inline constexpr int kNumActivations = 13;

// An activation function with its parameters, if it has some.
struct ActivationFunction {
  // NOLINTNEXTLINE(google-explicit-constructor): most have no parameters
  constexpr ActivationFunction(Activation of = Activation::kSilu) : kind(of) {}
  Activation kind;
  float parameters[4] = {};
};

}  // namespace penstock
