// Loads tokenizer.json, the format of Hugging Face's tokenizers.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/steps/json_fields.h"
#include "text/tokenizer_parts.h"
#include "text/vocab/bpe.h"
#include "text/vocab/byte_alphabet.h"
#include "text/vocab/unigram.h"
#include "text/vocab/word_piece.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxId = Vocabulary::kMaxSize - 1;

// Returns the model's type, which old files omit.
std::string model_type(const Json& model) {
  std::string type = json_text(model, "type");
  if (!type.empty()) return type;
  if (model.contains("merges")) return "BPE";
  const auto vocab = model.find("vocab");
  if (vocab != model.end() && vocab->is_array()) return "Unigram";
  return model.contains("max_input_chars_per_word") || model.contains("continuing_subword_prefix")
             ? "WordPiece"
             : "WordLevel";
}

Status add_vocabulary(const Json& model, Vocabulary& vocabulary) {
  const auto vocab = model.find("vocab");
  if (vocab == model.end() || !vocab->is_object()) {
    return errorf(ErrorCode::kCorruptFile, "tokenizer.json: model: expected an object \"vocab\"");
  }
  for (const auto& [piece, id] : vocab->items()) {
    if (!id.is_number_integer()) {
      return errorf(ErrorCode::kCorruptFile,
                    "tokenizer.json: vocab: token \"{:.40}\": expected an integer id", piece);
    }
    const bool too_large =
        id.is_number_unsigned() && id.get<uint64_t>() > static_cast<uint64_t>(kMaxId);
    RETURN_IF_ERROR(
        vocabulary.add(too_large ? int64_t{Vocabulary::kMaxSize} : id.get<int64_t>(), piece));
  }
  return {};
}

// Reads the tokens that are matched verbatim in the text.
Status read_added_tokens(const Json& root, std::vector<AddedToken>& added) {
  const auto list = root.find("added_tokens");
  if (list == root.end() || list->is_null()) return {};
  if (!list->is_array())
    return errorf(ErrorCode::kCorruptFile, "tokenizer.json: added_tokens: expected an array");
  for (const Json& item : *list) {
    const std::string content = json_text(item, "content");
    const int64_t id = json_int(item, "id", -1, kMaxId);
    if (!item.is_object() || id < 0) {
      return errorf(ErrorCode::kCorruptFile,
                    "tokenizer.json: added_tokens: \"{:.40}\": expected an id from 0 to {}",
                    content, kMaxId);
    }
    const bool special = json_flag(item, "special", false);
    AddedToken token{.id = static_cast<TokenId>(id),
                     .content = content,
                     .special = special,
                     .normalized = json_flag(item, "normalized", !special),
                     .lstrip = json_flag(item, "lstrip", false),
                     .rstrip = json_flag(item, "rstrip", false),
                     .single_word = json_flag(item, "single_word", false)};
    added.push_back(std::move(token));
  }
  return {};
}

bool is_special_id(const std::vector<bool>& special, TokenId id) {
  return static_cast<size_t>(id) < special.size() && special[id];
}

// Returns which ids are special tokens, which plain text never yields.
std::vector<bool> special_ids(const TokenizerParts& parts) {
  std::vector<bool> special(static_cast<size_t>(parts.vocabulary.size()));
  for (const AddedToken& token : parts.added) {
    if (token.special && token.id < parts.vocabulary.size()) special[token.id] = true;
  }
  return special;
}

Result<TokenId> unk_id(const Json& model, const Vocabulary& vocabulary) {
  const std::string unk = json_text(model, "unk_token");
  if (unk.empty()) return kNoToken;
  const TokenId id = vocabulary.find(unk);
  if (id < 0)
    return errorf(ErrorCode::kCorruptFile,
                  "tokenizer.json: unk_token \"{:.40}\" is not in the vocabulary", unk);
  return id;
}

Result<std::pair<std::string, std::string>> merge_pair(const Json& item) {
  if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string()) {
    return std::pair(item[0].get<std::string>(), item[1].get<std::string>());
  }
  if (item.is_string()) {
    const auto& text = item.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      return std::pair(text.substr(0, space), text.substr(space + 1));
    }
  }
  return errorf(ErrorCode::kCorruptFile, "tokenizer.json: merges: expected two tokens, got {}",
                item.is_string() ? item.get<std::string>().substr(0, 60) : item.type_name());
}

