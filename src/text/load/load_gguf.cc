// Loads tokenizers from GGUF metadata: "tokenizer.ggml.model" names the kind; arrays hold tokens,
// scores, types and merges.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/load/presets.h"
#include "text/steps/json_fields.h"
#include "text/tokenizer_parts.h"
#include "text/vocab/bpe.h"
#include "text/vocab/byte_alphabet.h"
#include "text/vocab/vocabulary.h"
#include "text/vocab/word_piece.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

// Returns an array of the metadata; empty if it is missing.
Result<std::span<const Json>> array_of(const Json& metadata, const char* key, size_t expected) {
  const auto it = metadata.find(key);
  if (it == metadata.end()) return std::span<const Json>();
  if (!it->is_array() || (expected > 0 && it->size() != expected)) {
    return errorf(ErrorCode::kCorruptFile, "{}: expected an array of {} values, got {}", key,
                  expected,
                  it->is_array() ? std::to_string(it->size()) + " values" : it->type_name());
  }
  const auto& list = it->get_ref<const Json::array_t&>();
  return std::span<const Json>(list.data(), list.size());
}

TokenId id_of(const Json& metadata, const char* key, int n) {
  const std::string name = std::string("tokenizer.ggml.") + key;
  return static_cast<TokenId>(json_int(metadata, name.c_str(), kNoToken, n - 1));
}

Result<std::vector<ScoredPiece>> read_pieces(const Json& metadata) {
  ASSIGN_OR_RETURN(const auto tokens, array_of(metadata, "tokenizer.ggml.tokens", 0));
  if (tokens.empty())
    return errorf(ErrorCode::kCorruptFile,
                  "tokenizer.ggml.tokens: expected an array of strings, got none");
  ASSIGN_OR_RETURN(const auto scores, array_of(metadata, "tokenizer.ggml.scores", tokens.size()));
  ASSIGN_OR_RETURN(const auto types,
                   array_of(metadata, "tokenizer.ggml.token_type", tokens.size()));
  std::vector<ScoredPiece> pieces(tokens.size());
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (!tokens[id].is_string())
      return errorf(ErrorCode::kCorruptFile, "tokenizer.ggml.tokens: token {} is not a string", id);
    pieces[id].text = tokens[id].get_ref<const std::string&>();
    if (!scores.empty() && scores[id].is_number()) pieces[id].score = scores[id].get<float>();
    if (types.empty()) continue;
    const int64_t type = types[id].is_number_integer() ? types[id].get<int64_t>() : 0;
    // 0 is "undefined"; some writers use it for ordinary tokens.
    pieces[id].type = type >= 1 && type <= 6 ? static_cast<PieceType>(type) : PieceType::kNormal;
  }
  return pieces;
}

Result<TokenizerParts> load_sentence_piece(const Json& metadata, std::vector<ScoredPiece> pieces,
                                           bool unigram) {
  SentencePieceSpec spec;
  const int n = static_cast<int>(pieces.size());
  spec.unigram = unigram;
  spec.byte_fallback = std::any_of(pieces.begin(), pieces.end(),
                                   [](const auto& p) { return p.type == PieceType::kByte; });
  // In files without types, pieces such as "<0x0A>" are byte tokens.
  for (ScoredPiece& piece : pieces) {
    if (byte_of_piece(piece.text) >= 0 && piece.type == PieceType::kNormal)
      piece.type = PieceType::kByte, spec.byte_fallback = true;
  }
  spec.pieces = std::move(pieces);
  spec.rules.add_dummy_prefix = json_flag(metadata, "tokenizer.ggml.add_space_prefix", true);
  spec.rules.remove_extra_whitespaces =
      json_flag(metadata, "tokenizer.ggml.remove_extra_whitespaces", false);
  ASSIGN_OR_RETURN(const auto charsmap,
                   array_of(metadata, "tokenizer.ggml.precompiled_charsmap", 0));
  std::string blob;
  for (const Json& byte : charsmap)
    blob += static_cast<char>(byte.is_number_integer() ? byte.get<int64_t>() : 0);
  ASSIGN_OR_RETURN(spec.rules.charsmap, Charsmap::parse(blob));
  spec.bos = id_of(metadata, "bos_token_id", n);
  spec.eos = id_of(metadata, "eos_token_id", n);
  spec.unk = id_of(metadata, "unknown_token_id", n);
  spec.pad = id_of(metadata, "padding_token_id", n);
  return make_sentence_piece(std::move(spec));
}

