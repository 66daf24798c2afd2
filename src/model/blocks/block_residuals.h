// Residuals over blocks of layers (Inkling 2): the sum of what a block of layers gives is kept when the
// block ends. What a sub-layer reads is a mean of the kept sums and of the open one, each divided by its
// root mean square, with weights by softmax of their products with a learned query.
#pragma once
#include <vector>

#include "model/blocks/sublayer.h"

namespace penstock {

struct BlockResidualsConfig {
  int layers = 0;  // of a block; 0 = there are none
  bool operator==(const BlockResidualsConfig&) const = default;
};

// The queries of one layer, [model_dim] each.
struct BlockQueries {
  // Inputs of attention: one stream, or one each for queries, keys and values; empty: the open sum.
  std::vector<std::unique_ptr<Weight>> attention;
  std::unique_ptr<Weight> feed_forward;
};

class BlockResiduals {
 public:
  // Takes scratch memory for n tokens.
  BlockResiduals(const ModelConfig& config, int n, Ops& ops);
  // Keeps a sum.
  void keep(Tensor sum);
  // out = mean for this query of the kept sums and `open`.
  void read(const Weight& query, Tensor open, Tensor out);

 private:
  Tensor place(int i) const { return sums_.columns(i * dim_, dim_); }

  Ops& ops_;
  const int dim_;
  int n_kept_ = 0;
  Tensor sums_;    // [n, most sums * model_dim], normed
  Tensor shares_;  // [n, most sums]
};

}  // namespace penstock
