// Attention over convolved queries and keys (compressed convolutional attention, arXiv 2510.04476;
// ZAYA): queries and keys pass two causal convolutions over the last tokens, one by channel and one by
// head; means of queries and keys are added; both get unit lengths times sqrt(head_dim), keys a factor
// for each head. One half of the values is of the token, the other of the token before.
#pragma once
#include <memory>
#include <vector>

#include "model/blocks/sublayer.h"
#include "model/tensors/specs.h"

namespace penstock {

namespace tensor {
inline constexpr TensorName kConvolvedQ{"", "self_attn.qkv_proj.q_proj"};
inline constexpr TensorName kConvolvedK{"", "self_attn.qkv_proj.k_proj"};
inline constexpr TensorName kCurrentV{"", "self_attn.qkv_proj.v_proj_current"};
inline constexpr TensorName kDelayedV{"", "self_attn.qkv_proj.v_proj_delayed"};
inline constexpr TensorName kChannelConv{"", "self_attn.qkv_proj.conv_qk_depthwise"};
inline constexpr TensorName kHeadConv{"", "self_attn.qkv_proj.conv_qk_grouped"};
inline constexpr TensorName kHeadConvBias{"", "self_attn.qkv_proj.conv_qk_grouped.bias"};
inline constexpr TensorName kKeyFactors{"", "self_attn.qk_norm.temp"};  // whole name
}  // namespace tensor

struct ConvolvedConfig {
  // Tokens that the convolutions see, the last included: that by channel and that by head; 0 =
  // ordinary attention.
  int taps = 0, head_taps = 0;
  // The other half of the values is of the token before.
  static constexpr int kDelay = 1;

  int64_t state_values(int q_dim, int kv_dim) const {
    const int64_t channels = q_dim + kv_dim, delays = head_taps * (head_taps - int64_t{1}) / 2;
    return (taps - 1 + delays) * channels + kv_dim / 2;
  }
  bool operator==(const ConvolvedConfig&) const = default;
};

struct ConvolvedWeights {
  LinearWeights q, k;                       // [q_dim, model_dim], [kv_dim, model_dim]
  LinearWeights current, delayed;           // [kv_dim / 2, model_dim]: values
  std::unique_ptr<Vector> conv, conv_bias;  // [taps, q_dim + kv_dim]; [q_dim + kv_dim]
  // By head, of queries and then of keys: [head_dim, head_taps * head_dim], the oldest token first;
  // and what is added.
  ByHead head_conv;
  std::unique_ptr<Vector> head_bias;
  // For each number of tokens up to head_taps - 1 the convolution that looks so far back.
  std::vector<std::unique_ptr<Vector>> delays;
  std::unique_ptr<Vector> value_delay;
  std::unique_ptr<Vector> factors;  // [kv_dim]: of keys
  LinearWeights o;                  // [model_dim, q_dim]
};

// Every rank has all heads.
void visit(TensorVisitor& v, ConvolvedWeights& w);

class ConvolvedAttentionBlock {
 public:
  explicit ConvolvedAttentionBlock(Sublayer& sublayer);
  void forward(int layer, const NormedInput& h, Tensor x, const NormedInput* next);

 private:
  void project(int layer, const NormedInput& h);
  int64_t convolve(int layer);
  void add_means();

  Sublayer& s_;
  Tensor q_, k_, v_;    // [n, q_dim], [n, kv_dim], [n, kv_dim]
  Tensor delayed_;      // [n, kv_dim / 2]
  Tensor both_;         // [n, q_dim + kv_dim]: projected queries and keys
  Tensor conv_, seen_;  // of the same shape
  Tensor of_taps_;      // [n, head_taps * (q_dim + kv_dim)]
  Tensor attended_;     // [n, q_dim]
};

}  // namespace penstock
