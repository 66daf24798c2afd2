#include "formats/hf_config.h"

namespace penstock {

using nlohmann::json;

const json& text_part(const json& config) {
  const json* part = &config;
  for (const char* key : {"thinker_config", "text_config", "language_config", "llm_config"}) {
    const auto found = part->find(key);
    if (found != part->end() && found->is_object()) part = &*found;
  }
  return *part;
}

const json* quantization_config_of(const json& config) {
  for (const json* part : {&config, &text_part(config)}) {
    for (const char* key : {"quantization_config", "compression_config"}) {
      const auto found = part->find(key);
      if (found != part->end() && !found->is_null()) return &*found;
    }
  }
  return nullptr;
}

}  // namespace penstock
