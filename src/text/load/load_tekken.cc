// Loads tekken.json of Mistral's models: special tokens, then tokens in the order of their ranks.
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "text/load/mistral_template.h"
#include "text/steps/json_fields.h"
#include "text/tokenizer_parts.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

constexpr int kVersions[] = {3, 7, 11, 13, 15};

struct TekkenConfig {
  std::string pattern;
  int version = 0, vocab_size = 0, n_special = 0;
};

Result<TekkenConfig> read_config(const Json& root) {
  const Json& config = root.at("config");
  TekkenConfig read;
  read.pattern = json_text(config, "pattern");
  if (read.pattern.empty())
    return errorf(ErrorCode::kCorruptFile, "tekken.json: config: expected a string \"pattern\"");
  const std::string version = json_text(config, "version");
  if (version.starts_with('v'))
    std::from_chars(version.data() + 1, version.data() + version.size(), read.version);
  if (std::ranges::find(kVersions, read.version) == std::end(kVersions)) {
    return errorf(
        ErrorCode::kUnsupported,
        "tekken.json: config: version \"{:.20}\" is not known (known: v3, v7, v11, v13, v15)",
        version);
  }
  read.vocab_size =
      static_cast<int>(json_int(config, "default_vocab_size", -1, Vocabulary::kMaxSize));
  read.n_special =
      static_cast<int>(json_int(config, "default_num_special_tokens", -1, Vocabulary::kMaxSize));
  if (read.n_special < 0 || read.vocab_size < read.n_special) {
    return errorf(
        ErrorCode::kCorruptFile,
        "tekken.json: config: expected default_vocab_size and no more default_num_special_tokens, "
        "got {} and {}",
        read.vocab_size, read.n_special);
  }
  return read;
}

// Special tokens of files up to version 7 that do not list them.
constexpr std::string_view kOldSpecials[] = {"<unk>",
                                             "<s>",
                                             "</s>",
                                             "[INST]",
                                             "[/INST]",
                                             "[AVAILABLE_TOOLS]",
                                             "[/AVAILABLE_TOOLS]",
                                             "[TOOL_RESULTS]",
                                             "[/TOOL_RESULTS]",
                                             "[TOOL_CALLS]",
                                             "[IMG]",
                                             "<pad>",
                                             "[IMG_BREAK]",
                                             "[IMG_END]",
                                             "[PREFIX]",
                                             "[MIDDLE]",
                                             "[SUFFIX]",
                                             "[SYSTEM_PROMPT]",
                                             "[/SYSTEM_PROMPT]",
                                             "[TOOL_CONTENT]"};

// Returns the names of special tokens by id; unnamed ones are called by their number.
Result<std::vector<std::string>> special_names(const Json& root, const TekkenConfig& config) {
  std::vector<std::string> names(static_cast<size_t>(config.n_special));
  const auto put = [&](int64_t rank, std::string name) -> Status {
    if (rank < 0 || rank >= config.n_special || name.empty() || !names[rank].empty()) {
      return errorf(ErrorCode::kCorruptFile,
                    "tekken.json: special_tokens: \"{:.40}\": expected a name and a rank of its "
                    "own below {}, got {}",
                    name, config.n_special, rank);
    }
    names[rank] = std::move(name);
    return {};
  };
  const auto list = root.find("special_tokens");
  if (list != root.end() && list->is_array()) {
    for (const Json& item : *list)
      RETURN_IF_ERROR(
          put(json_int(item, "rank", -1, Vocabulary::kMaxSize), json_text(item, "token_str")));
  } else if (config.version <= 7) {
    for (size_t i = 0; i < std::size(kOldSpecials); ++i)
      RETURN_IF_ERROR(put(static_cast<int64_t>(i), std::string(kOldSpecials[i])));
  } else {
    return errorf(ErrorCode::kCorruptFile,
                  "tekken.json: expected an array \"special_tokens\" in version {}",
                  config.version);
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) names[i] = fmt::format("<SPECIAL_{}>", i);
  }
  return names;
}

