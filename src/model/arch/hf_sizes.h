// Sizes of text models that config.json files omit.
#pragma once
#include <string_view>

namespace penstock {

// Returns the defaults of transformers' configuration class of a model_type for hidden_size,
// num_hidden_layers and the like: a JSON object, or "" if the type is no known text model.
std::string_view hf_sizes(std::string_view model_type);

}  // namespace penstock
