// The files of a Hugging Face directory that configure the use of the vocabulary.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/steps/json_fields.h"
#include "text/tokenizer_parts.h"
#include "text/vocab/word_piece.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

TokenId find_text(const Vocabulary& vocabulary, const Json& json, const char* key) {
  const std::string text = json_text(json, key);
  return text.empty() ? kNoToken : vocabulary.find(text);
}

void set_named_tokens(const Json& json, TokenizerParts& parts) {
  const auto set = [&](const char* key, TokenId& id) {
    const TokenId found = find_text(parts.vocabulary, json, key);
    if (found != kNoToken) id = found;
  };
  set("bos_token", parts.bos);
  set("eos_token", parts.eos);
  set("unk_token", parts.unk);
  set("pad_token", parts.pad);
  if (parts.bos == kNoToken) set("cls_token", parts.bos);
  if (parts.eos == kNoToken) set("sep_token", parts.eos);
}

// Reads what templates may name: every text "..._token", and the dictionaries of tokens that a
// family has beside those of all. Every rendering copies them, so that there are not too many.
void read_token_names(const Json& config, TokenizerParts& parts) {
  constexpr size_t kMostNames = 256, kMostBytes = 1024;
  const auto add = [&](const Json& object, const std::string& name) {
    std::string text = json_text(object, name.c_str());
    const bool room =
        parts.named_tokens.size() < kMostNames && std::max(name.size(), text.size()) <= kMostBytes;
    if (!text.empty() && room) parts.named_tokens[name] = std::move(text);
  };
  for (const auto& [name, value] : config.items())
    if (name.ends_with("_token")) add(config, name);
  for (const char* key : {"extra_special_tokens", "model_specific_special_tokens"}) {
    const auto found = config.find(key);
    if (found == config.end() || !found->is_object()) continue;
    for (const auto& [name, value] : found->items()) add(*found, name);
  }
}

// Reads ids of config.json or generation_config.json: a number or a list of numbers.
std::vector<TokenId> ids_of(const Json& json, const char* key, const Vocabulary& vocabulary) {
  std::vector<TokenId> ids;
  const auto add = [&](const Json& value) {
    if (!value.is_number_unsigned() ||
        value.get<uint64_t>() >= static_cast<uint64_t>(vocabulary.size()))
      return;
    ids.push_back(value.get<TokenId>());
  };
  const auto it = json.find(key);
  if (it == json.end()) return ids;
  if (it->is_array()) {
    for (const Json& value : *it) add(value);
  } else {
    add(*it);
  }
  return ids;
}

Status add_missing_token(TokenId id, AddedToken token, TokenizerParts& parts) {
  if (parts.vocabulary.contains(id) && parts.vocabulary.piece(id) != token.content)
    return {};  // a contradiction: the vocabulary wins
  const bool known = std::any_of(parts.added.begin(), parts.added.end(),
                                 [&](const AddedToken& t) { return t.id == id; });
  if (known || token.content.empty()) return {};
  RETURN_IF_ERROR(parts.vocabulary.add(id, token.content));
  parts.added.push_back(std::move(token));
  return {};
}

// Reads tokenizer_config.json: "added_tokens_decoder": {"32000": {"content": ..., "special": ...}}
Status add_decoder_tokens(const Json& config, TokenizerParts& parts) {
  const auto list = config.find("added_tokens_decoder");
  if (list == config.end() || !list->is_object()) return {};
  for (const auto& [key, item] : list->items()) {
    const bool digits =
        !key.empty() && key.size() < 9 &&
        std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!digits || !item.is_object()) {
      return errorf(ErrorCode::kCorruptFile,
                    "tokenizer_config.json: added_tokens_decoder: \"{:.40}\" is not an id", key);
    }
    const TokenId id = std::stoi(key);
    RETURN_IF_ERROR(add_missing_token(id,
                                      {.id = id,
                                       .content = json_text(item, "content"),
                                       .special = json_flag(item, "special", false),
                                       .normalized = json_flag(item, "normalized", false),
                                       .lstrip = json_flag(item, "lstrip", false),
                                       .rstrip = json_flag(item, "rstrip", false),
                                       .single_word = json_flag(item, "single_word", false)},
                                      parts));
  }
  return {};
}

void read_templates(const Json& config, TokenizerParts& parts) {
  const auto it = config.find("chat_template");
  if (it == config.end()) return;
  if (it->is_string()) parts.chat_templates["default"] = it->get<std::string>();
  if (!it->is_array()) return;
  for (const Json& item : *it) {
    const std::string name = json_text(item, "name");
    if (!name.empty()) parts.chat_templates[name] = json_text(item, "template");
  }
}

// Later ones replace earlier ones of their name; the last two serve where there is no default.
Status choose_templates(const TokenizerFiles& files, const Json& config, TokenizerParts& parts) {
  read_templates(config, parts);
  for (const auto& [name, text] : files.additional_templates) parts.chat_templates[name] = text;
  if (!files.chat_template_jinja.empty())
    parts.chat_templates["default"] = files.chat_template_jinja;
  if (!files.chat_template_json.empty() && !parts.chat_templates.contains("default")) {
    ASSIGN_OR_RETURN(const Json processor,
                     parse_json(files.chat_template_json, "chat_template.json"));
    read_templates(processor, parts);
  }
  if (!parts.built_in_template.empty())
    parts.chat_templates.try_emplace("default", parts.built_in_template);
  return {};
}

// Whether the tokenizer class sets BOS and EOS itself, regardless of the vocabulary's file.
bool class_sets_bos(const Json& config) {
  const std::string name = json_text(config, "tokenizer_class");
  return name.starts_with("Llama") || name.starts_with("CodeLlama") || name.starts_with("Gemma") ||
         name.starts_with("Cohere");
}

void set_flag(const Json& config, const char* key, TokenizerParts& parts,
              void (*set)(bool, TokenizerParts&)) {
  const auto it = config.find(key);
  if (it != config.end() && it->is_boolean()) set(it->get<bool>(), parts);
}

void set_add(bool add, TokenId id, std::vector<TokenId>& ids, bool front) {
  std::erase(ids, id);
  if (!add || id == kNoToken) return;
  ids.insert(front ? ids.begin() : ids.end(), id);
}

}  // namespace

void set_add_bos(bool add, TokenizerParts& parts) { set_add(add, parts.bos, parts.before, true); }
void set_add_eos(bool add, TokenizerParts& parts) { set_add(add, parts.eos, parts.after, false); }

Result<TokenizerParts> load_word_piece_list(std::string_view text, bool lowercase) {
  TokenizerParts parts;
  WordPieces pieces;
  for (TokenId id = 0; !text.empty(); ++id) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view piece = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (piece.ends_with('\r')) piece.remove_suffix(1);
    RETURN_IF_ERROR(parts.vocabulary.add(id, piece));
    const bool special = piece == "[CLS]" || piece == "[SEP]" || piece == "[PAD]" ||
                         piece == "[UNK]" || piece == "[MASK]";
    if (special) {
      parts.added.push_back({.id = id, .content = std::string(piece), .special = true});
      continue;
    }
    pieces.add(piece, "##", id);
  }
  const auto id = [&](const char* piece) { return parts.vocabulary.find(piece); };
  parts.unk = id("[UNK]");
  parts.bos = id("[CLS]");
  parts.eos = id("[SEP]");
  parts.pad = id("[PAD]");
  parts.model = std::make_unique<WordPiece>(std::move(pieces), parts.unk, 100);
  parts.normalizer = Normalizer::bert(true, true, lowercase, lowercase);
  parts.pre_tokenizer.add_bert();
  parts.decoder = Decoder::word_piece("##", true);
  if (parts.bos != kNoToken && parts.eos != kNoToken) set_bert_form(parts);
  return parts;
}

void set_bert_form(TokenizerParts& parts) {
  parts.bos = parts.vocabulary.find("[CLS]"), parts.eos = parts.vocabulary.find("[SEP]");
  set_add_bos(true, parts);
  set_add_eos(true, parts);
  parts.pair = {{parts.bos}, {parts.eos}, {parts.eos}, true};
}

Status apply_config_files(const TokenizerFiles& files, TokenizerParts& parts) {
  const auto parse = [](const std::string& text, const char* name) -> Result<Json> {
    return text.empty() ? Result<Json>(Json::object()) : parse_json(text, name);
  };
  ASSIGN_OR_RETURN(const Json added, parse(files.added_tokens_json, "added_tokens.json"));
  for (const auto& [content, id] : added.items()) {
    if (!id.is_number_unsigned() ||
        id.get<uint64_t>() >= static_cast<uint64_t>(Vocabulary::kMaxSize)) {
      return errorf(ErrorCode::kCorruptFile,
                    "added_tokens.json: \"{:.40}\": expected an id below {}", content,
                    Vocabulary::kMaxSize);
    }
    RETURN_IF_ERROR(
        add_missing_token(id.get<TokenId>(), {.id = id.get<TokenId>(), .content = content}, parts));
  }
  ASSIGN_OR_RETURN(const Json config, parse(files.tokenizer_config_json, "tokenizer_config.json"));
  RETURN_IF_ERROR(add_decoder_tokens(config, parts));
  const TokenId loaded_bos = parts.bos, loaded_eos = parts.eos;
  ASSIGN_OR_RETURN(const Json model, parse(files.config_json, "config.json"));
  ASSIGN_OR_RETURN(const Json generation,
                   parse(files.generation_config_json, "generation_config.json"));
  const std::vector<TokenId> begin_ids = ids_of(model, "bos_token_id", parts.vocabulary);
  const std::vector<TokenId> end_ids = ids_of(model, "eos_token_id", parts.vocabulary);
  if (parts.bos == kNoToken && !begin_ids.empty()) parts.bos = begin_ids[0];
  if (parts.eos == kNoToken && !end_ids.empty()) parts.eos = end_ids[0];
  ASSIGN_OR_RETURN(const Json specials,
                   parse(files.special_tokens_map_json, "special_tokens_map.json"));
  set_named_tokens(specials, parts);
  set_named_tokens(config, parts);
  std::replace(parts.before.begin(), parts.before.end(), loaded_bos, parts.bos);
  std::replace(parts.after.begin(), parts.after.end(), loaded_eos, parts.eos);
  parts.end_of_generation.insert(parts.end_of_generation.end(), end_ids.begin(), end_ids.end());
  for (const TokenId id : ids_of(generation, "eos_token_id", parts.vocabulary))
    parts.end_of_generation.push_back(id);
  if (files.tokenizer_json.empty() || class_sets_bos(config)) {
    set_flag(config, "add_bos_token", parts, set_add_bos);
    set_flag(config, "add_eos_token", parts, set_add_eos);
  }
  read_token_names(specials, parts);
  read_token_names(config, parts);
  return choose_templates(files, config, parts);
}

}  // namespace penstock
