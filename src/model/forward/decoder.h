// What forwards of decoders are made of. n tokens of all sequences are the rows of every tensor.
#pragma once
#include <optional>

#include "model/blocks/weights.h"
#include "model/forward/step.h"

namespace penstock {

// The blocks that a model's layers have, with the step's scratch tensors.
class DecoderParts {
 public:
  DecoderParts(const ModelConfig& config, const ModelWeights& weights, StepShape shape, KvCache& cache,
               Ops& ops);

  // x += attention of h over the cache, or what the layer has in its place; then `next`, which is of x, is prepared (null: nobody
  // reads x yet).
  void attention(int layer, const NormedInput& h, Tensor x, const NormedInput* next);
  // x += down(act(gate h) * up h), or the chosen experts' mixture; then `next` is prepared.
  void feed_forward(int layer, const NormedInput& h, Tensor x, const NormedInput* next);
  // The same with both (ExpertsBlock::beside_dense).
  void dense_beside_experts(int layer, const NormedInput& h, Tensor x);

 private:
  void attend(int layer, const NormedInput& h, Tensor x, const NormedInput* next);
  void attend_beside_mixer(int layer, const NormedInput& h, Tensor x, const NormedInput* next);

  static constexpr size_t kMostMixers = 4;  // different ones in a model
  struct MixerOfStep {
    const Mixer* mixer = nullptr;
    MixerScratch scratch;
  };
  const MixerScratch& scratch_of(const Mixer& mixer) const;

  Sublayer sublayer_;
  std::array<MixerOfStep, kMostMixers> mixers_;
  std::optional<AttentionBlock> attention_;
  std::optional<LatentAttentionBlock> latent_;
  std::optional<DenseBlock> dense_;
  std::optional<ExpertsBlock> experts_;
  Tensor mixer_in_;  // [n, model_dim]: of mixers beside attention
};

// x = what the first layer reads: the tokens' embeddings, with their positions and norm where the model has them.
void embed_input(const ModelConfig& config, const ModelWeights& weights, Tensor x, Ops& ops);

// --- Of a whole model, an early exit, a single layer, or a stage of a pipeline
struct LayerRange {
  int first, end;
};
// Those that a forward computes; none in a stage that lies behind an early exit.
LayerRange layers_of(const ModelConfig& config, const ModelWeights& weights, const ForwardOptions& options);
// x = what the first of them reads: of a model with one stream, and nothing beside it.
void begin_stream(const ModelConfig& config, const ModelWeights& weights, Tensor x, Ops& ops,
                  const ForwardOptions& options);
// What the stage before has given: [n, stage_dim(layers.first)].
Tensor stage_input(const ModelConfig& config, const ModelWeights& weights, StepShape shape, Ops& ops,
                   const ForwardOptions& options);
// Whether another stage goes on behind the last of them.
inline bool goes_on(const ModelConfig& config, const ModelWeights& weights) {
  const Shard::Range own = weights.layers_of(config);
  return own.first + own.count < config.n_layers;
}
// What the next stage needs: the parts side by side.
StepOutputs end_stage(std::span<const Tensor> parts, Ops& ops);

// The decoder that most architectures share.
StepOutputs decoder_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                            KvCache& cache, Ops& ops, const ForwardOptions& options);
// Final norm and vocabulary projection of the batch's output rows of the residual stream x.
StepOutputs output_head(const ModelConfig& config, const ModelWeights& weights, Tensor x, StepShape shape,
                        Ops& ops, const ForwardOptions& options);
// Vocabulary projection of states [n, model_dim] after the final norm.
void project_output(const ModelConfig& config, const ModelWeights& weights, Tensor states, Tensor logits,
                    Ops& ops);

}  // namespace penstock
