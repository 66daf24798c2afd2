// Operations with a state (Ops::causal_conv, gated_delta, state_space). One thread takes all tokens
// of a sequence in their order, for a channel or for a feature of a head, and keeps the state
// behind each of them: what comes out does not depend on how the tokens are cut into steps. States
// in BF16 are rounded there.
#pragma once
#include "ops/cuda/kernels/batch.h"
#include "ops/cuda/kernels/rows.h"

namespace penstock::cuda {

// A layer's states, in F32 or BF16; the block b has the values from b * values + offset on.
struct States {
  void* data;
  int64_t values, offset;
  int group;  // of the batch's KvOnDevice
  bool bf16;

  PENSTOCK_DEVICE int64_t of_block(int block) const { return block * values + offset; }
  // f(values of all blocks, as floats or as BF16)
  template <class F>
  PENSTOCK_DEVICE void with_values(F&& f) const {
    bf16 ? f(static_cast<uint16_t*>(data)) : f(static_cast<float*>(data));
  }
};

// Grid::x = sequences, at most, Grid::y = parts of kThreads channels. The state is the inputs of
// the taps - 1 tokens before.
struct CausalConv {
  static constexpr int kThreads = 64;
  Rows x, out;
  const float *weight, *bias;  // [taps, channels], [channels] or null
  int taps;
  States states;
  const BatchOnDevice* batch;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Queries and keys at unit length, the queries divided by sqrt(key_dim); a becomes the decay, b
// what weighs the update. Grid::x = rows.
struct PrepareDelta {
  static constexpr int kThreads = 128;
  Rows qkv, a, b;
  const float *rate, *bias;
  int n_key_heads, key_dim, decays_per_head;
  const BatchOnDevice* batch;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// dt becomes the step, and `decay` how much of the state stays. Grid::x = rows.
struct PrepareSteps {
  static constexpr int kThreads = 32;
  Rows dt, decay;
  const float *rate, *bias;
  float min_step, max_step;
  const BatchOnDevice* batch;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// A state [head][key][feature] of each sequence; with `delta`
//   S = decay S;  S += k (beta (v - S^T k))^T;  out = S^T q,  otherwise  S = decay S + k (beta v)^T;  out = S^T q + skip v.
// Grid::x = sequences, at most, Grid::y = heads * parts of kThreads features.
struct ScanStates {
  static constexpr int kThreads = 32;
  Rows qkv, decay, beta, out;
  int q_at, k_at, v_at;      // columns of qkv where they begin
  int n_key_heads, n_heads;  // of keys and queries, of values
  int key_dim, value_dim;
  bool delta, key_heads_in_turn;
  int decays_per_head;
  const float* skip;  // [n_heads] or null
  States states;
  const BatchOnDevice* batch;

  static int parts_of(int value_dim) { return (value_dim + kThreads - 1) / kThreads; }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
