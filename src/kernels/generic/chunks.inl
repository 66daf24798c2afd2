// Recurrences in chunks (recurrence_kernels.h) over Simd. Included after an instruction set's
// simd.h.
//
// Let P(t) be the product of a chunk's decays up to token t, and L(s, t) that of the decays after s
// up to t. With the state S before the chunk of n tokens, the output of a token is
//   out(t) = P(t) S^T q(t) + sum over s <= t of L(s, t) (k(s) q(t)) u(s)
// and the state after the chunk is P(n) S + sum of k(s) (L(s, n) u(s))^T. In a scan of Mamba 2,
// u(t) is beta(t) v(t); in the delta rule it is
//   u(t) = beta(t) (v(t) - P(t) S^T k(t) - sum over s < t of L(s, t) (k(s) k(t)) u(s)).
// With decays by key, P and L are diagonal matrices that multiply S and the keys. All of these are
// products of matrices with accumulators in registers, and the state is loaded and stored once per
// chunk. Decays are multiplied, never divided: they may underflow to zero.
#pragma once
#include "kernels/generic/transpose.inl"
#include "kernels/recurrence_kernels.h"

namespace penstock {
namespace {

using F = Simd::F;

// Accumulators that fit the registers: tokens (or keys of the state) x strips.
constexpr int kTileRows = Simd::kAccumulators >= 16 ? 8 : 4,
              kTileStrips = Simd::kAccumulators >= 16 ? 2 : 1;
static_assert(kScanChunk == kDeltaLanes && kScanChunk % kTileRows == 0);

// Accumulators of a tile of a matrix product. add(): kTileRows numbers of each row of `factors`
// times the row of `matrix`, which has N vectors of 16, `apart` floats apart.
template <int N>
struct Tile {
  F sums[kTileRows][N];