Status add_merges(const Json& model, const Vocabulary& vocabulary, BpeRules& rules) {
  ASSIGN_OR_RETURN(const Json* list, json_array(model, "merges", "model"));
  rules.merges.reserve(list->size());
  uint32_t rank = 0;
  for (const Json& item : *list) {
    ASSIGN_OR_RETURN(const auto pair, merge_pair(item));
    const auto& [left, right] = pair;
    const std::string whole = left + right.substr(std::min(rules.prefix.size(), right.size()));
    const TokenId ids[] = {vocabulary.find(left), vocabulary.find(right), vocabulary.find(whole)};
    for (int i = 0; i < 3; ++i) {
      if (ids[i] >= 0) continue;
      return errorf(ErrorCode::kCorruptFile,
                    "tokenizer.json: merge {}: \"{:.40}\" is not in the vocabulary", rank,
                    i == 0   ? left
                    : i == 1 ? right
                             : whole);
    }
    rules.merges.insert(BpeRules::pair_key(ids[0], ids[1]), {}) = {rank++, ids[2]};
  }
  return {};
}

Status make_bpe(const Json& model, TokenizerParts& parts) {
  RETURN_IF_ERROR(add_vocabulary(model, parts.vocabulary));
  BpeRules rules;
  rules.prefix = json_text(model, "continuing_subword_prefix");
  rules.suffix = json_text(model, "end_of_word_suffix");
  RETURN_IF_ERROR(add_merges(model, parts.vocabulary, rules));
  ASSIGN_OR_RETURN(parts.unk, unk_id(model, parts.vocabulary));
  rules.vocab_size = parts.vocabulary.size();  // of the model: merges never make added tokens
  const Vocabulary& words = parts.vocabulary;
  rules.bytes = parts.pre_tokenizer.is_byte_level();
  rules.mapped = parts.pre_tokenizer.is_mapped();
  const std::vector<bool> special = special_ids(parts);
  for (TokenId id = 0; id < words.size(); ++id) {
    if (!words.contains(id) || words.find(words.piece(id)) != id) continue;
    const std::string_view piece = words.piece(id);
    const auto bytes = rules.bytes ? from_byte_alphabet(piece) : std::string(piece);
    if (bytes && !(is_special_id(special, id) && bytes->size() > 4)) rules.words.insert(*bytes, id);
  }
  rules.unk = parts.unk;
  rules.fuse_unk = json_flag(model, "fuse_unk", false);
  rules.byte_fallback = json_flag(model, "byte_fallback", false);
  rules.ignore_merges = json_flag(model, "ignore_merges", false);
  rules.byte_ids = byte_tokens(parts.vocabulary);
  parts.model = std::make_unique<Bpe>(std::move(rules));
  return {};
}

Status make_unigram(const Json& model, TokenizerParts& parts) {
  ASSIGN_OR_RETURN(const Json* list, json_array(model, "vocab", "model"));
  UnigramRules rules;
  double lowest = 0;
  std::vector<std::string> pieces;
  for (const Json& item : *list) {
    if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_number()) {
      return errorf(ErrorCode::kCorruptFile,
                    "tokenizer.json: vocab: token {}: expected [piece, score]", pieces.size());
    }
    const double score = item[1].get<double>();
    lowest = pieces.empty() ? score : std::min(lowest, score);
    rules.scores.push_back(score);
    pieces.push_back(item[0].get<std::string>());
    RETURN_IF_ERROR(parts.vocabulary.add(static_cast<int64_t>(pieces.size()) - 1, pieces.back()));
  }
  const auto n = static_cast<int64_t>(pieces.size());
  parts.unk = rules.unk = static_cast<TokenId>(json_int(model, "unk_id", -1, n - 1));
  const std::vector<bool> special = special_ids(parts);
  for (TokenId id = 0; id < n; ++id) {
    if (id != rules.unk && !is_special_id(special, id)) rules.pieces.insert(pieces[id], id);
  }
  rules.unk_score = lowest - 10;
  rules.byte_fallback = json_flag(model, "byte_fallback", false);
  rules.byte_ids = byte_tokens(parts.vocabulary);
  parts.model = std::make_unique<Unigram>(std::move(rules));
  return {};
}

