// RecurrenceKernels over Simd. Included after an instruction set's simd.h.
#pragma once
#include "kernels/recurrence_kernels.h"

namespace penstock {
namespace {

using F = Simd::F;

// Keys that are summed apart, so that one addition need not wait for the last.
constexpr int kApart = Simd::kAccumulators >= 16 ? 4 : 1;

struct KeySum {
  F parts[kApart];
  KeySum() {
    for (F& part : parts) part = Simd::zero();
  }
  F total() const {
    F sum = parts[0];
    for (int i = 1; i < kApart; ++i) sum = Simd::add(sum, parts[i]);
    return sum;
  }
};

// f(key, which sum) for all keys, in an order that depends on their number alone.
template <class Fn>
inline void for_keys(int n, Fn&& f) {
  int key = 0;
  for (; key + kApart <= n; key += kApart) {
    for (int i = 0; i < kApart; ++i) f(key + i, i);
  }
  for (; key < n; ++key) f(key, 0);
}

// S^T k, added up as the pass over the token before would have done it.
inline F recall(const float* state, const float* k, int key_dim) {
  KeySum sum;
  for_keys(key_dim, [&](int key, int i) {
    sum.parts[i] = Simd::fma(Simd::set1(k[key]), Simd::load(state + key * kDeltaLanes), sum.parts[i]);
  });
  return sum.total();
}

// One pass over the state per token: it is updated, read by the token's query, and by the key of the next.
void delta_rule(const DeltaStrip& strip) {
  F recalled = recall(strip.state, strip.k, strip.key_dim);
  for (ptrdiff_t t = 0; t < strip.n_tokens; ++t) {
    const float *q = strip.q + t * strip.stride, *k = strip.k + t * strip.stride;
    const float* next = t + 1 < strip.n_tokens ? k + strip.stride : k;
    const F v = Simd::load_n(strip.v + t * strip.stride, strip.n_features);
    const F decay = Simd::set1(strip.decay[t * strip.decay_stride]);
    const F beta = Simd::set1(strip.beta[t * strip.beta_stride]);
    const F delta = Simd::mul(beta, Simd::sub(v, Simd::mul(decay, recalled)));
    KeySum out, of_next;
    for_keys(strip.key_dim, [&](int key, int i) {
      float* const at = strip.state + key * kDeltaLanes;
      const F s = Simd::fma(Simd::set1(k[key]), delta, Simd::mul(decay, Simd::load(at)));
      Simd::store(at, s);
      out.parts[i] = Simd::fma(Simd::set1(q[key]), s, out.parts[i]);
      of_next.parts[i] = Simd::fma(Simd::set1(next[key]), s, of_next.parts[i]);
    });
    Simd::store_n(strip.out + t * strip.out_stride, out.total(), strip.n_features);
    recalled = of_next.total();
  }
}

// The state that is kept has been multiplied by the decays of the token that reads it next, or by none behind the last.
void delta_rule_by_key(const DeltaStrip& strip) {
  for (int key = 0; key < strip.key_dim; ++key) {
    float* const at = strip.state + key * kDeltaLanes;
    Simd::store(at, Simd::mul(Simd::set1(strip.decay[key]), Simd::load(at)));
  }
  F recalled = recall(strip.state, strip.k, strip.key_dim);
  for (ptrdiff_t t = 0; t < strip.n_tokens; ++t) {
    const float *q = strip.q + t * strip.stride, *k = strip.k + t * strip.stride;
    const bool last = t + 1 == strip.n_tokens;
    const float* next = last ? k : k + strip.stride;
    const float* decay = strip.decay + (last ? t : t + 1) * strip.decay_stride;
    const F v = Simd::load_n(strip.v + t * strip.stride, strip.n_features);
    const F delta = Simd::mul(Simd::set1(strip.beta[t * strip.beta_stride]), Simd::sub(v, recalled));
    KeySum out, of_next;
    for_keys(strip.key_dim, [&](int key, int i) {
      float* const at = strip.state + key * kDeltaLanes;
      const F s = Simd::fma(Simd::set1(k[key]), delta, Simd::load(at));
      const F decayed = last ? s : Simd::mul(Simd::set1(decay[key]), s);
      Simd::store(at, decayed);
      out.parts[i] = Simd::fma(Simd::set1(q[key]), s, out.parts[i]);
      of_next.parts[i] = Simd::fma(Simd::set1(next[key]), decayed, of_next.parts[i]);
    });
    Simd::store_n(strip.out + t * strip.out_stride, out.total(), strip.n_features);
    recalled = of_next.total();
  }
}

void state_space(const DeltaStrip& strip) {
  for (ptrdiff_t t = 0; t < strip.n_tokens; ++t) {
    const float *q = strip.q + t * strip.stride, *k = strip.k + t * strip.stride;
    const F v = Simd::load_n(strip.v + t * strip.stride, strip.n_features);
    const F decay = Simd::set1(strip.decay[t * strip.decay_stride]);
    const F added = Simd::mul(Simd::set1(strip.beta[t * strip.beta_stride]), v);
    KeySum out;
    for_keys(strip.key_dim, [&](int key, int i) {
      float* const at = strip.state + key * kDeltaLanes;
      const F s = Simd::fma(Simd::set1(k[key]), added, Simd::mul(decay, Simd::load(at)));
      Simd::store(at, s);
      out.parts[i] = Simd::fma(Simd::set1(q[key]), s, out.parts[i]);
    });
    const F with_input = Simd::fma(Simd::set1(strip.skip), v, out.total());
    Simd::store_n(strip.out + t * strip.out_stride, with_input, strip.n_features);
  }
}

}  // namespace
}  // namespace penstock
