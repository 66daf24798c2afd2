// RecurrenceKernels over Simd. Included after an instruction set's simd.h.
#pragma once
#include "kernels/generic/chunks.inl"
#include "kernels/generic/simd_math.inl"
#include "kernels/recurrence_kernels.h"

namespace penstock {
namespace {

using F = Simd::F;

// Number of partial sums over keys, which hide the latency of additions.
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

// Calls f(key, index of the partial sum) for all keys, in an order that depends on n only.
template <class Fn>
inline void for_keys(int n, Fn&& f) {
  int key = 0;
  for (; key + kApart <= n; key += kApart) {
    for (int i = 0; i < kApart; ++i) f(key + i, i);
  }
  for (; key < n; ++key) f(key, 0);
}

// Layout of a state in memory, 16 lanes at a time. store() returns the values as stored.
struct F32State {
  using Value = float;
  static F load(const Value* at) { return Simd::load(at); }
  static F store(Value* at, F s) {
    Simd::store(at, s);
    return s;
  }
};
struct Bf16State {
  using Value = uint16_t;
  static F load(const Value* at) { return Simd::load_bf16_state(at); }
  static F store(Value* at, F s) { return Simd::store_bf16_state(at, s); }
};

// Returns S^T k, summed in the order of the pass over the previous token; f computes S from the
// stored values of a key.
template <class State, class Fn>
inline F recall(const typename State::Value* state, const float* k, int key_dim, Fn&& f) {
  KeySum sum;
  for_keys(key_dim, [&](int key, int i) {
    const F s = f(key, State::load(state + key * kDeltaLanes));
    sum.parts[i] = Simd::fma(Simd::set1(k[key]), s, sum.parts[i]);
  });
  return sum.total();
}

// One pass over the state per token: the state is updated, read by the token's query and, unless
// the token is the last, by the key of the next one, which is the result.
template <class State, bool kMore>
inline F delta_token(const DeltaStrip& strip, ptrdiff_t t, F recalled) {
  auto* const state = static_cast<typename State::Value*>(strip.state);
  const float *q = strip.q + t * strip.stride, *k = strip.k + t * strip.stride,
              *next = k + strip.stride;
  const F v = Simd::load_n(strip.v + t * strip.stride, strip.n_features);
  const F decay = Simd::set1(strip.decay[t * strip.decay_stride]);
  const F beta = Simd::set1(strip.beta[t * strip.beta_stride]);
  const F delta = Simd::mul(beta, Simd::sub(v, Simd::mul(decay, recalled)));
  KeySum out, of_next;
  for_keys(strip.key_dim, [&](int key, int i) {
    auto* const at = state + key * kDeltaLanes;
    const F s = Simd::fma(Simd::set1(k[key]), delta, Simd::mul(decay, State::load(at)));
    const F kept = State::store(at, s);
    out.parts[i] = Simd::fma(Simd::set1(q[key]), s, out.parts[i]);
    if constexpr (kMore)
      of_next.parts[i] = Simd::fma(Simd::set1(next[key]), kept, of_next.parts[i]);
  });
  Simd::store_n(strip.out + t * strip.out_stride, out.total(), strip.n_features);
  return of_next.total();
}

template <class State>
void delta_rule(const DeltaStrip& strip) {
  const auto* const state = static_cast<const typename State::Value*>(strip.state);
  F recalled = recall<State>(state, strip.k, strip.key_dim, [](int, F s) { return s; });
  const ptrdiff_t last = strip.n_tokens - 1;
  for (ptrdiff_t t = 0; t < last; ++t) recalled = delta_token<State, true>(strip, t, recalled);
  delta_token<State, false>(strip, last, recalled);
}

// As delta_token(), with decays by key. The recalled value includes the decays of the token that
// recalls it.
template <class State, bool kMore>
inline F delta_token_by_key(const DeltaStrip& strip, ptrdiff_t t, F recalled) {
  auto* const state = static_cast<typename State::Value*>(strip.state);
  const float *q = strip.q + t * strip.stride, *k = strip.k + t * strip.stride,
              *next = k + strip.stride;
  const float *const decay = strip.decay + t * strip.decay_stride,
                     *next_decay = decay + strip.decay_stride;
  const F v = Simd::load_n(strip.v + t * strip.stride, strip.n_features);
  const F delta = Simd::mul(Simd::set1(strip.beta[t * strip.beta_stride]), Simd::sub(v, recalled));
  KeySum out, of_next;
  for_keys(strip.key_dim, [&](int key, int i) {
    auto* const at = state + key * kDeltaLanes;
    const F decayed = Simd::mul(Simd::set1(decay[key]), State::load(at));
    const F s = Simd::fma(Simd::set1(k[key]), delta, decayed);
    const F kept = State::store(at, s);
    out.parts[i] = Simd::fma(Simd::set1(q[key]), s, out.parts[i]);
    if constexpr (kMore) {
      const F of_key = Simd::mul(Simd::set1(next_decay[key]), kept);
      of_next.parts[i] = Simd::fma(Simd::set1(next[key]), of_key, of_next.parts[i]);
    }
  });
  Simd::store_n(strip.out + t * strip.out_stride, out.total(), strip.n_features);
  return of_next.total();
}

template <class State>
void delta_rule_by_key(const DeltaStrip& strip) {
  const auto* const state = static_cast<const typename State::Value*>(strip.state);
  F recalled = recall<State>(state, strip.k, strip.key_dim, [&](int key, F s) {
    return Simd::mul(Simd::set1(strip.decay[key]), s);
  });
  const ptrdiff_t last = strip.n_tokens - 1;
  for (ptrdiff_t t = 0; t < last; ++t)
    recalled = delta_token_by_key<State, true>(strip, t, recalled);
  delta_token_by_key<State, false>(strip, last, recalled);
}

template <class State>
void state_space(const DeltaStrip& strip) {
  auto* const state = static_cast<typename State::Value*>(strip.state);
  for (ptrdiff_t t = 0; t < strip.n_tokens; ++t) {
    const float *q = strip.q + t * strip.stride, *k = strip.k + t * strip.stride;
    const F v = Simd::load_n(strip.v + t * strip.stride, strip.n_features);
    const F decay = Simd::set1(strip.decay[t * strip.decay_stride]);
    const F added = Simd::mul(Simd::set1(strip.beta[t * strip.beta_stride]), v);
    KeySum out;
    for_keys(strip.key_dim, [&](int key, int i) {
      auto* const at = state + key * kDeltaLanes;
      const F s = Simd::fma(Simd::set1(k[key]), added, Simd::mul(decay, State::load(at)));
      State::store(at, s);
      out.parts[i] = Simd::fma(Simd::set1(q[key]), s, out.parts[i]);
    });
    const F with_input = Simd::fma(Simd::set1(strip.skip), v, out.total());
    Simd::store_n(strip.out + t * strip.out_stride, with_input, strip.n_features);
  }
}

template <class State>
void channel_scan(const DeltaStrip& strip) {
  auto* const state = static_cast<typename State::Value*>(strip.state);
  for (ptrdiff_t t = 0; t < strip.n_tokens; ++t) {
    const float *q = strip.q + t * strip.stride, *k = strip.k + t * strip.stride;
    const F v = Simd::load_n(strip.v + t * strip.stride, strip.n_features);
    const F step = Simd::load_n(strip.beta + t * strip.beta_stride, strip.n_features);
    const F added = Simd::mul(step, v);
    KeySum out;
    for_keys(strip.key_dim, [&](int key, int i) {
      auto* const at = state + key * kDeltaLanes;
      const F decay = exp(Simd::mul(Simd::load(strip.rates + key * kDeltaLanes), step));
      const F s = Simd::fma(Simd::set1(k[key]), added, Simd::mul(decay, State::load(at)));
      State::store(at, s);
      out.parts[i] = Simd::fma(Simd::set1(q[key]), s, out.parts[i]);
    });
    Simd::store_n(strip.out + t * strip.out_stride, out.total(), strip.n_features);
  }
}

constexpr RecurrenceKernels kRecurrenceKernels = {
    {delta_rule<F32State>, delta_rule<Bf16State>},
    {delta_rule_by_key<F32State>, delta_rule_by_key<Bf16State>},
    {state_space<F32State>, state_space<Bf16State>},
    {channel_scan<F32State>, channel_scan<Bf16State>},
    {chunk_keys<Rule::kDelta>, scan_chunk<Rule::kDelta>},
    {chunk_keys<Rule::kDeltaByKey>, scan_chunk<Rule::kDeltaByKey>},
    {chunk_keys<Rule::kStateSpace>, scan_chunk<Rule::kStateSpace>},
};

}  // namespace
}  // namespace penstock
