// A draft layer: from the target's state at a token and from the next token it predicts the token
// after that, and from its own states further ones. Checkpoints contain such a layer
// (next_token_layer.h), or it was trained separately (eagle_layer.h).
#pragma once
#include <span>

#include "model/model.h"

namespace penstock {

struct GuessOptions {
  bool own = false;
  bool all_states = false;  // hidden has a row for each token of the batch
};

class GuessLayer {
 public:
  virtual ~GuessLayer() = default;

  // Returns the spec of the layer's own cache, which has one layer (with an indexer, a second one
  // for its keys).
  virtual CacheSpec cache_spec(KvDType dtype, int block_size) const = 0;
  virtual bool takes_long_rope(int64_t reach) const = 0;  // see Model::takes_long_rope()
  // without weights that it shares with the target
  virtual int64_t weight_bytes() const = 0;
  // Layers of the target whose input streams it reads (ForwardOptions::taps); n_layers stands for
  // the stream behind the last one. Empty: it reads the states after the final norm.
  virtual std::span<const int> taps() const { return {}; }
  // Column i of its logits belongs to the target's token vocabulary()[i]; empty: it has the
  // target's vocabulary.
  virtual std::span<const TokenId> vocabulary() const { return {}; }

  // Computes one step of `ops`. Row i of `states` belongs to the token before token i of the batch.
  // Rows are states of the target or, with `own`, the `hidden` [rows, model_dim] of an earlier
  // result of this layer, or of the one before it. hidden is that of the output rows, or of all
  // tokens with all_states; logits are empty if the batch wants no output row.
  virtual StepOutputs forward(const Batch& batch, std::span<const float> states,
                              GuessOptions options, KvCache& cache, Ops& ops) const = 0;
};

}  // namespace penstock
