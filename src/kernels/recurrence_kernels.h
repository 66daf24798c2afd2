// Recurrences over the tokens of one sequence. Token by token: the state stays in the first-level
// cache strip by strip while all tokens pass, and results do not depend on how tokens are split
// into steps. In chunks: as products of matrices, for long runs of tokens; the last digits of
// results may depend on the split.
#pragma once
#include <cstddef>
#include <cstdint>

namespace penstock {

// features of a value head whose state is kept and updated together
inline constexpr int kDeltaLanes = 16;

// The gated delta rule (Yang et al., Gated Delta Networks) for at most kDeltaLanes features v of
// one value head. Lanes of the state S [key_dim, kDeltaLanes] beyond n_features are zero. For every
// token
//   S = decay S;  S += k (beta (v - S^T k))^T;  out = S^T q.
struct DeltaStrip {
  void* state;                        // in the kernel's StateFormat
  int key_dim, n_features, n_tokens;  // n_tokens >= 1
  // Inputs of the first token: [key_dim], [key_dim], [n_features]; those of the next token are
  // `stride` floats further.
  const float *q, *k, *v;
  ptrdiff_t stride;
  // of the first token: one number; for delta_rule_by_key [key_dim] decays
  const float *decay, *beta;
  ptrdiff_t decay_stride, beta_stride;
  float* out;  // [n_features]
  ptrdiff_t out_stride;
  float skip = 0;  // for state_space
  // for channel_scan: [key_dim][kDeltaLanes] rates
  const float* rates = nullptr;
};

inline constexpr int kScanChunk = 16;  // maximum tokens of a chunk

// Intermediate results of a chunk of tokens that all value heads of a key head share, in the
// caller's memory. Rows of kScanChunk numbers are indexed by token; places beyond the chunk's last
// token are undefined.
struct ChunkKeys {
  ChunkKeys(int key_dim, float* memory)
      : k(memory),
        q(k + kScanChunk * key_dim),
        decays(q + kScanChunk * key_dim),
        between(decays + kScanChunk * key_dim),
        rows(between + kScanChunk * key_dim),
        left(rows + kScanChunk * key_dim),
        kq(left + key_dim),
        kk(kq + kScanChunk * kScanChunk) {}
  static size_t floats(int key_dim) {
    return static_cast<size_t>(5 * kScanChunk + 1) * static_cast<size_t>(key_dim) +
           static_cast<size_t>(2 * kScanChunk * kScanChunk);
  }

  // [key_dim][kScanChunk]; the last two are scratch of decays by key
  float *k, *q, *decays, *between;
  float* rows;  // [kScanChunk][key_dim]: transpose of k
  // [key_dim]: the product of a chunk's decays by key
  float* left;
  // [s][t]: k(s) q(t), k(s) k(t); kk for the delta rule alone
  float *kq, *kk;
};

// Number format of states, each with its own kernels. BF16 states are widened to F32 for the
// computation and output of a token, and rounded to nearest even after each token.
enum class StateFormat : uint8_t { kF32, kBF16 };
inline constexpr int kStateFormats = 2;
// Returns the position of a lane of a key in a BF16 state: lanes i and i + 8 are the halves of a
// 32-bit word, which two instructions separate.
constexpr int bf16_place(int lane) {
  return lane % (kDeltaLanes / 2) * 2 + lane / (kDeltaLanes / 2);
}

struct RecurrenceKernels {
  using Kernel = void (*)(const DeltaStrip& strip);
  Kernel delta_rule[kStateFormats];
  // As delta_rule, with a decay for each key dimension (Kimi Delta Attention):
  //   S = diag(decay) S;  S += k (beta (v - S^T k))^T;  out = S^T q.
  Kernel delta_rule_by_key[kStateFormats];
  // A scan of Mamba 2 (Dao and Gu, state space duality) on the same strips: k is B, q is C and beta
  // the time step:
  //   S = decay S + k (beta v)^T;  out = S^T q + skip v.
  Kernel state_space[kStateFormats];
  // A scan of Mamba 1: lanes are channels, beta [n_features] time steps, one for each channel, and
  // decay is not read:
  //   S = exp(rates beta) S + k (beta v)^T;  out = S^T q.
  Kernel channel_scan[kStateFormats];
  // Chunked kernels, for all features of a value head and at most kScanChunk tokens, with F32
  // states. n_features may be any number; the state consists of consecutive strips of kDeltaLanes
  // features. First `keys` computes what `scan` needs of q, k and decays by key, once for all heads
  // that share these; `scan` reads the other inputs.
  struct Chunks {
    void (*keys)(const DeltaStrip& strip, const ChunkKeys& to);
    void (*scan)(const DeltaStrip& head, const ChunkKeys& keys);
  };
  Chunks delta_rule_chunks, delta_rule_by_key_chunks, state_space_chunks;
};

}  // namespace penstock
