// Reads the JSON of a request, whose sender may mean harm: depth and memory are bounded while it is
// read.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/result.h"

namespace penstock {

inline constexpr int kMaxJsonDepth = 64;
// allowance: bytes that the value may take besides twice the size of its text, for lists of many
// small values (48 each). Of a name that an object has twice the last value counts. Errors:
// kInvalidArgument, "body: …" with what is wrong and at which byte.
Result<nlohmann::ordered_json> read_json(std::string_view text, size_t allowance);

}  // namespace penstock
