// What caches of 4-bit codes (KvDType::kI4) are there for, on every backend.
#pragma once
#include "base/result.h"
#include "ops/cache_spec.h"

namespace penstock {

// Errors: kUnsupported (sparse attention, heads of very many features). Other types always pass.
Status check_narrow(const CacheSpec& spec);

}  // namespace penstock
