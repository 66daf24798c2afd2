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
#include "model/blocks/experts.h"
#include "model/blocks/per_layer.h"
#include "model/tensors/weights.h"
#include "ops/ops.h"
#include "parallel/shard.h"

namespace penstock {

struct LayerWeights {
  NormWeights attn_norm, attn_post_norm, ffn_norm, ffn_post_norm;
  AttentionWeights attention;
  LatentWeights latent;
  std::unique_ptr<MixerWeights> mixer;  // of LayerConfig::mixer, or null
  DenseWeights dense;
  ActivationFunction activation;
  MixtureWeights experts;
  BesideWeights beside;
  PerLayerWeights per_layer;
  AltUpWeights altup;
  float output_scale = 1.0f;  // multiplies the stream behind the layer
};

struct ModelWeights {
  // [vocab_size, model_dim], or of several ranks (ModelCuts) a share of the rows, first_token and what follows; so has lm_head.
  std::unique_ptr<Weight> embedding;
  bool shares_vocabulary = false;
  int first_token = 0;
  int padding = 0;                      // most inputs that any LinearWeights have beside their own (lead)
  std::unique_ptr<Weight> positions;    // [first_position + max_seq_len, model_dim] or null
  std::unique_ptr<Weight> token_types;  // [n_token_types, model_dim] or null
  NormWeights embedding_norm;
  PerLayerFrame per_layer;
  std::vector<std::unique_ptr<Weight>> streams_in, streams_out;  // [n_streams - 1], [model_dim, model_dim]
  std::vector<LayerWeights> layers;
  NormWeights final_norm;
  std::unique_ptr<Weight> lm_head;       // [vocab_size, model_dim]; null = the embedding
  std::unique_ptr<Vector> output_bias;   // [vocab_size] or null
  std::unique_ptr<Vector> alibi_slopes;  // [n_heads] or null
  std::vector<std::unique_ptr<Vector>>
      rope_frequencies;           // [rotary_dim / 2] each; of longrope's two kinds both
  std::vector<RopeParams> ropes;  // [n_ropes] views of rope_frequencies
  int short_rope_len = 0;  // longrope: the most tokens of a sequence of the short kind; 0: there is one kind
  std::vector<LinearSite> sites;     // of all linear layers
  Shard::Range own_layers = {0, 0};  // of a stage of a pipeline: the others are empty; {0, 0}: all are there

  // Whether a sequence that can reach so many tokens is of the long kind (Batch::long_ropes).
  bool takes_long_rope(int64_t reach) const { return short_rope_len > 0 && reach > short_rope_len; }
  const Weight& output() const { return lm_head ? *lm_head : *embedding; }
  Shard::Range layers_of(const ModelConfig& config) const {
    return own_layers.count > 0 ? own_layers : Shard::Range{0, config.n_layers};
  }
};

// A layer that predicts a token further (next_token_layer.h).
struct NextTokenWeights {
  LinearWeights projection;                // [model_dim, 2 * model_dim], of an embedding and a state
  NormWeights embedding_norm, state_norm;  // [model_dim]
  ModelWeights decoder;  // of one layer; embedding and lm_head are null where they are the target's
};

// EAGLE-3's layer (eagle_layer.h): as above, but the projection is of streams, queries, keys and values [.., 2 * model_dim], and
// the lm_head [draft_vocab, model_dim].
struct EagleWeights : NextTokenWeights {};

}  // namespace penstock