Status add_merges(const Json& metadata, BpeRules& rules, const Vocabulary& vocabulary) {
  ASSIGN_OR_RETURN(const auto merges, array_of(metadata, "tokenizer.ggml.merges", 0));
  rules.merges.reserve(merges.size());
  uint32_t rank = 0;
  for (const Json& item : merges) {
    const std::string text = item.is_string() ? item.get<std::string>() : std::string();
    const size_t space = text.find(' ', 1);
    if (space == std::string::npos) {
      return errorf(ErrorCode::kCorruptFile,
                    "tokenizer.ggml.merges: merge {}: expected two tokens, got \"{:.40}\"", rank,
                    text);
    }
    const std::string left = text.substr(0, space), right = text.substr(space + 1);
    const TokenId ids[] = {vocabulary.find(left), vocabulary.find(right),
                           vocabulary.find(left + right)};
    if (std::any_of(std::begin(ids), std::end(ids), [](TokenId id) { return id < 0; })) {
      return errorf(ErrorCode::kCorruptFile,
                    "tokenizer.ggml.merges: merge {} (\"{:.40}\") is of tokens that do not exist",
                    rank, text);
    }
    rules.merges.insert(BpeRules::pair_key(ids[0], ids[1]), {}) = {rank++, ids[2]};
  }
  return {};
}

// Adds merges by taking ids as ranks, for vocabularies that were converted from a rank file.
void add_merges_by_id(const std::vector<ScoredPiece>& pieces, BpeRules& rules) {
  std::vector<std::string> texts(pieces.size());  // outlive the views of them
  std::vector<RankedToken> tokens;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto bytes = from_byte_alphabet(pieces[i].text);
    if (!bytes || pieces[i].type != PieceType::kNormal) continue;
    texts[i] = *bytes;
    tokens.push_back({texts[i], static_cast<TokenId>(i), static_cast<uint32_t>(i)});
  }
  add_merges_from_ranks(tokens, rules);
}

// Reads the tokens around a text, under the names that encoders' files use, too.
void read_ends(const Json& metadata, TokenizerParts& parts) {
  const int n = parts.vocabulary.size();
  const auto first_of = [&](std::initializer_list<const char*> keys) {
    TokenId id = kNoToken;
    for (const char* key : keys) {
      if (id == kNoToken) id = id_of(metadata, key, n);
    }
    return id;
  };
  parts.bos = first_of({"bos_token_id", "cls_token_id"});
  // "seperator": the format's spelling
  parts.eos = first_of({"eos_token_id", "seperator_token_id", "separator_token_id"});
  parts.unk = first_of({"unknown_token_id"});
  parts.pad = first_of({"padding_token_id"});
}

Status add_words(const std::vector<ScoredPiece>& pieces, BpeRules& rules, TokenizerParts& parts) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const ScoredPiece& piece = pieces[i];
    RETURN_IF_ERROR(parts.vocabulary.add(id, piece.text));
    const bool control = piece.type == PieceType::kControl || piece.type == PieceType::kUnknown;
    const bool added = control || piece.type == PieceType::kUserDefined;
    if (added)
      parts.added.push_back(
          {.id = id, .content = piece.text, .special = control, .normalized = !control});
    const auto word = rules.bytes ? from_byte_alphabet(piece.text) : std::string(piece.text);
    if (word && (piece.type == PieceType::kNormal || (rules.bytes && word->size() <= 4)))
      rules.words.insert(*word, id);
  }
  rules.vocab_size = parts.vocabulary.size();
  return {};
}

// Loads BPE of bytes or of characters. pre: name of the family's rules for splitting text.
Result<TokenizerParts> load_bpe(const Json& metadata, const std::vector<ScoredPiece>& pieces,
                                const std::string& pre) {
  TokenizerParts parts;
  ASSIGN_OR_RETURN(Preset preset, preset_of(pre.empty() ? "default" : pre));
  BpeRules rules;
  rules.bytes = !preset.characters;
  rules.mapped = preset.pre_tokenizer.is_mapped();
  rules.ignore_merges = preset.ignore_merges;
  RETURN_IF_ERROR(add_words(pieces, rules, parts));
  read_ends(metadata, parts);
  if (preset.characters) {
    rules.byte_fallback = rules.fuse_unk = true;
    rules.byte_ids = byte_tokens(parts.vocabulary);
    rules.unk = parts.unk;
    parts.decoder = Decoder::sentence_piece(false);
  }
  if (preset.ranks && !metadata.contains("tokenizer.ggml.merges")) {
    add_merges_by_id(pieces, rules);
  } else {
    RETURN_IF_ERROR(add_merges(metadata, rules, parts.vocabulary));
  }
  parts.model = std::make_unique<Bpe>(std::move(rules));
  parts.pre_tokenizer = std::move(preset.pre_tokenizer);
  parts.normalizer = std::move(preset.normalizer);
  set_add_bos(preset.add_bos, parts);
  return parts;
}

// Restores WordPiece's marks, which GGUF inverts: "▁" marks the start of a word in GGUF.
std::string word_piece_spelling(const ScoredPiece& piece) {
  if (piece.type != PieceType::kNormal && piece.type != PieceType::kUserDefined) return piece.text;
  if (piece.text.starts_with(kSpaceSymbol)) return piece.text.substr(kSpaceSymbol.size());
  return "##" + piece.text;
}

