// Products whose inputs and outputs have bounds of their own, from the file, and a tower's layers of such
// products (Gemma 4).
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/load/tensor_loader.h"
#include "model/tensors/weights.h"
#include "model/towers/tower_config.h"

namespace penstock {

struct ClippedLinear {
  LinearWeights weights;
  bool bounded = false;
  ActivationFunction inputs = Activation::kClamp, outputs = Activation::kClamp;

  // Loads the matrix called `at`, and its bounds, of which those that are absent are infinite. Errors:
  // those of TensorLoader, kCorruptFile.
  Status load(TensorLoader& tensors, const std::string& at, int outputs_, int inputs_,
              TowerLinears form);
  // out = x times the weights, within bounds. x is changed.
  void project(Tensor x, Tensor out, Ops& ops) const;
};

// Layers with norms around sub-layers and of heads, two rotations and gated feed-forwards.
class ClippedLayers {
 public:
  static Result<std::unique_ptr<ClippedLayers>> load(TensorLoader& tensors,
                                                     const TowerConfig& config);
  // Computes layers [first, end) of the batch's sequences: x: [tokens, model_dim].
  void forward(int first, int end, std::span<const RopeParams> ropes, Tensor x, KvCache& cache,
               Ops& ops) const;
  int64_t bytes() const;

 private:
  struct Layer {
    NormWeights attention_before, attention_behind, ffn_before, ffn_behind, q_norm, k_norm;
    ClippedLinear q, k, v, o, gate, up, down;
  };
  explicit ClippedLayers(const TowerConfig& config) : config_(config) {}
  Status load_layer(TensorLoader& tensors, const std::string& at, Layer& layer);

  const TowerConfig& config_;  // the tower's
  std::vector<Layer> layers_;
};

}  // namespace penstock
