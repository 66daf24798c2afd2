// Text to token ids and back, for every vocabulary the loaders know.
//
// A Tokenizer is immutable after load (and add_ends) and thread-safe. Views that it returns live as
// long as it does.
#pragma once
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/weight_source.h"
#include "penstock/types.h"

namespace penstock {

struct TokenizerParts;

struct EncodeOptions {
  // the BOS, EOS or template tokens the model was trained with
  bool add_special = true;
  // Special tokens in the text, such as "<|im_start|>", become tokens instead of characters.
  bool parse_special = false;
};

// The special tokens around and between the two texts of a pair; all empty when the tokenizer
// defines none.
struct PairForm {
  std::vector<TokenId> before, between, after;
  // the second text and the tokens after it have token type 1
  bool types = false;
};

// The content of the files of a Hugging Face directory that describe a tokenizer; empty = there is
// no such file.
struct TokenizerFiles {
  std::string tokenizer_json;  // or tekken.json (recognised by content)
  // SentencePiece protobuf, or a tiktoken file (recognised by content)
  std::string tokenizer_model;
  std::string tokenizer_config_json;
  std::string special_tokens_map_json;
  std::string added_tokens_json;
  // WordPiece, one piece per line, or the list of RWKV (recognised by content)
  std::string vocab_txt;
  std::string tokenizer_jsonl;         // the list of PLaMo 2 and 3
  std::string vocab_json, merges_txt;  // GPT-2's
  std::string chat_template_jinja;
  std::string chat_template_json;  // older directories of models that see have the template in it
  std::map<std::string, std::string> additional_templates;  // by name, beside the usual one
  std::string config_json;             // the model's: bos and eos ids, model_type
  std::string generation_config_json;  // eos ids
};

class Tokenizer {
 public:
  // Errors: kNotFound (the source has no tokenizer), kCorruptFile, kUnsupported.
  static Result<std::unique_ptr<Tokenizer>> load(const WeightSource& source);
  static Result<std::unique_ptr<Tokenizer>> from_files(const TokenizerFiles& files);
  // metadata: the flat object of a GGUF file's metadata ("tokenizer.ggml.model", ...).
  static Result<std::unique_ptr<Tokenizer>> from_gguf(const nlohmann::json& metadata);
  ~Tokenizer();

  // Never fails: any bytes are accepted. Bytes that are not UTF-8 are kept as they are by
  // byte-level vocabularies and read as U+FFFD, one per byte, by the others.
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // Returns a lower bound for the number of tokens of a text, without encoding all of a long one.
  // Stops as soon as the bound exceeds `most`; returns 0 for texts of at most 64 KiB.
  size_t count_at_least(std::string_view text, size_t most) const;

  // join() makes one sequence of two texts, as transformers does of text and text_pair. first,
  // second: tokens without special tokens.
  const PairForm& pair_form() const;
  std::vector<TokenId> join(std::span<const TokenId> first, std::span<const TokenId> second) const;

  // Returns the text of the tokens, as Hugging Face without clean-up; invalid UTF-8 becomes
  // U+FFFD. Ids outside the vocabulary add nothing. skip_special leaves special tokens out.
  std::string decode(std::span<const TokenId> tokens, bool skip_special = true) const;
  // As decode(), without the replacement by U+FFFD.
  std::string decode_bytes(std::span<const TokenId> tokens, bool skip_special = true) const;

  // The bytes this token adds to a text; decode_bytes() is their concatenation. first: no token
  // precedes it in the text (skipped special tokens do not count), where SentencePiece drops its
  // leading space. May be part of a UTF-8 character. Special tokens give their name ("<s>"); an id
  // outside the vocabulary gives "".
  std::string_view token_bytes(TokenId id, bool first = false) const;

  // The vocabulary's own spelling of a token ("Ġthe", "▁the", "<0x0A>"); "" outside the vocabulary.
  std::string_view piece(TokenId id) const;
  std::optional<TokenId> find(std::string_view piece) const;
  int vocab_size() const;  // the largest id + 1

  // Ids of special tokens; kNoToken where the vocabulary has none.
  TokenId bos() const;
  TokenId eos() const;
  TokenId unk() const;
  TokenId pad() const;
  bool is_special(TokenId id) const;  // control tokens: no text of their own
  // Whether the token ends generation: eos, the eos ids of config.json and generation_config.json,
  // GGUF's eot, eom and eog ids, or the end tokens of a tiktoken file's model family.
  bool is_end_of_generation(TokenId id) const;
  std::span<const TokenId> end_of_generation_ids() const;  // ascending
  // Adds end-of-generation tokens, which a chat template defines. REQUIRES: no other thread uses
  // the tokenizer yet.
  void add_ends(std::span<const TokenId> ids);
  // Whether add_special adds a BOS at the start, an EOS at the end.
  bool add_bos() const;
  bool add_eos() const;

  // Jinja source of the default chat template; "" when the model has none.
  const std::string& chat_template() const;
  // All templates by name ("default", "tool_use", ...).
  const std::map<std::string, std::string>& chat_templates() const;
  // Spellings of tokens by what the files call them ("image_token"), which templates may use.
  const std::map<std::string, std::string>& named_tokens() const;

 private:
  struct Impl;
  static Result<std::unique_ptr<Tokenizer>> from_parts(Result<TokenizerParts> parts);
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock
