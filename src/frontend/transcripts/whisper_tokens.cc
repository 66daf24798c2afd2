#include "frontend/transcripts/whisper_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/ascii.h"

namespace penstock {
namespace {

struct Language {
  std::string_view code, name;
};
constexpr Language kLanguages[] = {
    {"en", "english"},        {"zh", "chinese"},     {"de", "german"},        {"es", "spanish"},
    {"ru", "russian"},        {"ko", "korean"},      {"fr", "french"},        {"ja", "japanese"},
    {"pt", "portuguese"},     {"tr", "turkish"},     {"pl", "polish"},        {"ca", "catalan"},
    {"nl", "dutch"},          {"ar", "arabic"},      {"sv", "swedish"},       {"it", "italian"},
    {"id", "indonesian"},     {"hi", "hindi"},       {"fi", "finnish"},       {"vi", "vietnamese"},
    {"he", "hebrew"},         {"uk", "ukrainian"},   {"el", "greek"},         {"ms", "malay"},
    {"cs", "czech"},          {"ro", "romanian"},    {"da", "danish"},        {"hu", "hungarian"},
    {"ta", "tamil"},          {"no", "norwegian"},   {"th", "thai"},          {"ur", "urdu"},
    {"hr", "croatian"},       {"bg", "bulgarian"},   {"lt", "lithuanian"},    {"la", "latin"},
    {"mi", "maori"},          {"ml", "malayalam"},   {"cy", "welsh"},         {"sk", "slovak"},
    {"te", "telugu"},         {"fa", "persian"},     {"lv", "latvian"},       {"bn", "bengali"},
    {"sr", "serbian"},        {"az", "azerbaijani"}, {"sl", "slovenian"},     {"kn", "kannada"},
    {"et", "estonian"},       {"mk", "macedonian"},  {"br", "breton"},        {"eu", "basque"},
    {"is", "icelandic"},      {"hy", "armenian"},    {"ne", "nepali"},        {"mn", "mongolian"},
    {"bs", "bosnian"},        {"kk", "kazakh"},      {"sq", "albanian"},      {"sw", "swahili"},
    {"gl", "galician"},       {"mr", "marathi"},     {"pa", "punjabi"},       {"si", "sinhala"},
    {"km", "khmer"},          {"sn", "shona"},       {"yo", "yoruba"},        {"so", "somali"},
    {"af", "afrikaans"},      {"oc", "occitan"},     {"ka", "georgian"},      {"be", "belarusian"},
    {"tg", "tajik"},          {"sd", "sindhi"},      {"gu", "gujarati"},      {"am", "amharic"},
    {"yi", "yiddish"},        {"lo", "lao"},         {"uz", "uzbek"},         {"fo", "faroese"},
    {"ht", "haitian creole"}, {"ps", "pashto"},      {"tk", "turkmen"},       {"nn", "nynorsk"},
    {"mt", "maltese"},        {"sa", "sanskrit"},    {"lb", "luxembourgish"}, {"my", "myanmar"},
    {"bo", "tibetan"},        {"tl", "tagalog"},     {"mg", "malagasy"},      {"as", "assamese"},
    {"tt", "tatar"},          {"haw", "hawaiian"},   {"ln", "lingala"},       {"ha", "hausa"},
    {"ba", "bashkir"},        {"jw", "javanese"},    {"su", "sundanese"},     {"yue", "cantonese"},
};

// Reads fields of generation_config.json, or of config.json in older directories.
class Fields {
 public:
  Fields(const WeightSource& source, const Tokenizer& tokenizer)
      : source_(source), tokenizer_(tokenizer), vocab_size_(tokenizer.vocab_size()) {
    const auto size = source.config().find("vocab_size");
    if (size != source.config().end() && size->is_number_integer())
      vocab_size_ = std::min(vocab_size_, size->get<int64_t>());
  }

