// Any bytes as tokenizer.json, GGUF metadata (as JSON), tokenizer.model or tiktoken file: an error
// or a tokenizer that encodes and decodes without harm.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace penstock;
  const std::string input(reinterpret_cast<const char*>(data), size);
  Result<std::unique_ptr<Tokenizer>> tokenizer = make_error(ErrorCode::kInternal, "");
  if (input.starts_with('{')) {
    const nlohmann::json metadata = nlohmann::json::parse(input, nullptr, false);
    if (metadata.is_object() && metadata.contains("tokenizer.ggml.model")) {
      tokenizer = Tokenizer::from_gguf(metadata);
    } else {
      TokenizerFiles files;
      files.tokenizer_json = files.tokenizer_config_json = files.generation_config_json = input;
      tokenizer = Tokenizer::from_files(files);
    }
  } else {
    TokenizerFiles files;
    files.tokenizer_model = input;
    tokenizer = Tokenizer::from_files(files);
  }
  if (!tokenizer) return 0;
  for (const std::string& text :
       {std::string("The quick ﬁx: <s>don't 12345  \n\n\tÅé 👍🏽 \xFF\xE4\xBD word<|im_end|>"),
        input.substr(0, 200)}) {
    for (const bool special : {false, true}) {
      const auto ids =
          (*tokenizer)->encode(text, {.add_special = special, .parse_special = special});
      for (const TokenId id : ids) {
        if (id < 0 || id >= (*tokenizer)->vocab_size()) __builtin_trap();
        (*tokenizer)->is_end_of_generation(id);
      }
      (*tokenizer)->decode(ids, !special);
    }
  }
  return 0;
}
