// The two files of GPT-2's byte-level BPE, vocab.json and merges.txt, which OPT, Cerebras-GPT and
// others have instead of a tokenizer.json.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/steps/json_fields.h"
#include "text/tokenizer_parts.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

// Classes of transformers that read these files alike; the second kind puts <s> and </s> around a
// text.
constexpr std::array<std::string_view, 3> kPlainClasses = {"", "GPT2Tokenizer", "CodeGenTokenizer"};
constexpr std::array<std::string_view, 3> kFramedClasses = {"RobertaTokenizer",
                                                            "LongformerTokenizer", "BartTokenizer"};
constexpr const char* kSpecialNames[] = {"bos_token", "eos_token", "unk_token", "pad_token",
                                         "sep_token", "cls_token", "mask_token"};

// Splits merges.txt, whose first line may be a version.
Json merge_lines(std::string_view text) {
  Json lines = Json::array();
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !line.starts_with("#version")) lines.push_back(line);
  }
  return lines;
}

// Returns the special tokens that the files name, or those of the class where they name none.
Json special_entries(const Json& config, const Json& specials, const Json& vocab, bool framed) {
  Json list = Json::array();
  std::vector<std::string> known;
  const auto add = [&](const std::string& text, const Json& settings) {
    const auto id = vocab.find(text);
    if (text.empty() || id == vocab.end() || std::ranges::find(known, text) != known.end()) return;
    known.push_back(text);
    list.push_back({{"id", *id},
                    {"content", text},
                    {"special", true},
                    {"lstrip", json_flag(settings, "lstrip", false)},
                    {"rstrip", json_flag(settings, "rstrip", false)},
                    {"single_word", json_flag(settings, "single_word", false)},
                    {"normalized", false}});
  };
  for (const Json* file : {&config, &specials}) {
    for (const char* name : kSpecialNames) {
      const auto found = file->find(name);
      if (found != file->end()) add(json_text(*file, name), *found);
    }
  }
  if (framed) {
    for (const char* usual : {"<s>", "</s>", "<pad>", "<unk>"}) add(usual, Json());
    add("<mask>", {{"lstrip", true}});
  } else if (known.empty()) {
    add("<|endoftext|>", Json());
  }
  return list;
}

}  // namespace

Result<TokenizerParts> load_vocab_and_merges(const TokenizerFiles& files) {
  ASSIGN_OR_RETURN(Json vocab, parse_json(files.vocab_json, "vocab.json"));
  const auto parse = [](const std::string& text, const char* name) -> Result<Json> {
    return text.empty() ? Result<Json>(Json::object()) : parse_json(text, name);
  };
  ASSIGN_OR_RETURN(const Json config, parse(files.tokenizer_config_json, "tokenizer_config.json"));
  ASSIGN_OR_RETURN(const Json specials,
                   parse(files.special_tokens_map_json, "special_tokens_map.json"));
  std::string name = json_text(config, "tokenizer_class");
  if (name.ends_with("Fast")) name.resize(name.size() - std::string_view("Fast").size());
  if (name.empty()) {  // as transformers, which then goes by the model
    ASSIGN_OR_RETURN(const Json model, parse(files.config_json, "config.json"));
    const std::string type = json_text(model, "model_type");
    if (type == "roberta" || type == "longformer" || type == "bart") name = kFramedClasses[0];
  }
  const bool framed = std::ranges::find(kFramedClasses, name) != kFramedClasses.end();
  const bool unnamed_encoder = name.empty() && vocab.contains("<mask>");
  if (!framed &&
      (std::ranges::find(kPlainClasses, name) == kPlainClasses.end() || unnamed_encoder)) {
    return errorf(ErrorCode::kNotFound,
                  "vocab.json and merges.txt without tokenizer.json: expected the tokenizer_class "
                  "{} or {}, got \"{:.40}\"",
                  fmt::join(kPlainClasses.begin() + 1, kPlainClasses.end(), ", "),
                  fmt::join(kFramedClasses, ", "), name);
  }
  Json root = {{"added_tokens", special_entries(config, specials, vocab, framed)},
               {"pre_tokenizer",
                {{"type", "ByteLevel"},
                 {"add_prefix_space", json_flag(config, "add_prefix_space", false)},
                 {"trim_offsets", true},
                 {"use_regex", true}}},
               {"decoder", {{"type", "ByteLevel"}}}};
  if (framed && vocab.contains("<s>") && vocab.contains("</s>")) {
    root["post_processor"] = {{"type", "RobertaProcessing"},
                              {"cls", Json::array({"<s>", vocab["<s>"]})},
                              {"sep", Json::array({"</s>", vocab["</s>"]})}};
  }
  root["model"] = {
      {"type", "BPE"}, {"vocab", std::move(vocab)}, {"merges", merge_lines(files.merges_txt)}};
  ASSIGN_OR_RETURN(TokenizerParts parts, load_tokenizer(root));
  if (!framed && parts.eos == kNoToken)
    parts.bos = parts.eos = parts.vocabulary.find("<|endoftext|>");
  return parts;
}

}  // namespace penstock
