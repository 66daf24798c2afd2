// Parts of which forwards of decoders consist. Rows of all tensors are the n tokens of all
// sequences of a step.
#pragma once
#include <optional>

#include "model/blocks/weights.h"
#include "model/forward/step.h"

namespace penstock {

// The blocks of a model's layers, with scratch tensors for one step.
class DecoderParts {
 public:
  DecoderParts(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
               KvCache& cache, Ops& ops);

  // x += attention(h), or the mixer that replaces it; then computes the norm `next` of x (null: no
  // norm follows).
  void attention(int layer, const NormedInput& h, Tensor x, const NormedInput* next);
  // x += feed-forward(h), dense or of experts; then computes the norm `next` of x.
  void feed_forward(int layer, const NormedInput& h, Tensor x, const NormedInput* next);
  // Computes a router's logits for the layer's feed_forward() (ExpertsConfig::routes_early).
  void choose_experts(int layer, const NormedInput& h) { experts_->choose(layer, h); }
  // As feed_forward(), of one of both in layers that have both (ExpertsConfig::shortcut,
  // reads_early).
  void dense(int layer, const NormedInput& h, Tensor x, const NormedInput* next) {
    dense_->forward(layer, h, x, next);
  }
  void mixture(int layer, const NormedInput& h, Tensor x) {
    experts_->forward(layer, h, x, nullptr);
  }
  // As feed_forward(), for layers with experts beside a dense feed-forward
  // (ExpertsBlock::beside_dense).
  void dense_beside_experts(int layer, const NormedInput& h, Tensor x);
  // Of models with profiles over distances, which convolve what sub-layers give.
  ProfileAttentionBlock& profiles() { return *profiles_; }
  // For models whose layers hand on values beside their one stream (Sublayer::carried): x = input of the
  // first of these layers, as begin_stream(); and the output after the last.
  void begin(Tensor x, const ForwardOptions& options);
  StepOutputs end(Tensor x, const ForwardOptions& options);

 private:
  void attend(int layer, const NormedInput& h, Tensor x, const NormedInput* next);
  void attend_beside_mixer(int layer, const NormedInput& h, Tensor x, const NormedInput* next);

  static constexpr size_t kMostMixers = 4;  // most different mixers in a model
  struct MixerOfStep {
    const Mixer* mixer = nullptr;
    MixerScratch scratch;
  };
  const MixerScratch& scratch_of(const Mixer& mixer) const;

  Sublayer sublayer_;
  StepShape shape_;
  std::array<MixerOfStep, kMostMixers> mixers_;
  std::optional<AttentionBlock> attention_;
  std::optional<LatentAttentionBlock> latent_;
  std::optional<CompressedAttentionBlock> compressed_;
  std::optional<ProfileAttentionBlock> profiles_;
  std::optional<DifferentialAttention> differential_;
  std::optional<ConvolvedAttentionBlock> convolved_;
  std::optional<DenseBlock> dense_;
  std::optional<ExpertsBlock> experts_;
  // [n, model_dim]: input of mixers beside attention
  Tensor mixer_in_;
};

// x = input of the first layer: embeddings of the tokens, or the rows that are given in their place,
// with positions and norm if the model has them.
void embed_input(const ModelConfig& config, const ModelWeights& weights, StepShape shape, Tensor x,
                 Ops& ops);

// --- Of a whole model, an early exit, a single layer, or a stage of a pipeline
struct LayerRange {
  int first, end;
};
// Returns the layers that this forward computes; none in a pipeline stage after an early exit.
LayerRange layers_of(const ModelConfig& config, const ModelWeights& weights,
                     const ForwardOptions& options);
// x = input of the first of these layers. REQUIRES: the model has one residual stream and no
// per-layer inputs.
void begin_stream(const ModelConfig& config, const ModelWeights& weights, StepShape shape, Tensor x,
                  Ops& ops, const ForwardOptions& options);
// Returns the output of the previous pipeline stage: [n, stage_dim(layers.first)].
Tensor stage_input(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                   Ops& ops, const ForwardOptions& options);
// Whether another pipeline stage follows.
inline bool goes_on(const ModelConfig& config, const ModelWeights& weights) {
  const Shard::Range own = weights.layers_of(config);
  return own.first + own.count < config.n_layers;
}
// Returns the input of the next pipeline stage: the parts, concatenated by columns.
StepOutputs end_stage(std::span<const Tensor> parts, Ops& ops);

// The decoder that most architectures share.
StepOutputs decoder_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                            KvCache& cache, Ops& ops, const ForwardOptions& options);
// Final norm and vocabulary projection of the batch's output rows of the residual stream x.
StepOutputs output_head(const ModelConfig& config, const ModelWeights& weights, Tensor x,
                        StepShape shape, Ops& ops, const ForwardOptions& options);
// Vocabulary projection of states [n, model_dim] after the final norm.
void project_output(const ModelConfig& config, const ModelWeights& weights, Tensor states,
                    Tensor logits, Ops& ops);

}  // namespace penstock
