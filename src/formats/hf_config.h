// Access to parts of the config.json of a Hugging Face directory, in which multimodal models have a
// separate object for the text model.
#pragma once
#include <nlohmann/json.hpp>

namespace penstock {

// Returns the object of the text model inside `config`, or `config` itself when there is none.
const nlohmann::json& text_part(const nlohmann::json& config);
// Returns the object of the part that reads pictures, sounds and text, in files of models that also speak
// (thinker_config), or `config` itself when there is none.
const nlohmann::json& multimodal_part(const nlohmann::json& config);

// Returns the quantization_config (in older files compression_config) of `config` or of its text
// model; null when there is none.
const nlohmann::json* quantization_config_of(const nlohmann::json& config);
// Removes the objects that quantization_config_of() finds. For copies of `config` whose weights
// have another encoding.
void erase_quantization_config(nlohmann::json& config);

}  // namespace penstock
