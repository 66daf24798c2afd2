// The parts of a layer that forwards of decoders are made of. n tokens of all sequences are the rows of every tensor.
#pragma once
#include "model/arch/archs.h"

namespace penstock {

// What does not change over the layers of a forward, and the step's scratch tensors.
class DecoderParts {
 public:
  DecoderParts(const ModelConfig& config, const ModelWeights& weights, StepShape shape, KvCache& cache,
               Ops& ops);

  // x += softmax(q k^T) v o of h over the cache, or what the layer has in its place; then `next`, which is of x, is prepared (null: nobody reads x yet).
  void attention(int layer, const NormedInput& h, Tensor x, const NormedInput* next);
  // x += down(act(gate h) * up h), or the chosen experts' mixture; then `next` is prepared.
  void feed_forward(int layer, const NormedInput& h, Tensor x, const NormedInput* next);
  // The same with both: x += post(norm(dense(h)) + norm(experts(norm(x)))), of which the router reads another norm.
  void dense_beside_experts(int layer, const NormedInput& h, Tensor x);
  // x += post(delta), where there is such a norm; then `next` is prepared.
  // partial: delta is a share of the sum over the ranks.
  void add(Tensor delta, bool partial, Tensor x, const NormWeights& post, const NormedInput* next);

 private:
  void latent_attention(int layer, const NormedInput& h, Tensor x, const NormedInput* next);
  void short_conv(int layer, const NormedInput& h, Tensor x, const NormedInput* next);
  void state_space(int layer, const NormedInput& h, Tensor x, const NormedInput* next);
  void attention_beside_scan(int layer, const NormedInput& h, Tensor x, const NormedInput* next);
  void attention_of_heads(int layer, const NormedInput& h, Tensor x, const NormedInput* next);
  void multiply(Tensor x, float factor);
  void delta_net(int layer, const NormedInput& h, Tensor x, const NormedInput* next);
  void project_delta(const DeltaNetWeights& net, const NormedInput& h);
  void make_recurrent_tensors(int n);
  Tensor half_heads(Tensor x, int half) const;
  void project_latent(const LayerWeights& layer, const NormedInput& h);
  NormedInput rounded(const NormedInput& h);
  // A layer's own, in the scratch of all.
  struct Heads {
    Tensor q, k, v;  // k and v are empty where an earlier layer's are attended to
  };
  Heads project_heads(int layer, const NormedInput& h);
  void norm_heads(int layer, const Heads& heads);
  const RopeParams* prepare_heads(int layer, const Heads& heads);
  void store(int layer, const Heads& heads, const RopeParams* rope);
  Tensor dense_hidden(int layer, const NormedInput& h);
  void dense(const NormedInput& h, const LinearWeights& gate, const LinearWeights& up,
             const ActivationFunction& f, Tensor hidden, Tensor other, float cutoff = kNoCutoff);
  void experts(int layer, const NormedInput& router_input, const NormedInput& h);
  void add_shared(const LayerWeights& layer, const NormedInput& h, Tensor x);
  void add_product(Tensor in, const LinearWeights& weights, Tensor x, const NormWeights& post,
                   const NormedInput* next, float multiplier = 1.0f);
  Tensor padded(Tensor x, const LinearWeights& weights);

  const ModelConfig& config_;
  const ModelWeights& weights_;
  KvCache& cache_;
  Ops& ops_;
  Tensor q_, k_, v_;                // [n, heads * head_dim] of the layer that has most
  Tensor attended_;                 // [n, n_heads * cache_value_dim()], or as q
  Tensor query_latent_;             // [n, latent.query_rank]
  Tensor queries_;                  // [n, n_heads * (latent.plain_dim + latent.rope_dim)]
  Tensor values_;                   // [n, n_heads * latent.value_dim]
  Tensor gated_q_;                  // [n, 2 * q_dim]: of every head its query and its gate
  Tensor gates_;                    // [n, n_heads] or [n, q_dim]
  Tensor conv_in_;                  // [n, 3 * model_dim]; of delta networks [n, channels]
  Tensor convolved_;                // [n, model_dim]; likewise
  Tensor delta_z_, delta_out_;      // [n, delta.values()]
  Tensor scan_in_;                  // [n, model_dim]: of scans beside attention
  Tensor delta_a_, delta_b_;        // [n, delta.decays()], [n, delta.n_value_heads]
  Tensor delta_a_in_, delta_z_in_;  // [n, delta.key_dim]
  Tensor out_;                      // [n, model_dim]
  Tensor padded_;                   // [n, what a product reads at most, with ModelWeights::padding]
  Tensor gate_, up_;                // [n, widest_ffn()]
  Tensor router_;                   // [n, n_experts]
  Tensor shared_gate_, shared_up_;  // [n, shared_ffn_dim]
  Tensor shared_weight_;            // [n, 1]
  Tensor shared_out_;               // [n, model_dim]
  Tensor router_in_;                // [n, model_dim]
  Tensor latent_in_, latent_out_;   // [n, expert_latent_dim]
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

}  // namespace penstock
