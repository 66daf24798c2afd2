// Sizes of a text model that the config.json around it leaves unsaid.
#pragma once
#include <string_view>

namespace penstock {

// What transformers' configuration class of a model_type assumes of hidden_size, num_hidden_layers and the like: a JSON object, or ""
// where the type is no text model that is known.
std::string_view hf_sizes(std::string_view model_type);

}  // namespace penstock
