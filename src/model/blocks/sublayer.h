// State that the sub-layers of one forward share. Rows of all tensors are the n tokens of all
// sequences of a step.
#pragma once
#include <string_view>

#include "model/tensors/weights.h"
#include "ops/batch.h"
#include "ops/ops.h"

namespace penstock {

struct ModelConfig;
struct ModelWeights;

// Configuration of the norms of the residual stream.
struct NormConfig {
  // Added to the variance under the root: 0..1.
  float eps = 1e-5f;
  // The same of norms behind sub-layers; 0 = eps.
  float post_eps = 0.0f;
  // Layer norms, which subtract the mean; false: values are divided by their root mean square.
  bool layer_norm = false;
  // Layer norms have biases.
  bool biases = true;
  // Norms without weights (OLMo).
  bool bare = false;
  // > 0: norms before attention and before experts have gates of this rank (NormGate).
  int gate_rank = 0;
  // Added to stored weights: 1 in files that store them less one (Gemma).
  float offset = 0.0f;
  // The final norm's weights are stored as applied, whatever the offset of the others (Muse
  // Glimmer).
  bool plain_final = false;
  // Inputs of output and down projections are normed too (BitNet).
  bool sub_norms = false;
};

enum class NormPlacement : uint8_t {
  kPre,    // x += f(norm(x))
  kPost,   // x += norm(f(x))
  kBoth,   // x += norm(f(norm(x)))
  kAfter,  // x = norm(x + f(x))
  kNone,   // x += f(x): other blocks norm the stream
};

// How columns of the residual stream are weighed where a sub-layer joins it (weighted_residual.h).
enum class ResidualWeighing : uint8_t { kNone, kShares, kScales };

// How sub-layers f read the residual stream x and add to it.
struct ResidualConfig {
  NormPlacement norms = NormPlacement::kPre;
  // The input of a layer is added again behind the norm of attention, and another norm follows
  // (Jina v2 of code). REQUIRES: NormPlacement::kAfter, bert_forward.
  bool adds_twice = false;
  // The first layer norms its input; false: it reads the stream unchanged.
  bool first_norm = true;
  // Attention and feed-forward read the same stream: x += attention(norm(x)) +
  // feed-forward(norm(x)).
  bool parallel = false;
  // The feed-forward of a parallel layer has a norm of its own.
  bool parallel_norms = false;
  // The normed stream replaces the residual: x = norm_factor n + f(n), where n = norm(x).
  bool adds_to_norm = false;
  float norm_factor = 1.0f;
  ResidualWeighing weighing = ResidualWeighing::kNone;
  float share_temperature = 1.0f;
  // What attention and feed-forward add is multiplied by a vector each (InternVL).
  bool column_scales = false;
  // Layers of one sub-layer: attention, a mixer or a feed-forward, with one norm before it.
  bool one_mixer = false;
  // Multiplies everything that sub-layers add to the stream.
  float scale = 1.0f;
  // Layers read states of layers before them beside the stream (loops): pipelines are not cut there.
  bool recalls = false;
  // Layers of each of two stacks that are computed in turn, and how often the first one is before the
  // second (HRM, hrm_forward); 0 = there are no stacks.
  int stack_layers = 0, low_passes = 0;
  // The file has a number for each layer by which the stream is multiplied after the layer.
  bool layer_scales = false;
};

// How linear layers round (BitNet).
struct RoundingConfig {
  // Inputs of linear layers are rounded to 8 bits, with one scale per token.
  bool activations = false;
  // Weights are rounded to {-1, 0, 1} * mean(|w|) at load (master weights).
  bool ternary_weights = false;
  // Packed weights {-1, 0, 1} are divided by the file's weight_scale; false: multiplied by it.
  bool divide_scale = false;
};

std::string_view difference(const NormConfig& a, const NormConfig& b);
std::string_view difference(const ResidualConfig& a, const ResidualConfig& b);
std::string_view difference(const RoundingConfig& a, const RoundingConfig& b);

NormParams norm_params(const ModelConfig& config, const NormWeights& norm);

// Backend, cache and scratch of a step, and the ways in which a sub-layer adds to the residual
// stream.
class Sublayer {
 public:
  Sublayer(const ModelConfig& config, const ModelWeights& weights, StepShape shape, KvCache& cache,
           Ops& ops);

  // x += post(delta), or x += delta if `post` is empty; then computes the norm `next` of x (null:
  // no norm follows). partial: delta is a partial sum over the ranks.
  void add(Tensor delta, bool partial, Tensor x, const NormWeights& post, const NormedInput* next);
  // x += post(in weight^T). In models without a norm after the sub-layer `post` is empty, and
  // `multiplier` may scale the product.
  void add_product(Tensor in, const LinearWeights& product, Tensor x, const NormWeights& post,
                   const NormedInput* next, float multiplier = 1.0f);
  // Returns x surrounded by zeros for the other inputs of the weight (LinearWeights::lead).
  Tensor padded(Tensor x, const LinearWeights& product);
  // Returns h with activations rounded, in models that round them (RoundingConfig::activations).
  NormedInput rounded(const NormedInput& h);
  void multiply(Tensor x, float factor);

  const ModelConfig& config;
  const ModelWeights& weights;
  KvCache& cache;
  Ops& ops;
  const int n;          // tokens of the step
  const int n_encoded;  // sequences that bring rows of an encoder
  // [n, model_dim]: output of a sub-layer before it is added
  Tensor out;
  // [n, ModelConfig::carried_dim] or empty
  Tensor carried;

 private:
  // [n, most inputs of a product + ModelWeights::padding]
  Tensor padded_;
};

}  // namespace penstock
