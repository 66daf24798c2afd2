// Where config.json of a Hugging Face directory says what: multimodal models keep the text model in an object of its own.
#pragma once
#include <nlohmann/json.hpp>

namespace penstock {

// The object of the text model inside `config`, or `config` itself where there is no other.
const nlohmann::json& text_part(const nlohmann::json& config);

// How the weights are coded (quantization_config, or compression_config in older files): of the whole, or of its text model.
// Null where nothing is said.
const nlohmann::json* quantization_config_of(const nlohmann::json& config);

}  // namespace penstock
