// Recurrences over the tokens of one sequence. A part of the state that the first cache holds stays there while all
// tokens pass it; what comes out does not depend on how the tokens are cut into steps.
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
  float skip = 0;  // state_space() alone
};

//
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
};

}  // namespace penstock
