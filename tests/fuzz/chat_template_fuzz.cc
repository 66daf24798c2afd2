// Any bytes as a template, rendered over a small conversation: an error or a text, within bounds.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "frontend/chat/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const nlohmann::ordered_json context = nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Zürich?"},
                 {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function":
                    {"name": "f", "arguments": {"a": [1, 2.5, null, true]}}}]},
                 {"role": "tool", "content": [{"type": "text", "text": "ok"}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>"})");
  const auto parsed =
      penstock::ChatTemplate::parse(std::string(reinterpret_cast<const char*>(data), size));
  if (!parsed) return 0;
  penstock::RenderOptions options;
  options.now = std::tm{};
  options.max_steps = 200'000;
  options.max_output = 1 << 20;
  options.max_memory = 16 << 20;
  const auto rendered = parsed->render(context, options);
  if (rendered && rendered->size() > options.max_output) __builtin_trap();
  return 0;
}
