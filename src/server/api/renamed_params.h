// Sampling parameters under the names that other servers give them.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <span>

namespace penstock {

struct RenamedParam {
  const char* name;   // there
  const char* field;  // of SamplingParams
};

// The schemas of those that are numbers, by their names there, with the ranges of SamplingParams.
nlohmann::json schemas_of_renamed(std::span<const RenamedParam> params);
// What `object` has of them, under the names of SamplingParams, into `params`.
void take_renamed(const nlohmann::ordered_json& object, std::span<const RenamedParam> renamed,
                  nlohmann::ordered_json& params);

}  // namespace penstock
