// The chat template for Mistral's models with a tekken.json and no template: the instruct format
// that mistral-common gives each version of its tokenizers.
#pragma once
#include <string>

namespace penstock {

struct MistralFormat {
  int version = 3;      // version of the tokenizer: 3, 7, 11, 13, 15
  bool thinks = false;  // the tokenizer has [THINK] and [/THINK]
  // prompts contain settings such as {"reasoning_effort": "high"}
  bool settings = false;
  // default of requests; empty: their prompts have no settings
  std::string reasoning_effort = {};
};

// Returns the Jinja source of the template. It accepts texts of messages as lists of parts too, and
// arguments of calls as objects or as their JSON text.
std::string mistral_chat_template(const MistralFormat& format);

}  // namespace penstock
