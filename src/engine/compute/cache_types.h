// The value types of an engine's cache, from their names in a configuration.
#pragma once
#include <string>

#include "base/result.h"
#include "ops/cache_spec.h"
#include "penstock/engine_config.h"

namespace penstock {

// The type that `kv_cache_dtype` names. Errors: kInvalidArgument.
Result<KvDType> kv_dtype(const std::string& name);
// The type that `mamba_ssm_cache_dtype` names. Errors: kInvalidArgument.
Result<StateDType> state_dtype(const std::string& name);
// Both types that the configuration names. Errors: kInvalidArgument.
Result<CacheTypes> cache_types(const EngineConfig& config);

}  // namespace penstock
