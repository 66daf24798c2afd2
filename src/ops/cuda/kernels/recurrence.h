// Operations with a state (Ops::causal_conv, gated_delta, state_space). One thread computes all
// tokens of a sequence in order, for a channel or for a feature of a head, and updates the state at
// each, so that results do not depend on how the tokens are split into steps. BF16 states are
// rounded at each token.
#pragma once
#include "ops/cuda/kernels/batch.h"
#include "ops/cuda/kernels/rows.h"

namespace penstock::cuda {

// A layer's states, F32 or BF16; those of block b begin at b * values + offset.
struct States {
  void* data;
  int64_t values, offset;
  int group;  // index of the batch's KvOnDevice
  bool bf16;

  PENSTOCK_DEVICE int64_t of_block(int block) const { return block * values + offset; }
  // Calls f(pointer to the values of all blocks, typed as floats or BF16).
  template <class F>
  PENSTOCK_DEVICE void with_values(F&& f) const {
    bf16 ? f(static_cast<uint16_t*>(data)) : f(static_cast<float*>(data));
  }
};

// Grid::x = maximum number of sequences, Grid::y = groups of kThreads channels. The state is the
// inputs of the last taps - 1 tokens.
struct CausalConv {
  static constexpr int kThreads = 64;
  Rows x, out;
  const float *weight, *bias;  // [taps, channels], [channels] or null
  int taps;
  States states;
  const BatchOnDevice* batch;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Normalizes queries and keys to unit length and divides queries by sqrt(key_dim); a becomes the
// decay, b the weight of the update. Grid::x = rows.
struct PrepareDelta {
  static constexpr int kThreads = 128;
  Rows qkv, a, b;
  const float *rate, *bias;
  int n_key_heads, key_dim, decays_per_head;
  float write_factor, lowest_log_decay;  // see DeltaParams
  const BatchOnDevice* batch;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// dt becomes the step size, `decay` the factor of the state (without rates it is unchanged).
// Grid::x = rows.
struct PrepareSteps {
  static constexpr int kThreads = 32;
  Rows dt, decay;
  const float *rate, *bias;
  float min_step, max_step;
  const BatchOnDevice* batch;
  // Rates of RG-LRU, whose inputs are divided by the steps, since scans multiply by them; or null.
  const float* level_rates;
  Rows x;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// State [head][key][feature] per sequence. With `delta`: S = decay S; S += k (beta (v - S^T k))^T;
// out = S^T q. Otherwise: S = decay S + k (beta v)^T; out = S^T q + skip v. With `rates` there is
// one head, each feature has its own beta and skip, and decay = exp(rates beta). Grid::x = maximum
// number of sequences, Grid::y = heads * groups of kThreads features.
struct ScanStates {
  static constexpr int kThreads = 32;
  Rows qkv, decay, beta, out;
  int q_at, k_at, v_at;      // first columns in qkv
  int n_key_heads, n_heads;  // of keys and queries; of values
  int key_dim, value_dim;
  bool delta, key_heads_in_turn;
  int decays_per_head;
  const float* skip;   // [n_heads], with rates [value_dim], or null
  const float* rates;  // [value_dim, key_dim] or null
  States states;
  const BatchOnDevice* batch;

  static int parts_of(int value_dim) { return (value_dim + kThreads - 1) / kThreads; }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
