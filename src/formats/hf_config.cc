#include "formats/hf_config.h"

namespace penstock {

using nlohmann::json;

namespace {

constexpr const char* kQuantizationKeys[] = {"quantization_config", "compression_config"};

}  // namespace

const json& text_part(const json& config) {
  const json* part = &config;
  for (const char* key : {"thinker_config", "text_config", "language_config", "llm_config"}) {
    const auto found = part->find(key);
    if (found != part->end() && found->is_object()) part = &*found;
  }
  return *part;
}

const json& multimodal_part(const json& config) {
  const auto found = config.find("thinker_config");
  return found != config.end() && found->is_object() ? *found : config;
}

const json* quantization_config_of(const json& config) {
  for (const json* part : {&config, &text_part(config)}) {
    for (const char* key : kQuantizationKeys) {
      const auto found = part->find(key);
      if (found != part->end() && !found->is_null()) return &*found;
    }
  }
  return nullptr;
}

void erase_quantization_config(json& config) {
  // text_part() returns a part of `config`, which is not const
  for (json* part : {&config, const_cast<json*>(&text_part(config))}) {
    for (const char* key : kQuantizationKeys) part->erase(key);
  }
}

}  // namespace penstock