// Reads the tokens within the vocabulary's size; files may have more.
Result<std::vector<TokenBytes>> read_vocabulary(const Json& root, const TekkenConfig& config) {
  ASSIGN_OR_RETURN(const Json* list, json_array(root, "vocab", "tekken"));
  const auto n = static_cast<size_t>(config.vocab_size - config.n_special);
  if (list->size() < n) {
    return errorf(ErrorCode::kCorruptFile,
                  "tekken.json: vocab: expected at least {} tokens, got {}", n, list->size());
  }
  std::vector<TokenBytes> tokens;
  tokens.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    const Json& item = (*list)[i];
    ASSIGN_OR_RETURN(std::string bytes, base64_decode(json_text(item, "token_bytes")));
    const bool is_byte = bytes.size() == 1 && static_cast<unsigned char>(bytes[0]) == i;
    if (json_int(item, "rank", -1, Vocabulary::kMaxSize) != static_cast<int64_t>(i) ||
        bytes.empty() || (i < 256 && !is_byte)) {
      return errorf(ErrorCode::kCorruptFile,
                    "tekken.json: vocab: token {}: expected its rank and its bytes (those below "
                    "256 are the bytes)",
                    i);
    }
    tokens.push_back({std::move(bytes), static_cast<TokenId>(i) + config.n_special});
  }
  return tokens;
}

MistralFormat format_of(const Json& root, const TekkenConfig& config,
                        const Vocabulary& vocabulary) {
  MistralFormat format{.version = config.version};
  format.thinks = config.version >= 13 && vocabulary.find("[THINK]") != kNoToken &&
                  vocabulary.find("[/THINK]") != kNoToken;
  const auto settings = root.find("model_settings_builder");
  if (config.version < 15 || settings == root.end() || !settings->is_object()) return format;
  const auto effort = settings->find("reasoning_effort");
  format.settings = effort != settings->end() && effort->is_object();
  if (!format.settings) return format;
  const std::string value = json_text(*effort, "default");
  const bool word = std::ranges::all_of(value, [](char c) { return c >= 'a' && c <= 'z'; });
  if (word) format.reasoning_effort = value;
  return format;
}

}  // namespace

bool is_tekken(const Json& root) {
  const auto config = root.find("config");
  return !root.contains("model") && config != root.end() && config->is_object() &&
         config->contains("pattern");
}

Result<TokenizerParts> load_tekken(const Json& root) {
  ASSIGN_OR_RETURN(const TekkenConfig config, read_config(root));
  ASSIGN_OR_RETURN(const std::vector<std::string> specials, special_names(root, config));
  ASSIGN_OR_RETURN(const std::vector<TokenBytes> tokens, read_vocabulary(root, config));
  ASSIGN_OR_RETURN(Regex pattern, Regex::compile(config.pattern));
  TokenizerParts parts;
  RETURN_IF_ERROR(set_ranked_tokens(tokens, parts));
  for (size_t i = 0; i < specials.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    RETURN_IF_ERROR(parts.vocabulary.add(id, specials[i]));
    parts.added.push_back({.id = id, .content = specials[i], .special = true});
  }
  const auto special = [&](std::string_view name) {
    const auto found = std::ranges::find(specials, name);
    return found == specials.end() ? kNoToken : static_cast<TokenId>(found - specials.begin());
  };
  parts.bos = special("<s>");
  parts.eos = special("</s>");
  parts.unk = special("<unk>");
  parts.pad = special("<pad>");
  parts.pre_tokenizer.add_split(std::move(pattern), PreTokenizer::Behavior::kIsolated);
  parts.pre_tokenizer.add_byte_level(false, false);
  set_add_bos(true, parts);
  parts.built_in_template = mistral_chat_template(format_of(root, config, parts.vocabulary));
  return parts;
}

}  // namespace penstock
