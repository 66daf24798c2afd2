// How much memory the KV cache may take.
#pragma once
#include <cstdint>

#include "engine/open/engine_group.h"
#include "engine/ranks/meet_ranks.h"
#include "model/model.h"
#include "ops/ops.h"
#include "penstock/engine_config.h"

namespace penstock {

// What a rank's part of an engine's cache, with its drafter, may take: of one of the ranks of each stage. On a device what is left
// of its share by all that is there after the largest step was computed once. REQUIRES: a resolved config, with its max_model_len;
// everything but the cache is loaded. Error: kResourceExhausted, on a device, with the numbers.
Result<int64_t> memory_for_cache(const EngineConfig& config, const EngineGroup& group, Ops& ops,
                                 const Model& model, const RanksHere& here);

// Bytes of the model's file that experts_offload leaves out of memory; 0 without it, and where the file cannot be read.
int64_t offloaded_file_bytes(const EngineConfig& config);

// Computes a step of as many tokens and output rows as there will ever be, for the memory that it takes.
// Error: kResourceExhausted.
Status compute_largest_step(const EngineConfig& config, Ops& ops, const Model& model);

}  // namespace penstock