  template <class Fn>
  [[gnu::always_inline]] inline void each(Fn&& f) {
    for (int i = 0; i < kTileRows; ++i) {
      for (int j = 0; j < N; ++j) f(i, j, sums[i][j]);
    }
  }
  [[gnu::always_inline]] inline void clear() {
    each([](int, int, F& sum) { sum = Simd::zero(); });
  }
  [[gnu::always_inline]] inline void add(int rows, const float* factors, ptrdiff_t factor_stride,
                                         const float* matrix, ptrdiff_t stride, ptrdiff_t apart) {
    F local[kTileRows][N];
    for (int i = 0; i < kTileRows; ++i) {
      for (int j = 0; j < N; ++j) local[i][j] = sums[i][j];
    }
    for (int k = 0; k < rows; ++k, factors += factor_stride, matrix += stride) {
      F x[N];
      for (int j = 0; j < N; ++j) x[j] = Simd::load(matrix + j * apart);
      for (int i = 0; i < kTileRows; ++i) {
        const F factor = Simd::set1(factors[i]);
        for (int j = 0; j < N; ++j) local[i][j] = Simd::fma(factor, x[j], local[i][j]);
      }
    }
    for (int i = 0; i < kTileRows; ++i) {
      for (int j = 0; j < N; ++j) sums[i][j] = local[i][j];
    }
  }
};

// Transposes rows [n][dim], which are `stride` floats apart, to to[key][token]. Places after the
// last token repeat it.
inline void turn(const float* rows, ptrdiff_t stride, int dim, int n, float* to) {
  constexpr int kSide = Simd::kRegisterBytes / 4;
  const auto row = [&](int t) { return rows + (t < n ? t : n - 1) * stride; };
  const int whole = dim / kSide * kSide;
  for (int t = 0; t < kScanChunk; t += kSide) {
    for (int key = 0; key < whole; key += kSide) {
      Register<float, kSide> square[kSide];
      for (int i = 0; i < kSide; ++i)
        __builtin_memcpy(&square[i], row(t + i) + key, sizeof square[i]);
      transpose<1>(square);
      for (int i = 0; i < kSide; ++i)
        __builtin_memcpy(to + (key + i) * kScanChunk + t, &square[i], sizeof square[i]);
    }
    for (int key = whole; key < dim; ++key) {
      for (int i = 0; i < kSide; ++i) to[key * kScanChunk + t + i] = row(t + i)[key];
    }
  }
}

enum class Rule { kStateSpace, kDelta, kDeltaByKey };

// products[s][t] = k(s) x(t)
inline void multiply_tokens(const float* k, const float* x, int dim, int n, float* products) {
  for (int s = 0; s < n; s += kTileRows) {
    Tile<1> tile;
    tile.clear();
    tile.add(dim, k + s, kScanChunk, x, kScanChunk, 0);
    tile.each([&](int i, int, F& sum) { Simd::store(products + (s + i) * kScanChunk, sum); });
  }
}

// Computes products [s][t] and [s - 1][t] with each key's L(s, t) for all t. `between` holds L(s +
// 1, t) before the call and L(s - 1, t) after it.
inline void multiply_decayed(int key_dim, int s, const ChunkKeys& keys) {
  F kq[2] = {Simd::zero(), Simd::zero()}, kk[2] = {Simd::zero(), Simd::zero()};
  for (int key = 0; key < key_dim; ++key) {
    const int at = key * kScanChunk;
    const F q = Simd::load(keys.q + at), k = Simd::load(keys.k + at);
    F between = s + 1 < kScanChunk
                    ? Simd::mul(Simd::set1(keys.decays[at + s + 1]), Simd::load(keys.between + at))
                    : Simd::zero();
    for (int i = 0; i < 2; ++i) {
      if (i > 0) between = Simd::mul(Simd::set1(keys.decays[at + s]), between);
      between = Simd::keep(1u << (s - i), Simd::set1(1.0f), between);
      const F factor = Simd::mul(Simd::set1(keys.k[at + s - i]), between);
      kq[i] = Simd::fma(factor, q, kq[i]);
      kk[i] = Simd::fma(factor, k, kk[i]);
    }
    Simd::store(keys.between + at, between);
  }
  for (int i = 0; i < 2; ++i) {
    Simd::store(keys.kq + (s - i) * kScanChunk, kq[i]);
    Simd::store(keys.kk + (s - i) * kScanChunk, kk[i]);
  }
}

// Applies decays by key to the keys of a chunk.
inline void decay_keys(const DeltaStrip& strip, const ChunkKeys& to) {
  const int dim = strip.key_dim, n = strip.n_tokens;
  turn(strip.decay, strip.decay_stride, dim, n, to.decays);
  for (int s = kScanChunk - 1; s > 0; s -= 2) multiply_decayed(dim, s, to);
  for (int key = 0; key < dim; ++key) {  // P(t) of the key
    const int at = key * kScanChunk;
    const F product = Simd::mul(Simd::set1(to.decays[at]), Simd::load(to.between + at));
    Simd::store(to.between + at, product);
    to.left[key] = to.between[at + n - 1];
    Simd::store(to.q + at, Simd::mul(product, Simd::load(to.q + at)));
    Simd::store(to.k + at, Simd::mul(product, Simd::load(to.k + at)));
  }
  for (int key = 0; key < dim; key += 16) {
    const int lanes = dim - key < 16 ? dim - key : 16;
    F behind = Simd::set1(1.0f);
    for (int s = n - 1; s >= 0; --s) {
      float* const row = to.rows + s * dim + key;
      Simd::store_n(row, Simd::mul(behind, Simd::load_n(row, lanes)), lanes);
      behind = Simd::mul(behind, Simd::load_n(strip.decay + s * strip.decay_stride + key, lanes));
    }
  }
}

template <Rule kRule>
void chunk_keys(const DeltaStrip& strip, const ChunkKeys& to) {
  const int dim = strip.key_dim, n = strip.n_tokens;
  for (int t = 0; t < n; ++t)
    __builtin_memcpy(to.rows + t * dim, strip.k + t * strip.stride,
                     static_cast<size_t>(dim) * sizeof(float));
  turn(to.rows, dim, dim, n, to.k);
  turn(strip.q, strip.stride, dim, n, to.q);
  if constexpr (kRule == Rule::kDeltaByKey) return decay_keys(strip, to);
  multiply_tokens(to.k, to.q, dim, n, to.kq);
  if constexpr (kRule == Rule::kDelta) multiply_tokens(to.k, to.k, dim, n, to.kk);
}

// Weights of a chunk that all features of a head share.
struct ChunkWeights {
  alignas(64) float read[kScanChunk][kScanChunk];  // [s][t]: weight of u(s) in out(t)
  // delta rule: weight of u(s) in u(t), subtracted
  alignas(64) float forget[kScanChunk][kScanChunk];
  float decay[kScanChunk], beta[kScanChunk];  // P(t)
  float kept[kScanChunk];                     // L(s, n): weight of u(s) in the final state
};

template <Rule kRule>
inline void weigh(const DeltaStrip& head, const ChunkKeys& keys, ChunkWeights& w) {
  const int n = head.n_tokens;
  const auto decay_of = [&](int t) {  // 1 if the keys include the decays
    return kRule == Rule::kDeltaByKey ? 1.0f : head.decay[t * head.decay_stride];
  };
  float product = 1;
  for (int t = 0; t < kScanChunk; ++t) {
    w.decay[t] = t < n ? product *= decay_of(t) : 0;
    w.beta[t] = t < n ? head.beta[t * head.beta_stride] : 0;
  }
  F between = Simd::zero();  // L(s, t) for all t, zero for t < s
  float to_end = 1;
  for (int s = n - 1; s >= 0; --s) {
    const float decay = s < n - 1 ? decay_of(s + 1) : 1.0f;
    to_end *= decay;
    between = Simd::keep(1u << s, Simd::set1(1.0f), Simd::mul(Simd::set1(decay), between));
    const F weight =
        kRule == Rule::kStateSpace ? Simd::mul(Simd::set1(w.beta[s]), between) : between;
    Simd::store(w.read[s], Simd::mul(weight, Simd::load(keys.kq + s * kScanChunk)));
    w.kept[s] = kRule == Rule::kStateSpace ? to_end * w.beta[s] : to_end;
    if constexpr (kRule == Rule::kStateSpace) {
      w.read[s][s] += head.skip;
    } else {
      const F known = Simd::mul(between, Simd::load(keys.kk + s * kScanChunk));
      Simd::store(w.forget[s], Simd::sub(Simd::zero(), Simd::mul(Simd::load(w.beta), known)));
    }
  }
}

// N strips of a chunk, from feature `first` on. u, kept: [n][N * 16].
template <Rule kRule, int N>
struct ChunkStrips {
  static constexpr ptrdiff_t kWidth = N * kDeltaLanes;
  const DeltaStrip& head;
  const ChunkKeys& keys;
  const ChunkWeights& w;
  int first;
  float *state, *u, *kept;