Result<TokenizerParts> load_bert(const Json& metadata, const std::vector<ScoredPiece>& pieces) {
  TokenizerParts parts;
  WordPieces words;
  bool cased = false;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string spelling = word_piece_spelling(pieces[i]);
    RETURN_IF_ERROR(parts.vocabulary.add(id, spelling));
    if (pieces[i].type == PieceType::kControl || pieces[i].type == PieceType::kUnknown) {
      parts.added.push_back({.id = id, .content = spelling, .special = true});
      continue;
    }
    words.add(spelling, "##", id);
    const bool reserved = spelling.starts_with('[') && spelling.ends_with(']');
    cased = cased || (!reserved && std::any_of(spelling.begin(), spelling.end(),
                                               [](char c) { return c >= 'A' && c <= 'Z'; }));
  }
  const int n = parts.vocabulary.size();
  parts.unk = id_of(metadata, "unknown_token_id", n);
  parts.bos = id_of(metadata, "cls_token_id", n);
  if (parts.bos == kNoToken) parts.bos = id_of(metadata, "bos_token_id", n);
  parts.eos = id_of(metadata, "seperator_token_id", n);  // "seperator": the format's spelling
  if (parts.eos == kNoToken) parts.eos = id_of(metadata, "separator_token_id", n);
  if (parts.eos == kNoToken) parts.eos = id_of(metadata, "eos_token_id", n);
  parts.pad = id_of(metadata, "padding_token_id", n);
  parts.model = std::make_unique<WordPiece>(std::move(words), parts.unk, 100);
  parts.normalizer = Normalizer::bert(true, true, !cased, !cased);
  parts.pre_tokenizer.add_bert();
  parts.decoder = Decoder::word_piece("##", true);
  set_add_bos(true, parts);
  set_add_eos(true, parts);
  return parts;
}

void read_gguf_templates(const Json& metadata, TokenizerParts& parts) {
  constexpr std::string_view kPrefix = "tokenizer.chat_template";
  for (const auto& [key, value] : metadata.items()) {
    if (!key.starts_with(kPrefix) || !value.is_string()) continue;
    if (key.size() == kPrefix.size()) {
      parts.chat_templates["default"] = value.get<std::string>();
    } else if (key[kPrefix.size()] == '.') {
      parts.chat_templates[key.substr(kPrefix.size() + 1)] = value.get<std::string>();
    }
  }
}

}  // namespace

Result<TokenizerParts> load_gguf_tokenizer(const Json& metadata) {
  const std::string kind = json_text(metadata, "tokenizer.ggml.model");
  if (kind.empty())
    return errorf(ErrorCode::kNotFound, "tokenizer.ggml.model: the file carries no tokenizer");
  ASSIGN_OR_RETURN(std::vector<ScoredPiece> pieces, read_pieces(metadata));
  if (pieces.size() > static_cast<size_t>(Vocabulary::kMaxSize)) {
    return errorf(ErrorCode::kCorruptFile,
                  "tokenizer.ggml.tokens: expected at most {} tokens, got {}", Vocabulary::kMaxSize,
                  pieces.size());
  }
  Result<TokenizerParts> parts =
      errorf(ErrorCode::kUnsupported, "tokenizer.ggml.model: \"{:.40}\" is not a known kind", kind);
  if (kind == "llama" || kind == "t5")
    parts = load_sentence_piece(metadata, std::move(pieces), kind == "t5");
  else if (kind == "gpt2")
    parts = load_bpe(metadata, pieces, json_text(metadata, "tokenizer.ggml.pre"));
  else if (kind == "gemma4")
    parts = load_bpe(metadata, pieces, "gemma4");
  else if (kind == "bert")
    parts = load_bert(metadata, pieces);
  else if (kind == "rwkv")
    parts = load_rwkv_pieces(pieces);
  else if (kind == "plamo2")
    parts = load_plamo_pieces(pieces);
  if (!parts) return parts;
  if (kind == "llama") set_add_bos(true, *parts);
  if (kind == "t5") set_add_eos(true, *parts);
  for (const char* end : {"eot_token_id", "eom_token_id", "eog_token_id"}) {
    const TokenId id = id_of(metadata, end, parts->vocabulary.size());
    if (id != kNoToken) parts->end_of_generation.push_back(id);
  }
  const auto flag = metadata.find("tokenizer.ggml.add_bos_token");
  if (flag != metadata.end() && flag->is_boolean()) set_add_bos(flag->get<bool>(), *parts);
  const auto end_flag = metadata.find("tokenizer.ggml.add_eos_token");
  if (end_flag != metadata.end() && end_flag->is_boolean())
    set_add_eos(end_flag->get<bool>(), *parts);
  read_gguf_templates(metadata, *parts);
  return parts;
}

}  // namespace penstock