  const nlohmann::json* find(const char* key) const {
    for (const nlohmann::json* file : {&source_.generation_config(), &source_.config()}) {
      if (!file->is_object()) continue;
      const auto found = file->find(key);
      if (found != file->end() && !found->is_null()) return &*found;
    }
    return nullptr;
  }
  bool is_id(const nlohmann::json& value) const {
    return value.is_number_integer() && value.get<int64_t>() >= 0 &&
           value.get<int64_t>() < vocab_size_;
  }
  // Returns the id under `key`, or that of the tokenizer's token; kNoToken: there is neither.
  TokenId id(const char* key, std::string_view piece) const {
    const nlohmann::json* const value = key == nullptr ? nullptr : find(key);
    if (value != nullptr && is_id(*value)) return value->get<TokenId>();
    const TokenId found = tokenizer_.find(piece).value_or(kNoToken);
    return found < vocab_size_ ? found : kNoToken;
  }
  Result<std::vector<TokenId>> ids(const char* key) const {
    std::vector<TokenId> result;
    const nlohmann::json* const value = find(key);
    if (value == nullptr) return result;
    const bool fits = value->is_array() && std::ranges::all_of(*value, [this](const auto& one) {
                        return is_id(one) || one == -1;
                      });
    if (!fits) {
      return errorf(ErrorCode::kCorruptFile, "{}: {}: expected ids of tokens, got {}",
                    source_.path().string(), key, value->dump().substr(0, 80));
    }
    for (const auto& one : *value)
      if (is_id(one)) result.push_back(one.template get<TokenId>());
    return result;
  }

