// Parameters of the operations with a state (Ops::causal_conv, gated_delta, state_space).
#pragma once
#include <cstdint>

#include "ops/tensor.h"

namespace penstock {

class Vector;

// A causal depthwise convolution over each sequence's tokens.
struct ConvParams {
  // [taps, channels]; the last tap is that of the token itself
  const Vector* weight = nullptr;
  const Vector* bias = nullptr;  // [channels] or null
  int taps = 0;
  int layer = 0;
  // Offset in the layer's state of the inputs of the previous taps - 1 tokens: [taps - 1,
  // channels].
  int64_t state_offset = 0;
  // [tokens, groups * taps] or no columns: added to the weights of a token, the same for all channels
  // of a group of neighbours; for each group its taps, the token itself first. REQUIRES: has_all().
  Tensor of_token = {};
};

// Keys of blocks of tokens, a sequence's tokens from pool * b on: means of the tokens' keys, weighted by a
// softmax over the tokens, for each feature, of scores + places.
struct PoolParams {
  const Vector* places = nullptr;  // [pool, width(features)]
  int pool = 1;
  // Keys and scores have two halves. A block's mean is that of the first halves of the tokens of the
  // block before and the second halves of its own tokens, in one softmax; that of a sequence's first
  // block has its own alone.
  bool overlaps = false;
  int layer = 0;
  // Offset in the layer's state of state_values() values: keys, then scores, of the previous taps() -
  // 1 tokens.
  int64_t state_offset = 0;

  int taps() const { return overlaps ? 2 * pool : pool; }  // tokens whose keys a block has
  int width(int features) const { return overlaps ? 2 * features : features; }
  int64_t state_values(int features) const { return (taps() - int64_t{1}) * width(features) * 2; }
};

// The gated delta rule. Each value head keeps a state S [key_dim, value_dim] for every sequence,
// zeros before the first token. q and k of its key head are normalized to unit length, and q is
// divided by sqrt(key_dim). For every token
//   S = decay S;  S += k (write_factor sigmoid(b) (v - S^T k))^T;  out = S^T q;
//   decay = exp(rate softplus(a + bias)), or exp(lowest_log_decay sigmoid(-rate (a + bias))),
// where decay is one number, or one for each row of S.
struct DeltaParams {
  const Vector* rate = nullptr;  // [n_value_heads]
  const Vector* bias = nullptr;  // [n_value_heads * decays_per_head()]
  int n_key_heads = 0, n_value_heads = 0, key_dim = 0, value_dim = 0;
  // Value head h uses key head h % n_key_heads; false: neighbouring value heads share a key head.
  bool key_heads_in_turn = false;
  bool decay_by_key = false;
  int layer = 0;
  // Offset in the layer's state of state_values() values, in the backend's layout.
  int64_t state_offset = 0;
  float write_factor = 1.0f;
  // Lower bound of a decay's logarithm; 0 = none, with softplus.
  float lowest_log_decay = 0.0f;

  int decays_per_head() const { return decay_by_key ? key_dim : 1; }

  // States have space for whole groups of features, for backends that compute with vectors.
  static constexpr int kFeatureGroup = 16;
  static int64_t state_values(int n_value_heads, int key_dim, int value_dim) {
    const int64_t groups = (value_dim + kFeatureGroup - 1) / kFeatureGroup;
    return groups * kFeatureGroup * n_value_heads * key_dim;
  }
};

// RWKV 6 and 7. Each head keeps a state S [head_dim, head_dim] for every sequence, zeros before the
// first token. For every token
//   S' = diag(decay) S + b (a^T S) + k v^T;  out = S'^T r, or S^T r;  bonus = (sum of r u k) v;
//   decay = exp(-exp(w)), or exp(-sigmoid(w) / sqrt(e)).
struct WkvParams {
  const Vector* u = nullptr;  // [n_heads * head_dim]
  int n_heads = 0, head_dim = 0;
  bool reads_before = false;  // out is of S
  bool by_sigmoid = false;    // the second decay
  int layer = 0;
  // Offset in the layer's state of n_heads * head_dim * head_dim values.
  int64_t state_offset = 0;
};

// Its inputs and outputs, [tokens, n_heads * head_dim] each.
struct WkvTensors {
  Tensor r, w, k, v;
  Tensor a, b;  // no columns: zeros
  Tensor out, bonus;
};

// A scan of Mamba 2. Each head keeps a state S [state_dim, head_dim] for every sequence, zeros
// before the first token. With B and C of its group, for every token
//   step = clamp(softplus(dt + bias));  S = exp(rate step) S + B (step x)^T;  out = S^T C + skip x.
struct StateSpaceParams {
  const Vector* rate = nullptr;  // [n_heads]
  const Vector* bias = nullptr;  // [n_heads] or null
  const Vector* skip = nullptr;  // [n_heads]
  int n_groups = 0, n_heads = 0, state_dim = 0,
      // n_heads / n_groups neighbouring heads share a group
      head_dim = 0;
  float min_step = 0.0f, max_step = 0.0f;
  int layer = 0;
  // See DeltaParams; the state has DeltaParams::state_values(n_heads, state_dim, head_dim) values.
  int64_t state_offset = 0;
  // A scan of Mamba 1: heads are channels of one feature (head_dim 1, one group), and each row of a
  // head's state has its own rate, in `rate` [n_heads, state_dim]. The state has
  // DeltaParams::state_values(1, state_dim, n_heads) values.
  bool by_channel = false;
  // RG-LRU (arXiv 2402.19427): step = sigmoid(dt + bias), and S grows by sqrt(1 - exp(2 rate step)) x,
  // at position 0 by x. REQUIRES: by_channel, state_dim 1. x is overwritten.
  bool gated_levels = false;
};

}  // namespace penstock
