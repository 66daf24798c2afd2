// Which model a cache was filled by.
#pragma once
#include <cstdint>

#include "formats/weight_source.h"
#include "penstock/engine_config.h"

namespace penstock {

// Two models with the same fingerprint fill a cache with the same bits.
uint64_t fingerprint_of(const WeightSource& source, const EngineConfig& config, const char* backend);

}  // namespace penstock
