// The parts of a tokenizer: loaders assemble them, Tokenizer runs them.
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
  // normalizer of text after an added token, where it differs
  std::optional<Normalizer> inner_normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<WordModel> model;
  Decoder decoder = Decoder::byte_level();
  // tokens that are matched verbatim in the text
  std::vector<AddedToken> added;
  // ids of special tokens, besides the added tokens with `special`
  std::vector<TokenId> special;
  std::vector<TokenId> before, after;  // special tokens before and after a text
  PairForm pair;                       // special tokens of a pair of texts
  TokenId bos = kNoToken, eos = kNoToken, unk = kNoToken, pad = kNoToken;
  std::vector<TokenId> end_of_generation;  // further end tokens besides eos
  std::map<std::string, std::string> chat_templates;
  // spellings of tokens by what the files call them ("image_token"), for chat templates
  std::map<std::string, std::string> named_tokens;
  // chat template of a model whose files have none
  std::string built_in_template;
};

// Loads a tokenizer.json or tekken.json. Errors: kCorruptFile, kUnsupported.
Result<TokenizerParts> load_tokenizer_json(std::string_view text);
// The same of the parsed content of a tokenizer.json.
Result<TokenizerParts> load_tokenizer(const nlohmann::json& root);
// Loads GPT-2's vocab.json and merges.txt. Errors: also kUnsupported (another tokenizer_class).
Result<TokenizerParts> load_vocab_and_merges(const TokenizerFiles& files);
// Loads SentencePiece's tokenizer.model. legacy: a dummy prefix is added after an added token too.
Result<TokenizerParts> load_sentence_piece_model(std::string_view bytes, bool legacy);
// Loads tiktoken's rank files: lines of a base64 token and its rank.
bool is_tiktoken(std::string_view bytes);
Result<TokenizerParts> load_tiktoken(std::string_view bytes);
// is_tekken(): whether the JSON is a tekken.json of Mistral's models; load_tekken() loads it.
bool is_tekken(const nlohmann::json& root);
Result<TokenizerParts> load_tekken(const nlohmann::json& root);
// set_ranked_tokens() makes a byte-level BPE whose merges follow from the tokens, ranked by their
// ids; a word that is a token is not split. Errors: kCorruptFile (tokens with equal bytes).
struct TokenBytes {
  std::string bytes;
  TokenId id;
};
Status set_ranked_tokens(std::span<const TokenBytes> tokens, TokenizerParts& parts);
// Loads BERT's vocab.txt.
Result<TokenizerParts> load_word_piece_list(std::string_view text, bool lowercase);
Result<TokenizerParts> load_gguf_tokenizer(const nlohmann::json& metadata);
// Loads RWKV's list of tokens, rwkv_vocab_v20230424.txt.
bool is_rwkv_list(std::string_view text);
Result<TokenizerParts> load_rwkv_list(std::string_view text);

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
  std::vector<ScoredPiece> pieces;  // pieces, indexed by id
  bool unigram = false;             // unigram model; false: BPE
  bool byte_fallback = false;
  bool legacy = true;
  SentencePieceRules rules;
  int unk = -1, bos = -1, eos = -1, pad = -1;  // -1 = none
};
Result<TokenizerParts> make_sentence_piece(SentencePieceSpec spec);
// The same tokens as GGUF has them. REQUIRES: there is one.
Result<TokenizerParts> load_rwkv_pieces(std::span<const ScoredPiece> pieces);
// The list of PLaMo 2 and 3, tokenizer.jsonl.
struct PlamoList {
  std::vector<ScoredPiece> pieces;
  std::vector<double> scores;  // theirs
};
Result<PlamoList> read_plamo_list(std::string_view text);
// config: tokenizer_config.json
Result<TokenizerParts> load_plamo_list(std::string_view text, const nlohmann::json& config);
Result<TokenizerParts> load_plamo_pieces(std::span<const ScoredPiece> pieces);
// Parses the content of tokenizer.model. Errors: kCorruptFile, kUnsupported.
Result<SentencePieceSpec> read_sentence_piece(std::string_view bytes);

// Applies tokenizer_config.json, special_tokens_map.json, added_tokens.json, config.json and
// generation_config.json.
Status apply_config_files(const TokenizerFiles& files, TokenizerParts& parts);
// Set whether a text begins with bos, ends with eos.
void set_add_bos(bool add, TokenizerParts& parts);
void set_add_eos(bool add, TokenizerParts& parts);
// Texts stand between [CLS] and [SEP] as for BERT, pairs too. REQUIRES: the vocabulary has both.
void set_bert_form(TokenizerParts& parts);

}  // namespace penstock
