// Bytes that a model's weights take.
#pragma once
#include <cstdint>

#include "model/blocks/weights.h"

namespace penstock {

struct WeightCounts {
  int64_t bytes = 0;  // of all matrices, in the backend's layout
  // Read for one decoded token: the chosen share of the experts, no embedding lookup.
  int64_t active_bytes = 0;
  int64_t mapped_experts = 0;  // bytes of experts in a mapped file
  int64_t tables = 0;          // bytes of tables that stay in their files (RowTable)
  // number of weights of 16 and 32 bits that one token reads
  int64_t active_floats = 0;
};

// Counts the weights of one rank (shard), which it visits without changing them.
WeightCounts count_weights(const ModelConfig& config, ModelWeights& weights, Shard shard = {});

}  // namespace penstock
