// Fingerprint of the model and the settings that determine the content of a cache.
#pragma once
#include <cstdint>

#include "formats/weight_source.h"
#include "penstock/engine_config.h"

namespace penstock {

// Two engines with the same fingerprint compute the same bits of K, V and states for the same
// tokens. backend: its name.
uint64_t fingerprint_of(const WeightSource& source, const EngineConfig& config,
                        const char* backend);

}  // namespace penstock
