// Sampling parameters that other servers name differently.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <span>

namespace penstock {

struct RenamedParam {
  const char* name;   // the other server's name
  const char* field;  // the field of SamplingParams
};

// Returns the schemas of the numeric ones by their foreign names, with the ranges of
// SamplingParams.
nlohmann::json schemas_of_renamed(std::span<const RenamedParam> params);
// Copies these parameters from `object` to `params` under the names of SamplingParams.
void take_renamed(const nlohmann::ordered_json& object, std::span<const RenamedParam> renamed,
                  nlohmann::ordered_json& params);

}  // namespace penstock
