// Parses the JSON of untrusted requests; depth and memory are bounded during parsing.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/result.h"

namespace penstock {

inline constexpr int kMaxJsonDepth = 64;
// allowance: maximum bytes that the value may take beyond twice the size of its text, for lists of
// many small values (48 bytes each). The last of several members with one name counts. Errors:
// kInvalidArgument, "body: …" with the problem and its byte offset.
Result<nlohmann::ordered_json> read_json(std::string_view text, size_t allowance);

}  // namespace penstock