  ptrdiff_t apart() const { return ptrdiff_t{head.key_dim} * kDeltaLanes; }
  int features(int j) const {
    const int left = head.n_features - first - j * kDeltaLanes;
    return left < kDeltaLanes ? left : kDeltaLanes;
  }
  F value(int t, int j) const {
    return Simd::load_n(head.v + t * head.stride + first + j * kDeltaLanes, features(j));
  }

  // u = v
  void take_values() const {
    for (int t = 0; t < head.n_tokens; ++t) {
      for (int j = 0; j < N; ++j) Simd::store(u + t * kWidth + j * 16, value(t, j));
    }
  }

  // Computes S^T x for tokens from t on, times their decays. x: keys or queries.
  [[gnu::always_inline]] inline void recall(const float* x, int t, Tile<N>& tile) const {
    tile.clear();
    tile.add(head.key_dim, x + t, kScanChunk, state, kDeltaLanes, apart());
    tile.each([&](int i, int, F& sum) { sum = Simd::mul(Simd::set1(w.decay[t + i]), sum); });
  }

  // Delta rule: u(t) = beta (v - what the state and earlier tokens give for the key).
  void solve() const {
    for (int t = 0; t < head.n_tokens; t += kTileRows) {
      Tile<N> tile;
      recall(keys.k, t, tile);
      tile.each([&](int i, int j, F& sum) {
        const F v = value(t + i < head.n_tokens ? t + i : head.n_tokens - 1, j);
        sum = Simd::mul(Simd::set1(w.beta[t + i]), Simd::sub(v, sum));
      });
      tile.add(t, w.forget[0] + t, kScanChunk, u, kWidth, 16);
      for (int s = 0; s < kTileRows; ++s) {
        for (int i = s + 1; i < kTileRows; ++i) {
          const F lost = Simd::set1(w.forget[t + s][t + i]);
          for (int j = 0; j < N; ++j)
            tile.sums[i][j] = Simd::fma(lost, tile.sums[s][j], tile.sums[i][j]);
        }
      }
      tile.each([&](int i, int j, F& sum) { Simd::store(u + (t + i) * kWidth + j * 16, sum); });
    }
  }

