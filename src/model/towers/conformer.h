// Conformer layers of a tower that hears (Granite Speech): half a feed-forward, attention within windows
// with terms of the distance (Shaw), a convolution over time, and the other half.
#pragma once
#include <memory>
#include <vector>

#include "model/load/tensor_loader.h"
#include "model/tensors/weights.h"
#include "model/towers/tower_config.h"

namespace penstock {

class Conformer {
 public:
  // Errors: those of TensorLoader, kUnsupported (a backend without what it computes).
  static Result<std::unique_ptr<Conformer>> load(TensorLoader& tensors, const TowerConfig& config);
  // Computes layers [first, end) of the batch's sequences, windows that follow each other: x:
  // [tokens, model_dim], of which n rows count.
  void forward(int first, int end, Tensor x, int n, KvCache& cache, Ops& ops) const;
  int64_t bytes() const;
  // Values of a row that a step takes beside the stream.
  static int64_t row_values(const TowerConfig& config);

 private:
  struct FeedForward {
    NormWeights norm;
    LinearWeights up, down;
  };
  struct Layer {
    FeedForward before, behind;
    NormWeights attention_norm, convolution_norm, norm;
    LinearWeights q, kv, o;
    std::unique_ptr<Weight> distances;  // [2 * window - 1, head_dim]: embeddings, the latest first
    LinearWeights widen, narrow;        // [2 * inner, dim] values and gates; [dim, inner]
    // The convolution with the norm behind it: [inner] of each tap, and what is added.
    std::vector<std::unique_ptr<Vector>> taps;
    std::unique_ptr<Vector> added;
  };
  struct Scratch;
  explicit Conformer(const TowerConfig& config) : config_(config) {}
  Status load_layer(TensorLoader& tensors, const std::string& at, Layer& layer);
  Status load_feed_forward(TensorLoader& tensors, const std::string& at, FeedForward& out);
  Status load_convolution(TensorLoader& tensors, const std::string& at, Layer& layer);
  void feed_forward(const FeedForward& half, const Scratch& s, Tensor x, Ops& ops) const;
  void attend(const Layer& layer, const Scratch& s, Tensor x, KvCache& cache, Ops& ops) const;
  void convolve(const Layer& layer, const Scratch& s, Tensor x, int n, Ops& ops) const;
  void add_middle(Tensor x, Ops& ops) const;
  int inner() const { return config_.layers.q_dim(); }
  NormParams params(const NormWeights& norm) const {
    return {norm.weight.get(), norm.bias.get(), config_.layers.norm.eps, true};
  }

  const TowerConfig& config_;  // the tower's
  std::vector<Layer> layers_;
  LinearWeights classes_, of_classes_;  // TowerConformer::middle
  std::unique_ptr<Vector> columns_;     // RelativeTerms::columns
};

}  // namespace penstock
