// A layer that guesses one token further from what the target computed at a token and the token after it, and further still from
// its own states: what a checkpoint brings along (next_token_layer.h) or was trained beside it (eagle_layer.h).
#pragma once
#include <span>

#include "model/model.h"

namespace penstock {

class GuessLayer {
 public:
  virtual ~GuessLayer() = default;

  // Of a cache of its own, with one layer.
  virtual CacheSpec cache_spec(KvDType dtype, int block_size) const = 0;
  virtual bool takes_long_rope(int64_t reach) const = 0;  // as Model's
  virtual int64_t weight_bytes() const = 0;               // without what it has in common with the target
  // ForwardOptions::taps of the target, whose states it reads; empty: those after the final norm.
  virtual std::span<const int> taps() const { return {}; }
  // Its row i of logits is of the target's token vocabulary()[i]; empty: they have the target's vocabulary.
  virtual std::span<const TokenId> vocabulary() const { return {}; }

  // A step of `ops`. Row i of `states` belongs to the token before token i of the batch: the target's, or with `own` the `hidden`
  // [rows, model_dim] of an earlier result. Logits and hidden are empty where no row is wanted.
  virtual StepOutputs forward(const Batch& batch, std::span<const float> states, bool own, KvCache& cache,
                              Ops& ops) const = 0;
};

}  // namespace penstock