  void read() const {
    for (int t = 0; t < head.n_tokens; t += kTileRows) {
      Tile<N> tile;
      recall(keys.q, t, tile);
      const int seen = t + kTileRows < head.n_tokens ? t + kTileRows : head.n_tokens;
      tile.add(seen, w.read[0] + t, kScanChunk, u, kWidth, 16);
      tile.each([&](int i, int j, F& sum) {
        float* const to = head.out + (t + i) * head.out_stride + first + j * kDeltaLanes;
        if (t + i < head.n_tokens) Simd::store_n(to, sum, features(j));
      });
    }
  }

  template <int kKeys>
  [[gnu::always_inline]] inline void update_keys(int key, F decay) const {
    F sums[kKeys][N];
    float* const at = state + key * kDeltaLanes;
    for (int i = 0; i < kKeys; ++i) {
      const F of_key = kRule == Rule::kDeltaByKey ? Simd::set1(keys.left[key + i]) : decay;
      for (int j = 0; j < N; ++j)
        sums[i][j] = Simd::mul(of_key, Simd::load(at + i * kDeltaLanes + j * apart()));
    }
    const float* k = keys.rows + key;
    for (int s = 0; s < head.n_tokens; ++s, k += head.key_dim) {
      F x[N];
      for (int j = 0; j < N; ++j) x[j] = Simd::load(kept + s * kWidth + j * 16);
      for (int i = 0; i < kKeys; ++i) {
        const F factor = Simd::set1(k[i]);
        for (int j = 0; j < N; ++j) sums[i][j] = Simd::fma(factor, x[j], sums[i][j]);
      }
    }
    for (int i = 0; i < kKeys; ++i) {
      for (int j = 0; j < N; ++j) Simd::store(at + i * kDeltaLanes + j * apart(), sums[i][j]);
    }
  }

  void update() const {
    for (int s = 0; s < head.n_tokens; ++s) {
      const F weight = Simd::set1(w.kept[s]);
      for (int j = 0; j < N; ++j)
        Simd::store(kept + s * kWidth + j * 16,
                    Simd::mul(weight, Simd::load(u + s * kWidth + j * 16)));
    }
    const F decay = Simd::set1(w.decay[head.n_tokens - 1]);
    int key = 0;
    for (; key + kTileRows <= head.key_dim; key += kTileRows) update_keys<kTileRows>(key, decay);
    for (; key < head.key_dim; ++key) update_keys<1>(key, decay);
  }
};

template <Rule kRule, int N>
inline void scan_strips(const DeltaStrip& head, const ChunkKeys& keys, const ChunkWeights& w,
                        int first) {
  alignas(64) float u[kScanChunk * N * kDeltaLanes], kept[kScanChunk * N * kDeltaLanes];
  float* const state = static_cast<float*>(head.state) + ptrdiff_t{first} * head.key_dim;
  const ChunkStrips<kRule, N> strips{head, keys, w, first, state, u, kept};
  kRule != Rule::kStateSpace ? strips.solve() : strips.take_values();
  strips.read();
  strips.update();
}

template <Rule kRule>
void scan_chunk(const DeltaStrip& head, const ChunkKeys& keys) {
  ChunkWeights w;
  weigh<kRule>(head, keys, w);
  int first = 0;
  if constexpr (kTileStrips > 1) {
    for (; first + (kTileStrips - 1) * kDeltaLanes < head.n_features;
         first += kTileStrips * kDeltaLanes)
      scan_strips<kRule, kTileStrips>(head, keys, w, first);
  }
  for (; first < head.n_features; first += kDeltaLanes) scan_strips<kRule, 1>(head, keys, w, first);
}

}  // namespace
}  // namespace penstock
