// What the sub-layers of one forward share. n tokens of all sequences are the rows of every tensor.
#pragma once
#include <string_view>

#include "model/tensors/weights.h"
#include "ops/batch.h"
#include "ops/ops.h"

namespace penstock {

struct ModelConfig;
struct ModelWeights;

// What norms of the residual stream compute.
struct NormConfig {
  // Addend of the variance under the root: 0..1.
  float eps = 1e-5f;
  // Layer norms, which subtract the mean; false: values are divided by their root mean square.
  bool layer_norm = false;
  // Biases of layer norms.
  bool biases = true;
  // Norms without weights (OLMo).
  bool bare = false;
  // Addend of stored weights: 1 in files that hold them less one (Gemma).
  float offset = 0.0f;
  // Norms of what output and down projections read, too (BitNet).
  bool sub_norms = false;
};

enum class NormPlacement : uint8_t {
  kPre,    // x += f(norm(x))
  kPost,   // x += norm(f(x))
  kBoth,   // x += norm(f(norm(x)))
  kAfter,  // x = norm(x + f(x))
};

// How sub-layers f read the residual stream x and add to it.
struct ResidualConfig {
  NormPlacement norms = NormPlacement::kPre;
  // Norm before the first layer; false: that layer reads the stream as it is.
  bool first_norm = true;
  // Attention and feed-forward read the same stream: x += attention(norm(x)) + feed-forward(norm(x)).
  bool parallel = false;
  // Norm of its own for the feed-forward of such a layer.
  bool parallel_norms = false;
  // Sums with the norm that was read in the stream's place: x = n + f(n), where n = norm(x).
  bool adds_to_norm = false;
  // Layers of one sub-layer: attention, a mixer or a feed-forward, with one norm before it.
  bool one_mixer = false;
  // Factor of everything that is added.
  float scale = 1.0f;
  // Number in the file, for each layer, that the stream is multiplied by behind it.
  bool layer_scales = false;
};

// How linear layers round (BitNet).
struct RoundingConfig {
  // Inputs of linear layers, rounded to 8 bits per token.
  bool activations = false;
  // Weights rounded to {-1, 0, 1} * mean(|w|) at load (master weights).
  bool ternary_weights = false;
  // Packed weights {-1, 0, 1} over the file's weight_scale; false: times weight_scale.
  bool divide_scale = false;
};

std::string_view difference(const NormConfig& a, const NormConfig& b);
std::string_view difference(const ResidualConfig& a, const ResidualConfig& b);
std::string_view difference(const RoundingConfig& a, const RoundingConfig& b);

NormParams norm_params(const ModelConfig& config, const NormWeights& norm);

// The step's backend and cache, and how a sub-layer adds to the stream.
class Sublayer {
 public:
  Sublayer(const ModelConfig& config, const ModelWeights& weights, StepShape shape, KvCache& cache, Ops& ops);

  // x += post(delta), where there is such a norm; then `next` is prepared (null: nobody reads x yet).
  // partial: delta is a share of the sum over the ranks.
  void add(Tensor delta, bool partial, Tensor x, const NormWeights& post, const NormedInput* next);
  // x += post(in weight^T); a model without a norm behind the sub-layer has it empty, and may have a multiplier in its place.
  void add_product(Tensor in, const LinearWeights& product, Tensor x, const NormWeights& post,
                   const NormedInput* next, float multiplier = 1.0f);
  // x between the zeros that the weights' other inputs are (LinearWeights::lead).
  Tensor padded(Tensor x, const LinearWeights& product);
  // h as products read it where activations are rounded first.
  NormedInput rounded(const NormedInput& h);
  void multiply(Tensor x, float factor);

  const ModelConfig& config;
  const ModelWeights& weights;
  KvCache& cache;
  Ops& ops;
  const int n;  // tokens of the step
  Tensor out;   // [n, model_dim]: what a sub-layer is about to add

 private:
  Tensor padded_;  // [n, what a product reads at most, with ModelWeights::padding]
};

}  // namespace penstock
