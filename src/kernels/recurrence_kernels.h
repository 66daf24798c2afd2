// Recurrences over the tokens of one sequence: token by token, where a part of the state that the first cache holds stays there while
// all tokens pass it, and what comes out does not depend on how the tokens are cut into steps; or in chunks, as products of
// matrices, for long runs of tokens whose last digits may depend on the cuts.
#pragma once
#include <cstddef>
#include <cstdint>

namespace penstock {

inline constexpr int kDeltaLanes = 16;  // features of a value head whose state is kept and updated together

// The gated delta rule (Yang et al., Gated Delta Networks) for at most kDeltaLanes features v of one value head. State S
// [key_dim, kDeltaLanes], of which lanes beyond n_features are zero; for every token
//   S = decay S;  S += k (beta (v - S^T k))^T;  out = S^T q.
struct DeltaStrip {
  void* state;                        // of the kernel's type
  int key_dim, n_features, n_tokens;  // a token at least
  const float *q, *k,
      *v;  // of the first token [key_dim], [key_dim], [n_features]; the others are `stride` apart
  ptrdiff_t stride;
  const float *decay, *beta;  // of the first token: a number, of delta_rule_by_key [key_dim] decays
  ptrdiff_t decay_stride, beta_stride;
  float* out;  // [n_features]
  ptrdiff_t out_stride;
  float skip = 0;  // of state spaces alone
};

inline constexpr int kScanChunk = 16;  // most tokens of a chunk

// What a chunk of tokens has in common for all value heads of a key head, in memory that the caller has for it. Rows of kScanChunk
// are of tokens; in the places behind the chunk's last one there is anything.
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

  float *k, *q, *decays, *between;  // [key_dim][kScanChunk]; the last two are scratch of decays by key
  float* rows;                      // [kScanChunk][key_dim]: k once more
  float* left;                      // [key_dim]: the product of a chunk's decays by key
  float *kq, *kk;                   // [s][t]: k(s) q(t), k(s) k(t); kk for the delta rule alone
};

// A kernel for each type of states. Those in BF16 are widened to F32 for what a token computes and gives, and rounded to
// nearest even, which the next one reads, behind every token.
enum class StateFormat : uint8_t { kF32, kBF16 };
inline constexpr int kStateFormats = 2;
// Where a state in BF16 has a lane of a key: lanes i and i + 8 are the halves of a word, which two instructions take apart.
constexpr int bf16_place(int lane) { return lane % (kDeltaLanes / 2) * 2 + lane / (kDeltaLanes / 2); }

struct RecurrenceKernels {
  using Kernel = void (*)(const DeltaStrip& strip);
  Kernel delta_rule[kStateFormats];
  // The same with a decay of each key's own (Kimi Delta Attention):
  //   S = diag(decay) S;  S += k (beta (v - S^T k))^T;  out = S^T q.
  Kernel delta_rule_by_key[kStateFormats];
  // A scan of Mamba 2 (Dao and Gu, state space duality), on the same strips: B is the key, C the query and beta the time step;
  //   S = decay S + k (beta v)^T;  out = S^T q + skip v.
  Kernel state_space[kStateFormats];
  // The same for all features of a value head and at most kScanChunk tokens, with states in F32: n_features may be any number, and
  // strips of kDeltaLanes of them follow each other in the state. `keys` has made what `scan` wants to know of a strip's q and k
  // and, by key, decays, for all heads that share these; it reads the others alone.
  struct Chunks {
    void (*keys)(const DeltaStrip& strip, const ChunkKeys& to);
    void (*scan)(const DeltaStrip& head, const ChunkKeys& keys);
  };
  Chunks delta_rule_chunks, delta_rule_by_key_chunks, state_space_chunks;
};

}  // namespace penstock
