// All weights of a decoder, checked and packed for one backend.
#pragma once
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/blocks/config.h"
#include "model/blocks/dense.h"
#include "model/blocks/differential_attention.h"
#include "model/blocks/experts.h"
#include "model/blocks/norm_gate.h"
#include "model/blocks/per_layer.h"
#include "model/blocks/weighted_residual.h"
#include "model/tensors/weights.h"
#include "ops/ops.h"
#include "parallel/shard.h"

namespace penstock {

struct LayerWeights {
  NormWeights attn_norm, attn_post_norm, ffn_norm, ffn_post_norm;
  NormWeights attn_again_norm;  // with ResidualConfig::adds_twice
  AttentionWeights attention;
  LatentWeights latent;
  CompressedWeights compressed;
  ProfileWeights profiles;
  BlockQueries block_queries;
  SphereWeights sphere;
  DifferentialWeights differential;
  ConvolvedWeights convolved;
  std::unique_ptr<MixerWeights> mixer;  // of LayerConfig::mixer, or null
  DenseWeights dense;
  ActivationFunction activation;
  MixtureWeights experts;
  BesideWeights beside;
  PerLayerWeights per_layer;
  AltUpWeights altup;
  GatedStreamsWeights streams;
  MixedStreamsWeights mixed_streams;
  NgramWeights ngrams;
  SharedWeights shared;
  NormGateWeights attn_gate, experts_gate;  // with NormConfig::gate_rank
  WeightedResidualWeights weighted;         // with ResidualConfig::weighing
  float output_scale = 1.0f;                // multiplies the stream after the layer
};

// The weights of layers by index. Layers may be one in memory (LayerConfig::weights_layer).
class LayerList {
 public:
  // As many as the model has.
  void resize(const ModelConfig& config) {
    places_.clear();
    for (int i = 0; i < config.n_layers; ++i) {
      const int of = config.layers[static_cast<size_t>(i)].weights_layer;
      places_.push_back(config.repeats(i) ? places_[static_cast<size_t>(of)] : n_own());
    }
    own_.resize(places_.empty() ? 0 : 1 + *std::ranges::max_element(places_));
  }
  LayerWeights& emplace_back() {
    places_.push_back(own_.size());
    return own_.emplace_back();
  }
  size_t size() const { return places_.size(); }
  LayerWeights& operator[](size_t i) { return own_[places_[i]]; }
  const LayerWeights& operator[](size_t i) const { return own_[places_[i]]; }
  // those in memory
  auto begin() { return own_.begin(); }
  auto end() { return own_.end(); }
  auto begin() const { return own_.begin(); }
  auto end() const { return own_.end(); }

 private:
  // Number of different places so far.
  size_t n_own() const { return places_.empty() ? 0 : 1 + *std::ranges::max_element(places_); }

  std::vector<LayerWeights> own_;
  std::vector<size_t> places_;
};

struct ModelWeights {
  // Embedding table [vocab_size, model_dim]. With several ranks it may be a share of the rows,
  // first_token and those after it (ModelCuts); lm_head is cut alike.
  std::unique_ptr<Weight> embedding;
  bool shares_vocabulary = false;
  int first_token = 0;
  // largest number of inputs that a LinearWeights has beside its rank's own (lead)
  int padding = 0;
  // [first_position + max_seq_len, model_dim] or null
  std::unique_ptr<Weight> positions;
  std::unique_ptr<Weight> token_types;  // [n_token_types, model_dim] or null
  NormWeights embedding_norm;
  LinearWeights embedding_projection;  // [model_dim, EmbeddingConfig::width] or empty
  PerLayerFrame per_layer;
  // [n_streams - 1], [model_dim, model_dim]
  std::vector<std::unique_ptr<Weight>> streams_in, streams_out;
  LayerList layers;
  NormWeights final_norm;
  StreamGateWeights last_gates;  // the final norm of gated streams
  StreamMixWeights last_shares;  // the sum at the end of mixed streams
  std::unique_ptr<Weight>
      last_block_query;  // [1, model_dim]: the mean at the end of block residuals
  ColumnWeights input;   // of embeddings, with ResidualWeighing::kScales
  // [vocab_size, model_dim]; null = the embedding
  std::unique_ptr<Weight> lm_head;
  std::unique_ptr<Vector> output_bias;   // [vocab_size] or null
  std::unique_ptr<Vector> output_scale;  // [vocab_size] or null: multiplies logits
  std::unique_ptr<Vector> first_state;   // [model_dim] or null: what a second stream begins with
  std::unique_ptr<Vector> alibi_slopes;  // [n_heads] or null
  // RelativeTerms::columns; and its table [n_heads * n_columns], or null
  std::unique_ptr<Vector> relative_columns, relative_table;
  // Frequencies [rotary_dim / 2] of each rotation; longrope has two sets.
  std::vector<std::unique_ptr<Vector>> rope_frequencies;
  std::vector<RopeParams> ropes;  // [n_ropes] views of rope_frequencies
  RopeParams index_rope;          // of indexers, with the frequencies of the first rotation
  // longrope: longest sequence of the short set, in tokens; 0: there is one set
  int short_rope_len = 0;
  std::vector<LinearSite> sites;  // of all linear layers
  // layers of a pipeline stage: all others are empty; {0, 0}: all layers
  Shard::Range own_layers = {0, 0};

  // Whether a sequence that can reach this many tokens uses the long set (Batch::long_ropes).
  bool takes_long_rope(int64_t reach) const { return short_rope_len > 0 && reach > short_rope_len; }
  const Weight& output() const { return lm_head ? *lm_head : *embedding; }
  Shard::Range layers_of(const ModelConfig& config) const {
    return own_layers.count > 0 ? own_layers : Shard::Range{0, config.n_layers};
  }
};

// Weights of a layer that predicts one token further (next_token_layer.h).
struct NextTokenWeights {
  // [model_dim, 2 * model_dim], of an embedding and a state
  LinearWeights projection;
  NormWeights embedding_norm, state_norm;  // [model_dim]
  // one layer; embedding and lm_head are null where they are the target model's
  ModelWeights decoder;
};

// Weights of EAGLE-3's layer (eagle_layer.h). Its projection reads the residual streams of several
// layers, its queries, keys and values have 2 * model_dim inputs, and its lm_head is [draft_vocab,
// model_dim].
struct EagleWeights : NextTokenWeights {};

}  // namespace penstock
