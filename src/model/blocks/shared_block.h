// Blocks of attention and a feed-forward whose weights several layers share (Zamba 2). A block reads
// the stream beside the first layer's input: y = attention(norm([x | x0])); z = feed-forward(norm(y)); the layer
// adds a projection of z to the input of its mixer. Each use of a block has low-rank additions of its
// own to the projections (adapters).
#pragma once
#include <vector>

#include "model/blocks/sublayer.h"
#include "model/tensors/specs.h"

namespace penstock {

namespace tensor {
inline constexpr TensorName kCommonNorm{"shared_norm", "shared_transformer.input_layernorm"};
inline constexpr TensorName kCommonQ{"shared_q", "shared_transformer.self_attn.q_proj"};
inline constexpr TensorName kCommonK{"shared_k", "shared_transformer.self_attn.k_proj"};
inline constexpr TensorName kCommonV{"shared_v", "shared_transformer.self_attn.v_proj"};
inline constexpr TensorName kCommonO{"shared_o", "shared_transformer.self_attn.o_proj"};
inline constexpr TensorName kCommonFfnNorm{"shared_ffn_norm",
                                           "shared_transformer.pre_ff_layernorm"};
inline constexpr TensorName kCommonGateUp{"shared_gate_up",
                                          "shared_transformer.feed_forward.gate_up_proj"};
inline constexpr TensorName kCommonDown{"shared_down", "shared_transformer.feed_forward.down_proj"};
inline constexpr TensorName kCommonResult{"shared_result", "linear"};
// All of the above but kCommonResult, where files repeat them.
inline constexpr TensorName kCommonAgain{"shared_", "shared_transformer"};
}  // namespace tensor

struct SharedConfig {
  int ffn_dim = 0;  // features of the feed-forward; 0: no layer has such a block
  int rank = 0;     // of adapters
  // Queries, keys and values have adapters; those of the feed-forward always exist.
  bool adapts_attention = false;
  bool operator==(const SharedConfig&) const = default;
};

// x += out(in(h))
struct LowRankWeights {
  LinearWeights in, out;
};

// What one use of a block adds to its projections.
struct SharedAdapters {
  LowRankWeights q, k, v, gate_up;
};

// Weights of a layer with a block: of those that share one, the first has it with all adapters.
struct SharedWeights {
  NormWeights norm, ffn_norm;            // [2 * model_dim], [model_dim]
  LinearWeights q, k, v, o;              // of 2 * model_dim inputs each; [model_dim, q]
  LinearWeights gate_up, down;           // [2 * ffn_dim, model_dim]: gates, then values
  std::vector<SharedAdapters> adapters;  // by use, empty for uses of other blocks
  LinearWeights result;                  // [model_dim, model_dim]: of this layer
};

struct ModelConfig;
// Returns how many layers before this one have a shared block.
int use_of_shared(const ModelConfig& config, int layer);

void visit(TensorVisitor& v, SharedWeights& w);

class SharedBlock {
 public:
  // REQUIRES: `first` [n, model_dim], the first layer's input, stays as it is.
  SharedBlock(Sublayer& sublayer, Tensor first);
  // Returns x + result(block(x)).
  Tensor forward(int layer, Tensor x);

 private:
  void attend(int layer, const SharedWeights& w, const SharedAdapters& adapters);
  void feed(const SharedWeights& w, const SharedAdapters& adapters);
  void adapt(const LowRankWeights& adapter, Tensor in, Tensor out);

  Sublayer& s_;
  Tensor wide_, first_;  // [n, 2 * model_dim], and its second half's source
  Tensor q_, k_, v_, attended_;
  Tensor low_;                    // [n, rank]
  Tensor added_;                  // [n, widest projection]
  Tensor inner_, gate_up_, ffn_;  // [n, model_dim], [n, 2 * ffn_dim], [n, ffn_dim]
  Tensor sum_;                    // [n, model_dim]
};

}  // namespace penstock
