// A projector of queries (BLIP-2's Q-Former, Granite Speech): a few learned rows for each window of the
// tower's states see each other and the window, and become its tokens.
//
// Attention of so few rows is computed on the host, where the rows of windows lie side by side.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "model/load/tensor_loader.h"
#include "model/tensors/weights.h"
#include "model/towers/tower_config.h"

namespace penstock {

class QFormer {
 public:
  static Result<std::unique_ptr<QFormer>> load(TensorLoader& tensors, const TowerConfig& config);
  // states: [n, model_dim]; zeros fill the last window. Returns [tokens, text_dim]. REQUIRES: a step
  // without a batch is under way.
  Tensor forward(std::span<const float> states, Ops& ops) const;
  int64_t bytes() const;

 private:
  // What is attended to is projected; the result joins the queries, which are then normed.
  struct Attention {
    LinearWeights q, k, v, o;
    NormWeights norm;
  };
  struct Layer {
    Attention self, cross;  // cross: or empty
    LinearWeights up, down;
    NormWeights norm;
  };
  explicit QFormer(const TowerConfig& config) : config_(config) {}
  Status load_attention(TensorLoader& tensors, const std::string& at, int width, Attention& out);
  Status load_layer(TensorLoader& tensors, const std::string& at, bool crosses, Layer& layer);
  void attend(const Attention& attention, Tensor x, Tensor to, int n_keys, Ops& ops) const;
  void add_normed(const LinearWeights& linear, Tensor from, const NormWeights& norm, Tensor x,
                  Ops& ops) const;
  NormParams params(const NormWeights& norm) const {
    return {norm.weight.get(), norm.bias.get(), config_.queries.eps, true};
  }

  const TowerConfig& config_;  // the tower's
  std::vector<float> queries_;
  NormWeights norm_;
  std::vector<Layer> layers_;
  LinearWeights out_;
};

}  // namespace penstock
