// Fingerprint of the model and the settings that determine the content of a cache.
#pragma once
#include <cstdint>
#include <string>

#include "draft/block_allocator.h"
#include "formats/weight_source.h"
#include "penstock/engine_config.h"

namespace penstock {

// Two engines with the same fingerprint compute the same bits of K, V and states for the same
// tokens. backend: its name.
uint64_t fingerprint_of(const WeightSource& source, const EngineConfig& config,
                        const char* backend);

// Returns the fingerprint of an engine some of whose layers have their experts on the host, as
// describe() names them (model/load/expert_places.h); "": none has.
uint64_t with_host_experts(uint64_t fingerprint, const std::string& layers);

// As the fingerprint, for a store that outlives the program: differs for every build of it and every
// change of the files of weights. A copy of the files has another one.
BlockHash store_identity(const WeightSource& source, uint64_t fingerprint);

// As above, for a store that several machines share: a copy of the files has the same one. Reads all
// tensors.
BlockHash shared_identity(const WeightSource& source, uint64_t fingerprint);

}  // namespace penstock
