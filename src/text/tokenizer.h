// Text to token ids and back, for every vocabulary the loaders know.
//
// A Tokenizer is immutable after load (and add_ends): any thread may call it. Views it returns live as long as it does.
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
  bool add_special = true;     // the BOS, EOS or template tokens the model was trained with
  bool parse_special = false;  // "<|im_start|>" in the text is that token, not its characters
};

// What stands around and between two texts that are read as one. Without a form of the tokenizer's: nothing.
struct PairForm {
  std::vector<TokenId> before, between, after;
  bool types = false;  // the second text and what is behind it are of another type
};

// The content of the files of a Hugging Face directory that describe a tokenizer; empty = there is no such
// file.
struct TokenizerFiles {
  std::string tokenizer_json;   // or tekken.json (recognised by content)
  std::string tokenizer_model;  // SentencePiece protobuf, or a tiktoken file (recognised by content)
  std::string tokenizer_config_json;
  std::string special_tokens_map_json;
  std::string added_tokens_json;
  std::string vocab_txt;  // WordPiece, one piece per line
  std::string chat_template_jinja;
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

  // Never fails: any bytes are accepted. Bytes that are not UTF-8 are kept as they are by byte-level
  // vocabularies and read as U+FFFD, one per byte, by the others.
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // A number of tokens that a text has at least, as its beginning tells: a text of megabytes need not become tokens for that.
  // It ends as soon as that is more than `most`; of texts up to 64 KiB it is 0.
  size_t count_at_least(std::string_view text, size_t most) const;

  // Two texts as one, as transformers reads text and text_pair: `first` and `second` are tokens without special ones.
  const PairForm& pair_form() const;
  std::vector<TokenId> join(std::span<const TokenId> first, std::span<const TokenId> second) const;

  // The text of the tokens as Hugging Face decodes it without clean-up; what is not UTF-8 becomes U+FFFD.
  // Ids outside the vocabulary add nothing. skip_special leaves special tokens out.
  std::string decode(std::span<const TokenId> tokens, bool skip_special = true) const;
  // The same without the replacement by U+FFFD.
  std::string decode_bytes(std::span<const TokenId> tokens, bool skip_special = true) const;

  // The bytes this token adds to a text; decode_bytes() is their concatenation. first: no token precedes it
  // in the text (skipped special tokens do not count), where SentencePiece drops its leading space. May be
  // part of a UTF-8 character. Special tokens give their name ("<s>"); an id outside the vocabulary gives "".
  std::string_view token_bytes(TokenId id, bool first = false) const;

  // The vocabulary's own spelling of a token ("Ġthe", "▁the", "<0x0A>"); "" outside the vocabulary.
  std::string_view piece(TokenId id) const;
  std::optional<TokenId> find(std::string_view piece) const;
  int vocab_size() const;  // largest id + 1

  // kNoToken where the vocabulary has none.
  TokenId bos() const;
  TokenId eos() const;
  TokenId unk() const;
  TokenId pad() const;
  bool is_special(TokenId id) const;  // control tokens: no text of their own
  // What ends a reply: eos, the eos ids of config.json and generation_config.json, GGUF's eot, eom and eog ids, those that
  // the family of a tiktoken file has.
  bool is_end_of_generation(TokenId id) const;
  std::span<const TokenId> end_of_generation_ids() const;  // ascending
  // Further ends, which a chat template has. REQUIRES: no other thread uses the tokenizer yet.
  void add_ends(std::span<const TokenId> ids);
  // Whether add_special puts a BOS first, an EOS last.
  bool add_bos() const;
  bool add_eos() const;

  // Jinja source of the default chat template; "" when the model has none.
  const std::string& chat_template() const;
  // All templates by name ("default", "tool_use", ...).
  const std::map<std::string, std::string>& chat_templates() const;

 private:
  struct Impl;
  static Result<std::unique_ptr<Tokenizer>> from_parts(Result<TokenizerParts> parts);
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock
