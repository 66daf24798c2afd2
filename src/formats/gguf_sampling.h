// Recommendations for sampling: general.sampling.* of GGUF metadata, generation_config.json of a
// directory.
#pragma once
#include <nlohmann/json_fwd.hpp>

namespace penstock {

// Returns the recommendations in a file's metadata by the names of generation_config.json; those
// that are no numbers are left out.
nlohmann::json sampling_from_gguf(const nlohmann::json& metadata);

// Returns the metadata for the recommendations of a generation_config.json.
nlohmann::json sampling_to_gguf(const nlohmann::json& generation_config);

}  // namespace penstock
