// Sizes of text models that config.json files omit.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace penstock {

// Returns the defaults of transformers' configuration class of a model_type for hidden_size,
// num_hidden_layers and the like: an object, or null if the type is no known text model.
nlohmann::json hf_sizes(std::string_view model_type);

}  // namespace penstock
