#include "text/tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/work.h"
#include "text/steps/json_fields.h"
#include "text/tokenizer_parts.h"
#include "text/unicode/unicode.h"

namespace penstock {
namespace {

// Returns the fields of a configuration that name tokens, as JSON, without values of other types.
std::string id_fields(const nlohmann::json& config) {
  nlohmann::json fields = nlohmann::json::object();
  for (const char* key : {"bos_token_id", "eos_token_id"}) {
    if (!config.is_object() || !config.contains(key)) continue;
    const nlohmann::json& value = config.at(key);
    nlohmann::json ids = nlohmann::json::array();
    if (value.is_number_unsigned()) ids.push_back(value);
    for (size_t i = 0; value.is_array() && i < value.size(); ++i) {
      if (value[i].is_number_unsigned()) ids.push_back(value[i]);
    }
    fields[key] = std::move(ids);
  }
  return fields.dump();
}

}  // namespace

struct Tokenizer::Impl {
  TokenizerParts parts;
  AddedTokens added;
  bool keeps_invalid_utf8 = false;
  std::vector<bool> special, end;
  std::vector<TokenId> end_ids;
  std::string chat_template;

  // Bytes that each token adds to a text: after another token [offsets[i], offsets[i + 1]); as the
  // first token the same without the first skips[i] bytes, or, if that does not hold (kOther), the
  // entry of first_bytes.
  static constexpr uint8_t kOther = 255;
  std::string bytes;
  std::vector<uint64_t> offsets;
  std::vector<uint8_t> skips;
  std::map<TokenId, std::string> first_bytes;

