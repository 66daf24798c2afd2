// VectorKernels over Simd. Included after an instruction set's simd.h and simd_math.inl.
#pragma once
#include "kernels/generic/simd_math.inl"

namespace penstock {
namespace {

inline F load_some(const float* p, int n) { return n >= 16 ? Simd::load(p) : Simd::load_n(p, n); }
inline void store_some(float* p, F x, int n) {
  if (n >= 16) {
    Simd::store(p, x);
  } else {
    Simd::store_n(p, x, n);
  }
}

// Returns the sum of f(vector) over x, in an order that depends on n only.
template <class Fn>
inline float sum_of(const float* x, int n, Fn&& f) {
  F s[4] = {Simd::zero(), Simd::zero(), Simd::zero(), Simd::zero()};
  int i = 0;
  for (; i + 64 <= n; i += 64) {
    for (int j = 0; j < 4; ++j) s[j] = f(Simd::load(x + i + 16 * j), s[j], 16);
  }
  for (; i < n; i += 16) s[0] = f(load_some(x + i, n - i), s[0], n - i);
  return Simd::reduce_add(Simd::add(Simd::add(s[0], s[1]), Simd::add(s[2], s[3])));
}

void rms_norm(const float* x, const float* weight, float eps, int n, float* out) {
  const float squares = sum_of(x, n, [](F v, F s, int) { return Simd::fma(v, v, s); });
  const F factor = Simd::set1(1.0f / __builtin_sqrtf(squares / static_cast<float>(n) + eps));
  for (int i = 0; i < n; i += 16) {
    F v = Simd::mul(load_some(x + i, n - i), factor);
    if (weight != nullptr) v = Simd::mul(v, load_some(weight + i, n - i));
    store_some(out + i, v, n - i);
  }
}

void layer_norm(const float* x, const float* weight, const float* bias, float eps, int n,
                float* out) {
  const float mean =
      sum_of(x, n, [](F v, F s, int) { return Simd::add(v, s); }) / static_cast<float>(n);
  const F m = Simd::set1(mean);
  const float squares = sum_of(x, n, [&](F v, F s, int left) {
    F d = Simd::sub(v, m);
    if (left < 16) d = Simd::keep((1u << left) - 1, d, Simd::zero());
    return Simd::fma(d, d, s);
  });
  const F factor = Simd::set1(1.0f / __builtin_sqrtf(squares / static_cast<float>(n) + eps));
  for (int i = 0; i < n; i += 16) {
    F v = Simd::mul(Simd::sub(load_some(x + i, n - i), m), factor);
    if (weight != nullptr) v = Simd::mul(v, load_some(weight + i, n - i));
    if (bias != nullptr) v = Simd::add(v, load_some(bias + i, n - i));
    store_some(out + i, v, n - i);
  }
}

void add_scaled(float* x, const float* delta, float scale, int n) {
  const F s = Simd::set1(scale);
  for (int i = 0; i < n; i += 16) {
    store_some(x + i, Simd::fma(load_some(delta + i, n - i), s, load_some(x + i, n - i)), n - i);
  }
}

void scale_softcap(float* x, float factor, float softcap, int n) {
  const F f = Simd::set1(softcap > 0.0f ? factor / softcap : factor), cap = Simd::set1(softcap);
  for (int i = 0; i < n; i += 16) {
    F v = Simd::mul(load_some(x + i, n - i), f);
    if (softcap > 0.0f) v = Simd::mul(tanh(v), cap);
    store_some(x + i, v, n - i);
  }
}

// The parameters of an ActivationFunction, broadcast to all lanes.
struct ActivationParameters {
  F p[4];
  explicit ActivationParameters(const ActivationFunction& f) {
    for (int i = 0; i < 4; ++i) p[i] = Simd::set1(f.parameters[i]);
  }
};

// m tanh(x / m)
inline F soft_capped(F x, F m) { return Simd::mul(tanh(Simd::div(x, m)), m); }

template <Activation A>
inline F activated(F x, const ActivationParameters& f) {
  if constexpr (A == Activation::kSilu) return Simd::mul(x, sigmoid(x));
  if constexpr (A == Activation::kGelu) {
    const F half = Simd::mul(x, Simd::set1(0.5f));
    return Simd::fma(half, erf(Simd::mul(x, Simd::set1(0.70710678f))), half);
  }
  if constexpr (A == Activation::kGeluTanh) {
    // 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3)
    const F inner = Simd::fma(Simd::mul(x, x), Simd::set1(2 * 0.7978845608f * 0.044715f),
                              Simd::set1(2 * 0.7978845608f));
    return Simd::mul(x, sigmoid(Simd::mul(x, inner)));
  }
  if constexpr (A == Activation::kRelu) return Simd::max(Simd::zero(), x);
  if constexpr (A == Activation::kRelu2) {
    const F v = Simd::max(Simd::zero(), x);
    return Simd::mul(v, v);
  }
  if constexpr (A == Activation::kXielu) {
    const F above = Simd::mul(f.p[0], Simd::mul(x, x));
    const F grown = Simd::sub(exp(Simd::min(x, f.p[3])), Simd::set1(1.0f));
    const F below = Simd::mul(f.p[1], Simd::sub(grown, x));
    return Simd::fma(f.p[2], x, Simd::select_less(Simd::zero(), x, above, below));
  }
  if constexpr (A == Activation::kClampedSilu) {
    const F v = Simd::min(x, f.p[1]);
    return Simd::mul(v, sigmoid(Simd::mul(v, f.p[0])));
  }
  if constexpr (A == Activation::kSigmoid) return sigmoid(x);
  if constexpr (A == Activation::kBoundedSilu) return Simd::min(Simd::mul(x, sigmoid(x)), f.p[0]);
  if constexpr (A == Activation::kCappedSilu) {
    const F v = Simd::min(x, f.p[0]);
    return Simd::mul(v, sigmoid(v));
  }
  if constexpr (A == Activation::kSoftCappedSilu)
    return Simd::mul(soft_capped(x, f.p[0]), sigmoid(x));
  if constexpr (A == Activation::kSoftplus) return softplus(x);
  if constexpr (A == Activation::kClamp) return Simd::max(f.p[0], Simd::min(x, f.p[1]));
  return x;
}

// Returns the factor of the activated gate.
template <Activation A>
inline F gated_up(F up, const ActivationParameters& f) {
  if constexpr (A == Activation::kClampedSilu) {
    const F least = Simd::sub(Simd::zero(), f.p[1]);
    return Simd::add(Simd::max(least, Simd::min(up, f.p[1])), Simd::set1(1.0f));
  }
  if constexpr (A == Activation::kBoundedSilu || A == Activation::kCappedSilu)
    return Simd::max(Simd::sub(Simd::zero(), f.p[0]), Simd::min(up, f.p[0]));
  if constexpr (A == Activation::kSoftCappedSilu) return soft_capped(up, f.p[1]);
  return up;
}

// Calls visit(ActivationKind<A>) with the activation's kind A.
template <Activation A>
struct ActivationKind {
  static constexpr Activation kKind = A;
};
template <class Fn>
inline void visit_activation(Activation kind, Fn&& visit) {
  switch (kind) {
    case Activation::kSilu: return visit(ActivationKind<Activation::kSilu>());
    case Activation::kGelu: return visit(ActivationKind<Activation::kGelu>());
    case Activation::kGeluTanh: return visit(ActivationKind<Activation::kGeluTanh>());
    case Activation::kRelu: return visit(ActivationKind<Activation::kRelu>());
    case Activation::kRelu2: return visit(ActivationKind<Activation::kRelu2>());
    case Activation::kXielu: return visit(ActivationKind<Activation::kXielu>());
    case Activation::kClampedSilu: return visit(ActivationKind<Activation::kClampedSilu>());
    case Activation::kSigmoid: return visit(ActivationKind<Activation::kSigmoid>());
    case Activation::kClamp: return visit(ActivationKind<Activation::kClamp>());
    case Activation::kSoftplus: return visit(ActivationKind<Activation::kSoftplus>());
    case Activation::kBoundedSilu: return visit(ActivationKind<Activation::kBoundedSilu>());
    case Activation::kCappedSilu: return visit(ActivationKind<Activation::kCappedSilu>());
    case Activation::kSoftCappedSilu: return visit(ActivationKind<Activation::kSoftCappedSilu>());
  }
}

void activate(float* x, const ActivationFunction& function, int n) {
  const ActivationParameters f(function);
  visit_activation(function.kind, [&](auto kind) {
    for (int i = 0; i < n; i += 16)
      store_some(x + i, activated<decltype(kind)::kKind>(load_some(x + i, n - i), f), n - i);
  });
}

void activate_mul(const float* gate, const float* up, const ActivationFunction& function, int n,
                  float* out) {
  const ActivationParameters f(function);
  visit_activation(function.kind, [&](auto kind) {
    constexpr Activation kKind = decltype(kind)::kKind;
    for (int i = 0; i < n; i += 16) {
      const F v = Simd::mul(activated<kKind>(load_some(gate + i, n - i), f),
                            gated_up<kKind>(load_some(up + i, n - i), f));
      store_some(out + i, v, n - i);
    }
  });
}

void rope(float* x, const float* cos, const float* sin, int half, bool interleaved) {
  if (interleaved) {
    for (int i = 0; i < half; ++i) {
      const float a = x[2 * i], b = x[2 * i + 1];
      x[2 * i] = a * cos[i] - b * sin[i];
      x[2 * i + 1] = a * sin[i] + b * cos[i];
    }
    return;
  }
  for (int i = 0; i < half; i += 16) {
    const int n = half - i;
    const F c = load_some(cos + i, n), s = load_some(sin + i, n);
    const F a = load_some(x + i, n), b = load_some(x + half + i, n);
    store_some(x + i, Simd::sub(Simd::mul(a, c), Simd::mul(b, s)), n);
    store_some(x + half + i, Simd::add(Simd::mul(a, s), Simd::mul(b, c)), n);
  }
}

void round_int8(float* x, int n) {
  F most = Simd::set1(1e-5f);
  for (int i = 0; i < n; i += 16) {
    const F v = load_some(x + i, n - i);
    most = Simd::max(most, Simd::max(v, Simd::sub(Simd::zero(), v)));
  }
  const float m = Simd::reduce_max(most);
  const F up = Simd::set1(127.0f / m), down = Simd::set1(m / 127.0f);
  for (int i = 0; i < n; i += 16) {
    store_some(x + i, Simd::mul(Simd::round(Simd::mul(load_some(x + i, n - i), up)), down), n - i);
  }
}

float softmax(float* x, int n) {
  F m = Simd::set1(x[0]);
  int i = 0;
  for (; i + 16 <= n; i += 16) m = Simd::max(m, Simd::load(x + i));
  float max = Simd::reduce_max(m);
  for (; i < n; ++i) max = x[i] > max ? x[i] : max;
  const F vmax = Simd::set1(max);
  F s = Simd::zero();
  for (i = 0; i < n; i += 16) {
    F e = exp(Simd::sub(load_some(x + i, n - i), vmax));
    if (n - i < 16) e = Simd::keep((1u << (n - i)) - 1, e, Simd::zero());
    s = Simd::add(s, e);
    store_some(x + i, e, n - i);
  }
  const float sum = Simd::reduce_add(s);
  const F inverse = Simd::set1(1.0f / sum);
  for (i = 0; i < n; i += 16) store_some(x + i, Simd::mul(load_some(x + i, n - i), inverse), n - i);
  return max + __builtin_logf(sum);
}

}  // namespace
}  // namespace penstock
