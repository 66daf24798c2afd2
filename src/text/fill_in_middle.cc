#include "text/fill_in_middle.h"

#include <string_view>

namespace penstock {
namespace {

struct FamilyNames {
  std::string_view prefix, suffix, middle;
};

constexpr FamilyNames kMiddleFamilies[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},     // Qwen Coder, CodeGemma
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},           // StarCoder, Granite
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},           // SantaCoder
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},     // DeepSeek
    {"▁<PRE>", "▁<SUF>", "▁<MID>"},                             // Code Llama
    {"<PRE>", "<SUF>", "<MID>"},                                //
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},  // GLM
    {"<|prefix|>", "<|suffix|>", "<|middle|>"},                 // Falcon-H1
};

constexpr std::string_view kPads[] = {"<|fim_pad|>", "<fim_pad>", "<fim-pad>", "<PAD>"};
constexpr std::string_view kRepositories[] = {"<|fim_repo|>", "<|repo_name|>", "<repo_name>",
                                              "<reponame>",   "<fim-repo>",    "<REPO>"};
constexpr std::string_view kFiles[] = {"<|file_sep|>", "<|file_separator|>", "<file_sep>"};

template <class Names>
TokenId find_first(const Tokenizer& tokenizer, const Names& names) {
  for (const std::string_view name : names) {
    if (const auto id = tokenizer.find(name)) return *id;
  }
  return kNoToken;
}

}  // namespace

FillInMiddle fill_in_middle_of(const Tokenizer& tokenizer) {
  FillInMiddle tokens;
  for (const FamilyNames& names : kMiddleFamilies) {
    const auto prefix = tokenizer.find(names.prefix), suffix = tokenizer.find(names.suffix),
               middle = tokenizer.find(names.middle);
    if (!prefix || !suffix || !middle) continue;
    tokens.prefix = *prefix, tokens.suffix = *suffix, tokens.middle = *middle;
    break;
  }
  tokens.pad = find_first(tokenizer, kPads);
  tokens.repository = find_first(tokenizer, kRepositories);
  tokens.file = find_first(tokenizer, kFiles);
  return tokens;
}

}  // namespace penstock
