// The memory budget of the KV cache.
#pragma once
#include <cstdint>

#include "engine/open/engine_group.h"
#include "engine/ranks/meet_ranks.h"
#include "model/model.h"
#include "ops/ops.h"
#include "penstock/engine_config.h"

namespace penstock {

// Returns the bytes that one rank's part of an engine's cache, with its drafter's, may take; with a
// pipeline the bytes of one rank of each stage together. On a device: its share of the memory, less
// all that is in use after the largest step was computed once. REQUIRES: a resolved config, with
// its max_model_len; everything but the cache is loaded. Error: kResourceExhausted, on a device,
// with the numbers.
Result<int64_t> memory_for_cache(const EngineConfig& config, const EngineGroup& group, Ops& ops,
                                 const Model& model, const RanksHere& here);

// Returns the bytes of the experts' weights in the model's file, which experts_offload leaves out
// of memory; 0 without experts_offload, or when the file cannot be read.
int64_t offloaded_file_bytes(const EngineConfig& config);

// Computes a step with the most tokens and output rows that the configuration allows, so that the
// backend takes the memory for it.
// Error: kResourceExhausted.
Status compute_largest_step(const EngineConfig& config, Ops& ops, const Model& model);

}  // namespace penstock
