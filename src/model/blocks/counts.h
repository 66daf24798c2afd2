// What a model's weights take.
#pragma once
#include <cstdint>

#include "model/blocks/weights.h"

namespace penstock {

struct WeightCounts {
  int64_t bytes = 0;         // of all matrices, as the backend holds them
  int64_t active_bytes = 0;  // that one decoded token reads: experts by the chosen share, no embedding lookup
  int64_t mapped_experts = 0;  // bytes of experts in a mapped file
  int64_t active_floats = 0;   // of the weights that a token reads, those of 16 and 32 bits, one each
};

// shard: of several ranks the one whose weights these are.
// The weights are not changed.
WeightCounts count_weights(const ModelConfig& config, ModelWeights& weights, Shard shard = {});

}  // namespace penstock