 private:
  const WeightSource& source_;
  const Tokenizer& tokenizer_;
  int64_t vocab_size_;  // of the model: the tokenizer may know more tokens
};

std::map<std::string, TokenId, std::less<>> read_languages(const Fields& fields) {
  std::map<std::string, TokenId, std::less<>> languages;
  const nlohmann::json* const multilingual = fields.find("is_multilingual");
  if (multilingual != nullptr && *multilingual == false) return languages;
  const nlohmann::json* const given = fields.find("lang_to_id");
  if (given != nullptr && given->is_object()) {
    for (const auto& [token, id] : given->items())
      if (token.size() > 4 && fields.is_id(id))
        languages[token.substr(2, token.size() - 4)] = id.get<TokenId>();
    return languages;
  }
  for (const Language& language : kLanguages) {
    const TokenId id = fields.id(nullptr, "<|" + std::string(language.code) + "|>");
    if (id != kNoToken) languages.emplace(language.code, id);
  }
  // Tokenizers of English-only models have tokens of languages, too.
  const nlohmann::json* const size = fields.find("vocab_size");
  if (multilingual == nullptr && size != nullptr && *size == 51864) languages.clear();
  return languages;
}

// Pairs [layer, head] of generation_config.json.
Result<std::vector<AttentionWatch::Head>> read_alignment_heads(const Fields& fields) {
  constexpr size_t kMost = 256;
  std::vector<AttentionWatch::Head> heads;
  const nlohmann::json* const given = fields.find("alignment_heads");
  if (given == nullptr) return heads;
  const auto count = [&](const char* key) {
    const nlohmann::json* const value = fields.find(key);
    return value != nullptr && value->is_number_integer() ? value->get<int64_t>() : 0;
  };
  const int64_t n_layers = count("decoder_layers"), n_heads = count("decoder_attention_heads");
  const auto fits = [&](const nlohmann::json& one) {
    return one.is_array() && one.size() == 2 && one[0].is_number_integer() &&
           one[1].is_number_integer() && one[0].get<int64_t>() >= 0 &&
           one[0].get<int64_t>() < n_layers && one[1].get<int64_t>() >= 0 &&
           one[1].get<int64_t>() < n_heads;
  };
  if (!given->is_array() || given->size() > kMost || !std::ranges::all_of(*given, fits)) {
    return errorf(ErrorCode::kCorruptFile,
                  "generation_config.json: alignment_heads: expected at most {} pairs of a layer "
                  "(of {}) and a head (of {}), got {}",
                  kMost, n_layers, n_heads, given->dump().substr(0, 80));
  }
  for (const auto& one : *given) heads.push_back({one[0].get<int>(), one[1].get<int>()});
  return heads;
}

}  // namespace

std::string language_code(std::string_view language) {
  const std::string wanted = ascii_lower(language);
  for (const Language& one : kLanguages)
    if (one.code == wanted || one.name == wanted) return std::string(one.code);
  return "";
}

std::string language_name(std::string_view code) {
  const auto* const found = std::ranges::find(kLanguages, code, &Language::code);
  return std::string(found == std::end(kLanguages) ? code : found->name);
}

Result<WhisperTokens> WhisperTokens::read(const WeightSource& source, const Tokenizer& tokenizer) {
  const Fields fields(source, tokenizer);
  WhisperTokens tokens;
  tokens.start = fields.id("decoder_start_token_id", "<|startoftranscript|>");
  tokens.end = fields.id("eos_token_id", "<|endoftext|>");
  tokens.no_timestamps = fields.id("no_timestamps_token_id", "<|notimestamps|>");
  tokens.previous = fields.id("prev_sot_token_id", "<|startofprev|>");
  tokens.languages = read_languages(fields);
  tokens.transcribe = fields.id(nullptr, "<|transcribe|>");
  tokens.translate = fields.id(nullptr, "<|translate|>");
  if (const nlohmann::json* tasks = fields.find("task_to_id"); tasks != nullptr) {
    for (const auto& [name, id] :
         {std::pair{"transcribe", &tokens.transcribe}, std::pair{"translate", &tokens.translate}})
      if (tasks->is_object() && tasks->contains(name) && fields.is_id((*tasks)[name]))
        *id = (*tasks)[name].get<TokenId>();
  }
  ASSIGN_OR_RETURN(tokens.suppressed, fields.ids("suppress_tokens"));
  ASSIGN_OR_RETURN(tokens.suppressed_first, fields.ids("begin_suppress_tokens"));
  const nlohmann::json* bound = fields.find("max_initial_timestamp_index");
  if (bound != nullptr && bound->is_number_integer() && bound->get<int64_t>() >= 0)
    tokens.max_initial_timestamp =
        static_cast<int>(std::min<int64_t>(bound->get<int64_t>(), 1 << 20));
  const nlohmann::json* size = fields.find("vocab_size");
  tokens.vocab_size = size != nullptr && size->is_number_integer() && size->get<int64_t>() > 0 &&
                              size->get<int64_t>() <= 1 << 24
                          ? size->get<int>()
                          : tokenizer.vocab_size();
  ASSIGN_OR_RETURN(tokens.alignment_heads, read_alignment_heads(fields));
  const nlohmann::json* width = fields.find("median_filter_width");
  if (width != nullptr && width->is_number_integer())
    tokens.median_width = static_cast<int>(std::clamp<int64_t>(width->get<int64_t>(), 1, 99)) | 1;
  const nlohmann::json* most = fields.find("max_target_positions");
  if (most != nullptr && most->is_number_integer())
    tokens.max_tokens = static_cast<int>(std::clamp<int64_t>(most->get<int64_t>(), 1, 1 << 20));
  const bool whole =
      tokens.start != kNoToken && tokens.end != kNoToken && tokens.no_timestamps > tokens.end &&
      (!tokens.multilingual() || (tokens.transcribe != kNoToken && tokens.translate != kNoToken));
  if (whole) return tokens;
  return errorf(ErrorCode::kUnsupported,
                "{}: generation_config.json: expected decoder_start_token_id, eos_token_id, "
                "no_timestamps_token_id behind it and task_to_id, or such tokens in the tokenizer",
                source.path().string());
}

}  // namespace penstock
