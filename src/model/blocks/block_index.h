// An indexer by KV head (MiniMax M3's MSA): each KV head has a query of its own, all have one key
// for each token. Blocks of tokens are scored by their best token, and a head's queries attend to the
// tokens of the best blocks and of the last ones.
#pragma once
#include "model/blocks/indexer.h"
#include "model/blocks/sublayer.h"
#include "model/tensors/specs.h"

namespace penstock {

namespace tensor {
inline constexpr TensorName kBlockIndexQ{"indexer.q_proj", "self_attn.index_q_proj"};
inline constexpr TensorName kBlockIndexK{"indexer.k_proj", "self_attn.index_k_proj"};
inline constexpr TensorName kBlockIndexQNorm{"indexer.q_norm", "self_attn.index_q_norm"};
inline constexpr TensorName kBlockIndexKNorm{"indexer.k_norm", "self_attn.index_k_norm"};
}  // namespace tensor

struct BlockIndexWeights {
  LinearWeights q, k;          // [n_kv_heads * head_dim, model_dim]; [head_dim, model_dim]
  NormWeights q_norm, k_norm;  // [head_dim]
};

// Every rank has the key, and the queries of its KV heads.
void visit(TensorVisitor& v, BlockIndexWeights& w);

class BlockIndex {
 public:
  explicit BlockIndex(Sublayer& sublayer);
  // Stores the keys of this step's tokens and returns what each token attends to
  // (AttentionParams::selected), valid until the next call.
  Tensor select(int layer, const NormedInput& h, const BlockIndexWeights& w);

 private:
  SelectParams params(int layer) const;

  Sublayer& s_;
  Tensor q_, k_;     // [n, n_kv_heads * head_dim], [n, head_dim]
  Tensor selected_;  // [n, SelectParams::cols()]
};

}  // namespace penstock
