#include "ops/cuda/kernels/scan_heads.h"

#include <type_traits>

#include "ops/cuda/kernels/state_rows.h"
#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {
namespace {

struct alignas(16) FourFloats {
  float at[4];
};

// A block's copies of some tokens in shared memory.
template <class K>
struct ScanStage {
  float *keys, *queries, *decays, *values, *scalars;  // scalars: weights, then decays of tokens

  PENSTOCK_DEVICE ScanStage(const Thread& t, int which)
      : keys(t.shared_as<float>() + which * K::kStage),
        queries(keys + K::kTokens * K::kKeys),
        decays(queries + K::kTokens * K::kKeys),
        values(decays + K::kTokens * K::kKeys),
        scalars(values + K::kTokens * K::kFeatures) {}

  // Starts copies of the tokens from `from` on; zeros beyond the last one, and beyond the last key
  // and feature.
  PENSTOCK_DEVICE void bring(const Thread& t, const K& k, const StateRows& rows, int head,
                             int key_head, int first_feature, int from) const {
    constexpr int kOfKeys = K::kKeys / 4, kOfValues = K::kFeatures / 4;
    const auto row_of = [&](int token) {
      return rows.first + (from + token < rows.n ? from + token : 0);
    };
    const auto copy = [&](float* to, const float* row, int at, bool has) {
      t.copy_ahead(reinterpret_cast<std::byte*>(to),
                   reinterpret_cast<const std::byte*>(row + (has ? at : 0)), has);
    };
    for (int i = t.index; i < K::kTokens * kOfKeys; i += K::kThreads) {
      const int token = i / kOfKeys, at = i % kOfKeys * 4;
      const bool has = from + token < rows.n && at < k.key_dim;
      const float* const row = k.qkv.row(row_of(token));
      copy(keys + 4 * i, row, k.k_at + key_head * k.key_dim + at, has);
      copy(queries + 4 * i, row, k.q_at + key_head * k.key_dim + at, has);
      if (k.decays_per_head > 1)
        copy(decays + 4 * i, k.decay.row(row_of(token)), head * k.key_dim + at, has);
    }
    for (int i = t.index; i < K::kTokens * kOfValues; i += K::kThreads) {
      const int token = i / kOfValues, at = first_feature + i % kOfValues * 4;
      const bool has = from + token < rows.n && at < k.value_dim;
      copy(values + 4 * i, k.qkv.row(row_of(token)), k.v_at + head * k.value_dim + at, has);
    }
    if (t.index < K::kTokens) {
      scalars[t.index] = k.beta.row(row_of(t.index))[head];
    } else if (t.index < 2 * K::kTokens && k.decays_per_head == 1) {
      scalars[t.index] = k.decay.row(row_of(t.index - K::kTokens))[head];
    }
    t.end_copies();
  }
};

// The sum of four numbers and of the lanes of a feature.
template <int kLanes>
PENSTOCK_DEVICE float sum_of_feature(const Thread& t, const float (&parts)[4]) {
  float sum = (parts[0] + parts[1]) + (parts[2] + parts[3]);
#pragma unroll
  for (int mask = 1; mask < kLanes; mask *= 2) sum += t.shuffle_xor(sum, mask);
  return sum;
}

}  // namespace

template <int Chunks, int Lanes>
PENSTOCK_BODY void ScanHeads<Chunks, Lanes>::operator()(const Thread& t) const {
  if (t.x >= batch->n_seqs) return;
  const int parts = (value_dim + kFeatures - 1) / kFeatures, head = t.y / parts;
  const int first_feature = t.y % parts * kFeatures, in_part = t.index / Lanes,
            part = t.index % Lanes;
  const int feature = first_feature + in_part;
  const bool has = feature < value_dim;
  const StateRows rows(*batch, states, t.x);
  const int key_head = key_heads_in_turn ? head % n_key_heads : head / (n_heads / n_key_heads);
  const int64_t at = static_cast<int64_t>(head) * key_dim * value_dim + feature;
  // The lane's keys are 4 (part + Lanes i) to + 3.
  const auto key_of = [&](int i, int e) { return 4 * (part + Lanes * i) + e; };
  states.with_values([&](auto* all) {
    using Value = std::remove_pointer_t<decltype(all)>;
    const Value* const before = all + rows.before(states, 0) + at;
    float s[Chunks][4];
#pragma unroll
    for (int i = 0; i < Chunks; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int j = key_of(i, e);
        const bool stored = has && j < key_dim && !rows.starts(0);
        s[i][e] = stored ? widened(before[j * value_dim]) : 0.0f;
      }
    const auto keep = [&](int token) {
      Value* const to = all + rows.after(states, token) + at;
#pragma unroll
      for (int i = 0; i < Chunks; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int j = key_of(i, e);
          if (has && j < key_dim) put(s[i][e], to[j * value_dim]);
        }
    };
    ScanStage<ScanHeads>(t, 0).bring(t, *this, rows, head, key_head, first_feature, 0);
    int which = 0;
#pragma unroll 1
    for (int from = 0; from < rows.n; from += kTokens, which ^= 1) {
      if (from + kTokens < rows.n) {
        ScanStage<ScanHeads>(t, which ^ 1)
            .bring(t, *this, rows, head, key_head, first_feature, from + kTokens);
      } else {
        t.end_copies();
      }
      t.template wait_for_copies<1>();
      t.sync();
      const ScanStage<ScanHeads> stage(t, which);
#pragma unroll 1
      for (int token = 0; token < kTokens && from + token < rows.n; ++token) {
        const auto four = [&](const float* row, int i) {
          return reinterpret_cast<const FourFloats*>(row + token * kKeys)[part + Lanes * i];
        };
        const float value = stage.values[token * kFeatures + in_part],
                    weight = stage.scalars[token], decay_of_all = stage.scalars[kTokens + token];
        float known[4] = {}, read[4] = {};
#pragma unroll
        for (int i = 0; i < Chunks; ++i) {
          const FourFloats key = four(stage.keys, i);
          if (decays_per_head > 1) {
            const FourFloats of_keys = four(stage.decays, i);
#pragma unroll
            for (int e = 0; e < 4; ++e) s[i][e] *= of_keys.at[e];
          } else {
#pragma unroll
            for (int e = 0; e < 4; ++e) s[i][e] *= decay_of_all;
          }
#pragma unroll
          for (int e = 0; e < 4; ++e) known[e] = fmaf(s[i][e], key.at[e], known[e]);
        }
        const float update =
            delta ? weight * (value - sum_of_feature<Lanes>(t, known)) : weight * value;
#pragma unroll
        for (int i = 0; i < Chunks; ++i) {
          const FourFloats key = four(stage.keys, i), query = four(stage.queries, i);
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float now = fmaf(key.at[e], update, s[i][e]);
            read[e] = fmaf(now, query.at[e], read[e]);
            Value kept;  // states of BF16 are rounded at each token
            put(now, kept);
            s[i][e] = widened(kept);
          }
        }
        const float sum = sum_of_feature<Lanes>(t, read);
        if (part == 0 && has)
          out.row(rows.first + from + token)[head * value_dim + feature] =
              skip != nullptr ? sum + skip[head] * value : sum;
        if (rows.each) keep(from + token);
      }
      t.sync();  // all have read the stage, which is overwritten next
    }
    if (!rows.each && rows.n > 0) keep(0);
  });
}
PENSTOCK_KERNEL(ScanHeads<4, 4>)
PENSTOCK_KERNEL(ScanHeads<4, 8>)
PENSTOCK_KERNEL(ScanHeads<8, 8>)

}  // namespace penstock::cuda
