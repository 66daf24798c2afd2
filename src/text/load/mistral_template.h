// The chat template of Mistral's models that bring a tekken.json and no template: the instruct format that
// mistral-common gives each version of its tokenizers.
#pragma once
#include <string>

namespace penstock {

struct MistralFormat {
  int version = 3;                    // of the tokenizer: 3, 7, 11, 13, 15
  bool thinks = false;                // it has [THINK] and [/THINK]
  bool settings = false;              // prompts say how much to think: {"reasoning_effort": "high"}
  std::string reasoning_effort = {};  // for requests that do not say it; empty: these have no settings
};

// Jinja. Texts of messages may be lists of parts, arguments of calls objects or their JSON.
std::string mistral_chat_template(const MistralFormat& format);

}  // namespace penstock
