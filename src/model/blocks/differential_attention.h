// Differential attention (arXiv 2410.05258): x += (1 - start) norm(a - strength b) o, where a and b are
// attended values of a head of the first and of the second half of the heads.
//
// Values of a head are those of two heads of the projection, one of each half, so that they have
// twice the features of a key. The cache has heads of that size; keys have zeros behind their own
// features.
#pragma once
#include "model/blocks/sublayer.h"
#include "model/tensors/specs.h"

namespace penstock {

namespace tensor {
// whole names
inline constexpr TensorName kDiffQ1{"attn_lambda_q1", "self_attn.lambda_q1"};
inline constexpr TensorName kDiffK1{"attn_lambda_k1", "self_attn.lambda_k1"};
inline constexpr TensorName kDiffQ2{"attn_lambda_q2", "self_attn.lambda_q2"};
inline constexpr TensorName kDiffK2{"attn_lambda_k2", "self_attn.lambda_k2"};
}  // namespace tensor

struct DifferentialWeights {
  LinearWeights q, k, v, o;
  float strength = 0.0f;  // exp(q1 k1) - exp(q2 k2) + start
};

void visit(TensorVisitor& v, DifferentialWeights& w);

class DifferentialAttention {
 public:
  explicit DifferentialAttention(Sublayer& sublayer);
  void forward(int layer, const NormedInput& h, Tensor x, const NormedInput* next);

 private:
  void spread(Tensor heads, Tensor to);
  void pair_values();

  Sublayer& s_;
  int key_dim_;
  Tensor q_, k_, v_;                  // as projected
  Tensor wide_q_, wide_k_, wide_v_;   // heads of twice as many features
  Tensor half_, pairs_;               // [n, half of v], [n, v]
  Tensor attended_, first_, second_;  // [n, wide q], its halves
};

}  // namespace penstock
