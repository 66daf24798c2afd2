// What a loader puts together and Tokenizer runs.
#pragma once
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "text/steps/added_tokens.h"
#include "text/steps/decoder.h"
#include "text/steps/normalizer.h"
#include "text/steps/pre_tokenizer.h"
#include "text/tokenizer.h"
#include "text/vocab/vocabulary.h"
#include "text/vocab/word_model.h"

namespace penstock {

struct TokenizerParts {
  Vocabulary vocabulary;
  Normalizer normalizer;
  std::optional<Normalizer> inner_normalizer;  // for text after an added token, where it differs
  PreTokenizer pre_tokenizer;
  std::unique_ptr<WordModel> model;
  Decoder decoder = Decoder::byte_level();
  std::vector<AddedToken> added;       // found in the text as they are
  std::vector<TokenId> special;        // ids, beside the added tokens that say so
  std::vector<TokenId> before, after;  // what add_special puts around a text
  PairForm pair;                       // and around two
  TokenId bos = kNoToken, eos = kNoToken, unk = kNoToken, pad = kNoToken;
  std::vector<TokenId> end_of_generation;  // beside eos
  std::map<std::string, std::string> chat_templates;
  std::string built_in_template;  // where the files have none
};

// tokenizer.json, or tekken.json. Errors: kCorruptFile, kUnsupported.
Result<TokenizerParts> load_tokenizer_json(std::string_view text);
// tokenizer.model of SentencePiece. legacy: a dummy prefix also follows an added token.
Result<TokenizerParts> load_sentence_piece_model(std::string_view bytes, bool legacy);
// Rank files: lines of base64 and rank.
bool is_tiktoken(std::string_view bytes);
Result<TokenizerParts> load_tiktoken(std::string_view bytes);
// tekken.json of Mistral's models, and whether it is one.
bool is_tekken(const nlohmann::json& root);
Result<TokenizerParts> load_tekken(const nlohmann::json& root);
// A byte-level BPE whose merges are made by the tokens themselves, those with lower ids first; a word that is a token is that
// token. Errors: kCorruptFile (tokens with equal bytes).
struct TokenBytes {
  std::string bytes;
  TokenId id;
};
Status set_ranked_tokens(std::span<const TokenBytes> tokens, TokenizerParts& parts);
// vocab.txt of BERT.
Result<TokenizerParts> load_word_piece_list(std::string_view text, bool lowercase);
Result<TokenizerParts> load_gguf_tokenizer(const nlohmann::json& metadata);

// A SentencePiece vocabulary, from a protobuf or from GGUF metadata.
enum class PieceType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};
struct ScoredPiece {
  std::string text;
  float score = 0;
  PieceType type = PieceType::kNormal;
};
struct SentencePieceSpec {
  std::vector<ScoredPiece> pieces;  // by id
  bool unigram = false;             // else BPE
  bool byte_fallback = false;
  bool legacy = true;
  SentencePieceRules rules;
  int unk = -1, bos = -1, eos = -1, pad = -1;  // -1 = none
};
Result<TokenizerParts> make_sentence_piece(SentencePieceSpec spec);
// The content of tokenizer.model. Errors: kCorruptFile, kUnsupported.
Result<SentencePieceSpec> read_sentence_piece(std::string_view bytes);

// Applies tokenizer_config.json, special_tokens_map.json, added_tokens.json, config.json and
// generation_config.json.
Status apply_config_files(const TokenizerFiles& files, TokenizerParts& parts);
// Makes bos the first token of every text, or takes it away; the same for eos at the end.
void set_add_bos(bool add, TokenizerParts& parts);
void set_add_eos(bool add, TokenizerParts& parts);

}  // namespace penstock
