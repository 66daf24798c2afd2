// Attention by heads: x += softmax(q k^T) v o of h over the cache.
#pragma once
#include <memory>

#include "model/blocks/sublayer.h"
#include "model/tensors/specs.h"

namespace penstock {

namespace tensor {
// sinks: a whole name.
inline constexpr TensorName kQ{"attn_q", "self_attn.q_proj"};
inline constexpr TensorName kK{"attn_k", "self_attn.k_proj"};
inline constexpr TensorName kV{"attn_v", "self_attn.v_proj"};
inline constexpr TensorName kQkv{"attn_qkv", "self_attn.qkv_proj"};
inline constexpr TensorName kO{"attn_output", "self_attn.o_proj"};
inline constexpr TensorName kGates{"attn_gate", "self_attn.g_proj"};
inline constexpr TensorName kQNorm{"attn_q_norm", "self_attn.q_norm"};
inline constexpr TensorName kKNorm{"attn_k_norm", "self_attn.k_norm"};
inline constexpr TensorName kAttnSubNorm{"attn_sub_norm", "self_attn.attn_sub_norm"};
inline constexpr TensorName kSinks{"attn_sinks.weight", "self_attn.sinks"};
}  // namespace tensor

enum class QkNorm : uint8_t {
  kNone,
  kHead,   // every head's head_dim values, all heads with the same weights
  kHeads,  // every head's head_dim values, each head with its own weights
  kRow,    // all heads of a token together
  kPlain,  // every head's head_dim values, without weights, where they are rotated (Llama 4)
};

struct AttentionConfig {
  QkNorm qk_norm = QkNorm::kNone;
  // Rotation of queries and keys before their norms, not behind.
  bool rope_before_norm = false;
  // Values of every head, divided by their root mean square.
  bool value_norm = false;
  // Bound of what is rotated or cached: queries, keys and values are clamped to +- this; 0 = no bound.
  float clip = 0.0f;

  // Layout of a fused projection in this file: by KV head its queries, key and value; false: all queries, keys, values.
  bool qkv_by_group = false;
  // Shards of a fused projection, of each the queries, the values and the keys; 0: it has none.
  int qkv_shards = 0;

  // Sigmoid of a projection beside the query's, which multiplies what was attended to.
  bool gated = false;
  // The same, but a number for each head, by a projection of its own.
  bool head_gates = false;
  // The same, but a number for each value of each head, by a projection of its own.
  bool value_gates = false;

  // Factor of scores q k: always set after reading, usually head_dim^-1/2.
  float scale = 0.0f;
  // Growth of queries with their position, in layers that say so (LayerConfig::query_scale).
  PositionScale query_scale;
  // Soft bound of scores, softcap * tanh(score / softcap); 0 = no bound.
  float softcap = 0.0f;
  // Score for each head that takes part in the softmax and has no value (gpt-oss).
  bool sinks = false;
  // Factors of what queries, keys and values are projected from (in layers with a mixer beside), of the output, and of keys (Falcon-H1).
  float in_factor = 1.0f;
  float out_factor = 1.0f;
  float key_factor = 1.0f;
  // ALiBi: slopes of heads go down to 2^-this; 0 = no slopes.
  float alibi_max_bias = 0.0f;
  // ALiBi's biases multiplied by `scale`, like scores (Falcon).
  bool alibi_scaled = false;
  // Tokens see those before them only; false: all of their sequence, which must be one step.
  bool causal = true;
};

std::string_view difference(const AttentionConfig& a, const AttentionConfig& b);

// For qkv_by_group and qkv_shards: row r of q, k and v one after the other is row rows_by_group()[r] of the fused projection.
std::vector<int> rows_by_group(const ModelConfig& config);

struct AttentionWeights {
  LinearWeights q, k, v, o;  // q with a gate behind every head's query where there are gates
  NormWeights q_norm, k_norm, sub_norm;
  std::unique_ptr<Vector> sinks;  // [n_heads] or null
  LinearWeights gates;            // [n_gates_of(), model_dim] or empty
};

void visit(TensorVisitor& v, AttentionWeights& w);

class AttentionBlock {
 public:
  explicit AttentionBlock(Sublayer& sublayer);
  void forward(int layer, const NormedInput& h, Tensor x, const NormedInput* next);

 private:
  // A layer's own, in the scratch of all.
  struct Heads {
    Tensor q, k, v;  // k and v are empty where an earlier layer's are attended to
  };
  Heads project_heads(int layer, const NormedInput& h);
  void norm_heads(int layer, const Heads& heads);
  const RopeParams* prepare_heads(int layer, const Heads& heads);
  void store(int layer, const Heads& heads, const RopeParams* rope);
  Tensor half_heads(Tensor x, int half) const;

  Sublayer& s_;
  Tensor q_, k_, v_;  // [n, heads * head_dim] of the layer that has most
  Tensor attended_;   // as q
  Tensor gated_q_;    // [n, 2 * q_dim]: of every head its query and its gate
  Tensor gates_;      // [n, n_heads] or [n, q_dim]
};

}  // namespace penstock
