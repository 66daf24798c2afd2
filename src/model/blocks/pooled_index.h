// An indexer over blocks of tokens (Qwen4's QSA): the key of a block is the normed mean of its
// tokens' keys, rotated by the position of its first token; queries are normed by head. The open
// block is the layer's state: the keys of the last tokens, of which a convolution makes means.
#pragma once
#include <memory>

#include "model/blocks/indexer.h"
#include "model/blocks/sublayer.h"
#include "model/tensors/specs.h"

namespace penstock {

namespace tensor {
inline constexpr TensorName kPooledIndexQk{"", "self_attn.indexer.index_qk_proj"};
inline constexpr TensorName kPooledIndexQ{"indexer.q_proj", ""};
inline constexpr TensorName kPooledIndexK{"indexer.k_proj", ""};
inline constexpr TensorName kPooledIndexQNorm{"indexer.q_norm", "self_attn.indexer.q_layernorm"};
inline constexpr TensorName kPooledIndexKNorm{"indexer.k_norm", "self_attn.indexer.k_layernorm"};
}  // namespace tensor

struct PooledIndexWeights {
  LinearWeights q, k;            // [n_heads * head_dim, model_dim]; [head_dim, model_dim]
  NormWeights q_norm, k_norm;    // [head_dim]
  std::unique_ptr<Vector> ones;  // [pool, head_dim]: taps of a sum
};

// Every rank has all of it, and selects the same tokens.
void visit(TensorVisitor& v, PooledIndexWeights& w);

class PooledIndex {
 public:
  explicit PooledIndex(Sublayer& sublayer);
  // Stores the keys of this step's blocks and returns what each token attends to
  // (AttentionParams::selected), valid until the next call.
  Tensor select(int layer, const NormedInput& h, const PooledIndexWeights& w);

 private:
  Sublayer& s_;
  // [n, n_heads * head_dim], [n, head_dim] as projected, [n, head_dim] of blocks
  Tensor q_, raw_, k_;
  Tensor selected_;  // [n, SelectParams::most()]
};

}  // namespace penstock