  void finish();
  void build_bytes();
  void add_ends(std::span<const TokenId> ids);
  void encode_text(std::string_view text, const EncodeOptions& options,
                   std::vector<TokenId>& out) const;
};

void Tokenizer::Impl::build_bytes() {
  const int n = parts.vocabulary.size();
  offsets.reserve(static_cast<size_t>(n) + 1);
  skips.assign(static_cast<size_t>(n), 0);
  offsets.push_back(0);
  for (TokenId id = 0; id < n; ++id) {
    const std::string_view piece = parts.vocabulary.piece(id);
    const std::string rest =
        parts.vocabulary.contains(id) ? parts.decoder.apply(piece, false) : std::string();
    std::string first =
        parts.vocabulary.contains(id) ? parts.decoder.apply(piece, true) : std::string();
    if (rest.ends_with(first) && rest.size() - first.size() < kOther) {
      skips[id] = static_cast<uint8_t>(rest.size() - first.size());
    } else {
      skips[id] = kOther;
      first_bytes[id] = std::move(first);
    }
    bytes += rest;
    offsets.push_back(bytes.size());
  }
}

void Tokenizer::Impl::add_ends(std::span<const TokenId> ids) {
  for (const TokenId id : ids) {
    if (id < 0 || id >= parts.vocabulary.size() || end[id]) continue;
    end[id] = true;
    end_ids.insert(std::ranges::lower_bound(end_ids, id), id);
  }
}

void Tokenizer::Impl::finish() {
  keeps_invalid_utf8 = parts.pre_tokenizer.is_byte_level() && parts.normalizer.keeps_invalid_utf8();
  special.assign(static_cast<size_t>(parts.vocabulary.size()), false);
  for (const TokenId id : parts.special) special[id] = true;
  for (const AddedToken& token : parts.added) {
    if (token.special) special[token.id] = true;
  }
  build_bytes();
  end.assign(static_cast<size_t>(parts.vocabulary.size()), false);
  add_ends(parts.end_of_generation);
  add_ends({&parts.eos, 1});
  added.build(parts.added, parts.normalizer);
  const auto it = parts.chat_templates.find("default");
  if (it != parts.chat_templates.end()) chat_template = it->second;
}

void Tokenizer::Impl::encode_text(std::string_view text, const EncodeOptions& options,
                                  std::vector<TokenId>& out) const {
  const std::unique_ptr<WordScratch> scratch = parts.model->make_scratch();
  const auto encode_word = [&](std::string_view word) {
    give_way();
    parts.model->encode(word, scratch.get(), out);
  };
  std::string normalized;
  added.split(text, false, options.parse_special, [&](const Segment& segment) {
    if (segment.id != kNoToken) return out.push_back(segment.id);
    const bool at_start = segment.text.data() == text.data();
    const Normalizer& normalizer =
        at_start || !parts.inner_normalizer ? parts.normalizer : *parts.inner_normalizer;
    std::string_view body = segment.text;
    if (!normalizer.is_identity()) body = normalized = normalizer.apply(body);
    const auto encode_piece = [&](const Segment& piece) {
      if (piece.id != kNoToken) return out.push_back(piece.id);
      parts.pre_tokenizer.split(piece.text, at_start && piece.text.data() == body.data(),
                                encode_word);
    };
    if (added.has_normalized()) {
      added.split(body, true, options.parse_special, encode_piece);
    } else if (!body.empty()) {
      encode_piece({kNoToken, body});
    }
  });
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_parts(Result<TokenizerParts> parts) {
  if (!parts) return tl::unexpected(std::move(parts).error());
  auto impl = std::make_unique<Impl>();
  impl->parts = *std::move(parts);
  impl->finish();
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(impl)));
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_gguf(const nlohmann::json& metadata) {
  return from_parts(load_gguf_tokenizer(metadata));
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_files(const TokenizerFiles& files) {
  Result<TokenizerParts> parts =
      errorf(ErrorCode::kNotFound,
             "no tokenizer.json, tekken.json, tokenizer.model, *.tiktoken, vocab.json with "
             "merges.txt, vocab.txt, tokenizer.jsonl or rwkv_vocab_v20230424.txt");
  const nlohmann::json config = bounded_json(files.tokenizer_config_json);
  if (!files.tokenizer_json.empty()) {
    parts = load_tokenizer_json(files.tokenizer_json);
  } else if (is_tiktoken(files.tokenizer_model)) {
    parts = load_tiktoken(files.tokenizer_model);
  } else if (!files.tokenizer_model.empty()) {
    parts = load_sentence_piece_model(files.tokenizer_model, json_flag(config, "legacy", true));
  } else if (!files.tokenizer_jsonl.empty()) {
    parts = load_plamo_list(files.tokenizer_jsonl, config);
  } else if (!files.vocab_json.empty() && !files.merges_txt.empty()) {
    parts = load_vocab_and_merges(files);
  } else if (is_rwkv_list(files.vocab_txt)) {
    parts = load_rwkv_list(files.vocab_txt);
  } else if (!files.vocab_txt.empty()) {
    parts = load_word_piece_list(files.vocab_txt, json_flag(config, "do_lower_case", true));
  }
  if (parts) RETURN_IF_ERROR(apply_config_files(files, *parts));
  return from_parts(std::move(parts));
}

namespace {

TokenizerFiles files_of(const WeightSource& source) {
  TokenizerFiles files;
  const auto read = [&](std::string_view name) {
    return source.side_file(name).value_or(std::string());
  };
  files.tokenizer_json = read("tokenizer.json");
  if (files.tokenizer_json.empty()) files.tokenizer_json = read("tekken.json");
  for (const char* name : {"tokenizer.model", "qwen.tiktoken", "tokenizer.tiktoken", "spiece.model",
                           "spm.model", "tiktoken.model"}) {
    if (files.tokenizer_model.empty()) files.tokenizer_model = read(name);
  }
  files.vocab_txt = read("vocab.txt");
  if (files.vocab_txt.empty()) files.vocab_txt = read("rwkv_vocab_v20230424.txt");
  files.tokenizer_jsonl = read("tokenizer.jsonl");
  if (files.tokenizer_json.empty() && files.tokenizer_model.empty())
    files.vocab_json = read("vocab.json"), files.merges_txt = read("merges.txt");
  files.tokenizer_config_json = read("tokenizer_config.json");
  files.special_tokens_map_json = read("special_tokens_map.json");
  files.added_tokens_json = read("added_tokens.json");
  files.chat_template_jinja = read("chat_template.jinja");
  files.chat_template_json = read("chat_template.json");
  for (const char* name : {"tool_use", "rag"}) {
    std::string text = read(std::string("additional_chat_templates/") + name + ".jinja");
    if (!text.empty()) files.additional_templates[name] = std::move(text);
  }
  files.config_json = id_fields(source.config());
  files.generation_config_json = id_fields(source.generation_config());
  return files;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::load(const WeightSource& source) {
  auto tokenizer =
      source.naming() == Naming::kGguf ? from_gguf(source.config()) : from_files(files_of(source));
  if (!tokenizer)
    return errorf(tokenizer.error().code, "{}: {}", source.path().string(),
                  tokenizer.error().message);
  return tokenizer;
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const Impl& impl = *impl_;
  std::vector<TokenId> out;
  out.reserve(text.size() / 4 + 8);
  if (options.add_special)
    out.insert(out.end(), impl.parts.before.begin(), impl.parts.before.end());
  if (impl.keeps_invalid_utf8 || unicode::is_valid(text)) {
    impl.encode_text(text, options, out);
  } else {
    impl.encode_text(unicode::replace_invalid_bytes(text), options, out);
  }
  if (options.add_special) out.insert(out.end(), impl.parts.after.begin(), impl.parts.after.end());
  return out;
}

std::string Tokenizer::decode_bytes(std::span<const TokenId> tokens, bool skip_special) const {
  std::string out;
  bool first = true;
  for (const TokenId id : tokens) {
    if (id < 0 || id >= vocab_size() || (skip_special && is_special(id))) continue;
    out += token_bytes(id, first);
    first = false;
  }
  return out;
}

size_t Tokenizer::count_at_least(std::string_view text, size_t most) const {
  constexpr size_t kFirst = 64 * 1024, kGrowth = 4;  // bytes
  size_t least = 0;
  for (size_t end = kFirst; end < text.size() && least <= most; end *= kGrowth) {
    // A cut may change the tokens near it, but never halves their number.
    least = encode(text.substr(0, end), {.add_special = false, .parse_special = true}).size() / 2;
  }
  return least;
}

const PairForm& Tokenizer::pair_form() const { return impl_->parts.pair; }

std::vector<TokenId> Tokenizer::join(std::span<const TokenId> first,
                                     std::span<const TokenId> second) const {
  const PairForm& form = impl_->parts.pair;
  std::vector<TokenId> ids = form.before;
  ids.insert(ids.end(), first.begin(), first.end());
  ids.insert(ids.end(), form.between.begin(), form.between.end());
  ids.insert(ids.end(), second.begin(), second.end());
  ids.insert(ids.end(), form.after.begin(), form.after.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> tokens, bool skip_special) const {
  return unicode::replace_invalid_sequences(decode_bytes(tokens, skip_special));
}

std::string_view Tokenizer::token_bytes(TokenId id, bool first) const {
  if (id < 0 || id >= vocab_size()) return {};
  const uint8_t skip = first ? impl_->skips[id] : 0;
  if (skip == Impl::kOther) return impl_->first_bytes.find(id)->second;
  const uint64_t begin = impl_->offsets[id] + skip;
  return std::string_view(impl_->bytes).substr(begin, impl_->offsets[id + 1] - begin);
}

std::string_view Tokenizer::piece(TokenId id) const { return impl_->parts.vocabulary.piece(id); }

std::optional<TokenId> Tokenizer::find(std::string_view piece) const {
  const TokenId id = impl_->parts.vocabulary.find(piece);
  return id < 0 ? std::nullopt : std::optional(id);
}

int Tokenizer::vocab_size() const { return impl_->parts.vocabulary.size(); }
TokenId Tokenizer::bos() const { return impl_->parts.bos; }
TokenId Tokenizer::eos() const { return impl_->parts.eos; }
TokenId Tokenizer::unk() const { return impl_->parts.unk; }
TokenId Tokenizer::pad() const { return impl_->parts.pad; }
bool Tokenizer::is_special(TokenId id) const {
  return id >= 0 && id < vocab_size() && impl_->special[id];
}
bool Tokenizer::is_end_of_generation(TokenId id) const {
  return id >= 0 && id < vocab_size() && impl_->end[id];
}
void Tokenizer::add_ends(std::span<const TokenId> ids) { impl_->add_ends(ids); }
std::span<const TokenId> Tokenizer::end_of_generation_ids() const { return impl_->end_ids; }

bool Tokenizer::add_bos() const {
  const auto& before = impl_->parts.before;
  return std::find(before.begin(), before.end(), bos()) != before.end();
}
bool Tokenizer::add_eos() const {
  const auto& after = impl_->parts.after;
  return std::find(after.begin(), after.end(), eos()) != after.end();
}

const std::string& Tokenizer::chat_template() const { return impl_->chat_template; }
const std::map<std::string, std::string>& Tokenizer::chat_templates() const {
  return impl_->parts.chat_templates;
}
const std::map<std::string, std::string>& Tokenizer::named_tokens() const {
  return impl_->parts.named_tokens;
}

}  // namespace penstock