Status make_word_piece(const Json& model, TokenizerParts& parts) {
  RETURN_IF_ERROR(add_vocabulary(model, parts.vocabulary));
  ASSIGN_OR_RETURN(parts.unk, unk_id(model, parts.vocabulary));
  const auto prefix_field = model.find("continuing_subword_prefix");
  const std::string prefix =
      prefix_field == model.end() ? "##" : json_text(model, "continuing_subword_prefix");
  WordPieces pieces;
  const std::vector<bool> special = special_ids(parts);
  for (TokenId id = 0; id < parts.vocabulary.size(); ++id) {
    if (!parts.vocabulary.contains(id) || is_special_id(special, id)) continue;
    const std::string_view piece = parts.vocabulary.piece(id);
    pieces.add(piece, prefix, id);
  }
  const auto max_chars =
      static_cast<int>(json_int(model, "max_input_chars_per_word", 100, 1 << 20));
  parts.model = std::make_unique<WordPiece>(std::move(pieces), parts.unk, max_chars);
  return {};
}

Status make_word_level(const Json& model, TokenizerParts& parts) {
  RETURN_IF_ERROR(add_vocabulary(model, parts.vocabulary));
  ASSIGN_OR_RETURN(parts.unk, unk_id(model, parts.vocabulary));
  StringIndex words;
  const std::vector<bool> special = special_ids(parts);
  for (TokenId id = 0; id < parts.vocabulary.size(); ++id) {
    if (parts.vocabulary.contains(id) && !is_special_id(special, id))
      words.insert(parts.vocabulary.piece(id), id);
  }
  parts.model = std::make_unique<WordLevel>(std::move(words), parts.unk);
  return {};
}

Status make_model(const Json& model, TokenizerParts& parts) {
  const std::string type = model_type(model);
  if (type != "BPE") parts.pre_tokenizer.map_bytes();
  if (type == "BPE") return make_bpe(model, parts);
  if (type == "Unigram") return make_unigram(model, parts);
  if (type == "WordPiece") return make_word_piece(model, parts);
  if (type == "WordLevel") return make_word_level(model, parts);
  return errorf(ErrorCode::kUnsupported, "tokenizer.json: model type \"{:.40}\" is not known",
                type);
}

Status add_template_token(const Json& processor, const std::string& name,
                          const Vocabulary& vocabulary, std::vector<TokenId>& ids) {
  const auto specials = processor.find("special_tokens");
  const auto entry = specials != processor.end() && specials->is_object() ? specials->find(name)
                                                                          : Json::const_iterator();
  if (specials == processor.end() || !specials->is_object() || entry == specials->end()) {
    return errorf(ErrorCode::kCorruptFile,
                  "tokenizer.json: post_processor: special token \"{:.40}\" is not listed", name);
  }
  ASSIGN_OR_RETURN(const Json* list, json_array(*entry, "ids", "post_processor"));
  for (const Json& id : *list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > static_cast<uint64_t>(kMaxId) ||
        !vocabulary.contains(id.get<TokenId>())) {
      return errorf(ErrorCode::kCorruptFile,
                    "tokenizer.json: post_processor: \"{:.40}\": id is not in the vocabulary",
                    name);
    }
    ids.push_back(id.get<TokenId>());
  }
  return {};
}

// Reads a token of the form "cls": ["[CLS]", 101].
Status add_pair_token(const Json& processor, const char* key, const Vocabulary& vocabulary,
                      std::vector<TokenId>& ids) {
  ASSIGN_OR_RETURN(const Json* pair, json_array(processor, key, "post_processor"));
  if (pair->size() != 2 || !(*pair)[1].is_number_unsigned() ||
      (*pair)[1].get<uint64_t>() > static_cast<uint64_t>(kMaxId) ||
      !vocabulary.contains((*pair)[1].get<TokenId>())) {
    return errorf(ErrorCode::kCorruptFile,
                  "tokenizer.json: post_processor: \"{}\": expected [token, id of the vocabulary]",
                  key);
  }
  ids.push_back((*pair)[1].get<TokenId>());
  return {};
}

// Reads a template of the form "pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}},
// {"Sequence": {"id": "A", "type_id": 0}}, ...].
Status add_pair_template(const Json& processor, TokenizerParts& parts) {
  const auto pair = processor.find("pair");
  if (pair == processor.end() || !pair->is_array()) return {};
  std::vector<TokenId>* const places[] = {&parts.pair.before, &parts.pair.between,
                                          &parts.pair.after};
  size_t n_texts = 0;
  for (const Json& item : *pair) {
    if (!item.is_object()) continue;
    if (const auto text = item.find("Sequence"); text != item.end() && text->is_object()) {
      const Json type = text->value("type_id", Json(0));
      if (++n_texts == 2) parts.pair.types = type.is_number_integer() && type != 0;
    } else if (item.contains("SpecialToken") && n_texts <= 2) {
      RETURN_IF_ERROR(add_template_token(processor, json_text(item.at("SpecialToken"), "id"),
                                         parts.vocabulary, *places[n_texts]));
    }
  }
  if (n_texts != 2) parts.pair = {};
  return {};
}

Status add_post_processor(const Json& json, int depth, TokenizerParts& parts) {
  if (json.is_null()) return {};
  ASSIGN_OR_RETURN(const std::string type, json_type(json, "post_processor"));
  if (type == "ByteLevel") return {};
  if (type == "Sequence") {
    if (depth >= 16)
      return errorf(ErrorCode::kCorruptFile, "post_processor: nested deeper than 16");
    ASSIGN_OR_RETURN(const Json* list, json_array(json, "processors", "post_processor"));
    for (const Json& item : *list) RETURN_IF_ERROR(add_post_processor(item, depth + 1, parts));
    return {};
  }
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    RETURN_IF_ERROR(add_pair_token(json, "cls", parts.vocabulary, parts.before));
    RETURN_IF_ERROR(add_pair_token(json, "sep", parts.vocabulary, parts.after));
    const bool roberta = type == "RobertaProcessing";
    parts.pair = {parts.before, parts.after, parts.after, !roberta};
    if (roberta) parts.pair.between.push_back(parts.after[0]);
    return {};
  }
  if (type != "TemplateProcessing") {
    return errorf(ErrorCode::kUnsupported, "tokenizer.json: post_processor \"{:.40}\" is not known",
                  type);
  }
  ASSIGN_OR_RETURN(const Json* single, json_array(json, "single", "post_processor"));
  bool after = false;
  for (const Json& item : *single) {
    if (item.is_object() && item.contains("Sequence")) {
      after = true;
    } else if (item.is_object() && item.contains("SpecialToken")) {
      RETURN_IF_ERROR(add_template_token(json, json_text(item.at("SpecialToken"), "id"),
                                         parts.vocabulary, after ? parts.after : parts.before));
    }
  }
  return add_pair_template(json, parts);
}

}  // namespace

Result<TokenizerParts> load_tokenizer_json(std::string_view text) {
  ASSIGN_OR_RETURN(const Json root, parse_json(text, "tokenizer.json"));
  return is_tekken(root) ? load_tekken(root) : load_tokenizer(root);
}

Result<TokenizerParts> load_tokenizer(const Json& root) {
  static const Json kNull;
  const auto section = [&](const char* key) -> const Json& {
    const auto it = root.find(key);
    return it == root.end() ? kNull : *it;
  };
  TokenizerParts parts;
  ASSIGN_OR_RETURN(parts.normalizer, Normalizer::from_json(section("normalizer")));
  ASSIGN_OR_RETURN(parts.pre_tokenizer, PreTokenizer::from_json(section("pre_tokenizer")));
  ASSIGN_OR_RETURN(parts.decoder, Decoder::from_json(section("decoder")));
  const auto model = root.find("model");
  if (model == root.end() || !model->is_object()) {
    return errorf(ErrorCode::kCorruptFile, "tokenizer.json: expected an object \"model\"");
  }
  RETURN_IF_ERROR(read_added_tokens(root, parts.added));
  RETURN_IF_ERROR(make_model(*model, parts));
  // An added token's spelling replaces the model's.
  for (const AddedToken& token : parts.added)
    RETURN_IF_ERROR(parts.vocabulary.add(token.id, token.content, true));
  RETURN_IF_ERROR(add_post_processor(section("post_processor"), 0, parts));
  return parts;
}

}  // namespace penstock
