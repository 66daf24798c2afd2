#include "text/presets.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace penstock {
namespace {

using Behavior = PreTokenizer::Behavior;

constexpr std::string_view kLlama3 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
    "\\s+(?!\\S)|\\s+";
constexpr std::string_view kQwen2 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
    "\\s+(?!\\S)|\\s+";
constexpr std::string_view kO200k =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'"
    "ve|'m|'ll|'d)?|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'"
    "ve|'m|'ll|'d)?|"
    "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kTekken =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
    "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kDeepseekV3 =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
    "?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
// The cased letters DeepSeek LLM lists one by one.
constexpr std::string_view kDeepseekLetters =
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-"
    "ᵷᵹ-"
    "ᶚḀ-"
    "ἕἘ-"
    "Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-"
    "ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-"
    "𐓓𐓘-"
    "𐓻𐲀-"
    "𐲲𐳀-"
    "𐳲𑢠-𑣟𞤀-𞥃]+";

// How one family splits.
enum class Shape : uint8_t {
  kGpt2,
  kDigitsGpt2,
  kPattern,
  kFalcon,
  kDeepseekLlm,
  kDeepseekCoder,
  kDeepseekV3
};
struct Family {
  std::string_view names;  // separated by spaces
  Shape shape;
  std::string_view pattern;  // of kPattern
  bool nfc = false, ignore_merges = false, add_bos = false;
};

// THE list. Where a family's tokenizer.json normalizes to NFC, its GGUF must give the same ids, so it does
// here too.
constexpr std::array kFamilies = {
    Family{"gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de a.x-4.0 mellum gigachat", Shape::kGpt2, ""},
    Family{"mpt olmo gpt-neox", Shape::kGpt2, "", true},
    Family{"starcoder refact codeshell smollm exaone minerva-7b", Shape::kDigitsGpt2, ""},
    Family{"command-r", Shape::kDigitsGpt2, "", true, false, true},
    Family{"llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral", Shape::kPattern, kLlama3, false, true,
           true},
    Family{"dbrx smaug-bpe chatglm-bpe glm4 granite-docling", Shape::kPattern, kLlama3},
    Family{"cl100k", Shape::kPattern, kLlama3, false, true},
    Family{"qwen2 deepseek-r1-qwen", Shape::kPattern, kQwen2, true},
    Family{"qwen", Shape::kPattern, kQwen2, true, true},
    Family{"stablelm2 megrez hunyuan", Shape::kPattern, kQwen2},
    Family{"gpt-4o llama4", Shape::kPattern, kO200k},
    Family{"o200k", Shape::kPattern, kO200k, false, true},
    Family{"tekken", Shape::kPattern, kTekken, false, true, true},
    Family{"falcon", Shape::kFalcon, ""},
    Family{"deepseek-llm", Shape::kDeepseekLlm, ""},
    Family{"deepseek-coder", Shape::kDeepseekCoder, ""},
    Family{"deepseek-v3 deepseek-r1 hunyuan-dense", Shape::kDeepseekV3, ""},
};

bool lists(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const size_t end = std::min(names.find(' '), names.size());
    if (names.substr(0, end) == name) return true;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return false;
}

Status add_splits(std::initializer_list<std::string_view> patterns, PreTokenizer& p) {
  for (const std::string_view pattern : patterns) {
    ASSIGN_OR_RETURN(Regex regex, Regex::compile(pattern));
    p.add_split(std::move(regex), Behavior::kIsolated);
  }
  return {};
}

Status build(const Family& family, PreTokenizer& p) {
  switch (family.shape) {
    case Shape::kGpt2: p.add_byte_level(false, true); return {};
    case Shape::kDigitsGpt2:
      p.add_digits(true);
      p.add_byte_level(false, true);
      return {};
    case Shape::kPattern: RETURN_IF_ERROR(add_splits({family.pattern}, p)); break;
    case Shape::kFalcon:
      p.add_punctuation(Behavior::kContiguous);
      p.add_byte_level(false, true);
      p.add_digits(false);
      return add_splits({"[0-9][0-9][0-9]"}, p);
    case Shape::kDeepseekLlm:
      RETURN_IF_ERROR(add_splits({"[\\r\\n]", kDeepseekLetters, "\\s?[!-/:-~！-／：-～‘-‟　-。]+", "\\s+$",
                                  "[一-龥ࠀ-一가-\\x{D7FF}]+"},
                                 p));
      p.add_digits(true);
      break;
    case Shape::kDeepseekCoder:
      RETURN_IF_ERROR(add_splits({"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-\\x{D7FF}]+"}, p));
      p.add_digits(true);
      break;
    case Shape::kDeepseekV3:
      RETURN_IF_ERROR(add_splits({"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", kDeepseekV3}, p));
      break;
  }
  p.add_byte_level(false, false);
  return {};
}

}  // namespace

Result<BytePreset> byte_preset(std::string_view name) {
  for (const Family& family : kFamilies) {
    if (!lists(family.names, name)) continue;
    BytePreset preset;
    RETURN_IF_ERROR(build(family, preset.pre_tokenizer));
    if (family.nfc) preset.normalizer = Normalizer::form(unicode::Form::kNfc);
    preset.ignore_merges = family.ignore_merges;
    preset.add_bos = family.add_bos;
    return preset;
  }
  return errorf(ErrorCode::kUnsupported, "tokenizer.ggml.pre: \"{:.60}\" is not a known way to split text",
                name);
}

namespace {

using Json = nlohmann::json;

Json byte_level_step(bool split) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", split}};
}

// Null for shapes that no published tokenizer.json of a family we can name has in one way.
Json steps_json(const Family& family) {
  Json steps = Json::array();
  switch (family.shape) {
    case Shape::kGpt2: return byte_level_step(true);
    case Shape::kDigitsGpt2:
      steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
      steps.push_back(byte_level_step(true));
      break;
    case Shape::kPattern:
      steps.push_back({{"type", "Split"},
                       {"pattern", {{"Regex", family.pattern}}},
                       {"behavior", "Isolated"},
                       {"invert", false}});
      steps.push_back(byte_level_step(false));
      break;
    default: return nullptr;
  }
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

// What of a pre-tokenizer decides the result: the patterns and kinds of its steps, in order.
std::string essence(const Json& step) {
  if (!step.is_object()) return "";
  const std::string type = step.value("type", Json("")).dump();
  if (type == "\"Sequence\"") {
    std::string all;
    const auto list = step.find("pretokenizers");
    if (list == step.end() || !list->is_array()) return "";
    for (const Json& part : *list) all += essence(part);
    return all;
  }
  const auto text = [&](const char* key) {
    return step.value(key, Json()).dump(-1, ' ', true, Json::error_handler_t::replace);
  };
  if (type == "\"ByteLevel\"") return "bytes " + step.value("use_regex", Json(true)).dump() + ";";
  if (type == "\"Split\"") return "split " + text("pattern") + text("behavior") + text("invert") + ";";
  if (type == "\"Digits\"") return "digits " + text("individual_digits") + ";";
  return type + ";";
}

bool normalizes_nfc(const Json& tokenizer) {
  const auto normalizer = tokenizer.find("normalizer");
  return normalizer != tokenizer.end() && normalizer->is_object() &&
         normalizer->value("type", Json("")) == Json("NFC");
}

}  // namespace

Result<nlohmann::json> byte_preset_json(std::string_view name) {
  for (const Family& family : kFamilies) {
    if (!lists(family.names, name)) continue;
    Json steps = steps_json(family);
    if (steps.is_null()) break;
    return Json{{"pre_tokenizer", std::move(steps)},
                {"normalizer", family.nfc ? Json{{"type", "NFC"}} : Json()},
                {"ignore_merges", family.ignore_merges}};
  }
  return errorf(ErrorCode::kUnsupported,
                "tokenizer.ggml.pre: \"{:.60}\" cannot be written to tokenizer.json yet", name);
}

Result<std::string> byte_preset_of_json(const nlohmann::json& tokenizer) {
  const auto found = tokenizer.find("pre_tokenizer");
  const std::string wanted = found != tokenizer.end() ? essence(*found) : "";
  const bool nfc = normalizes_nfc(tokenizer);
  const auto model = tokenizer.find("model");
  const bool ignore_merges = model != tokenizer.end() && model->is_object() &&
                             model->value("ignore_merges", Json(false)) == Json(true);
  for (const Family& family : kFamilies) {
    const Json steps = steps_json(family);
    if (steps.is_null() || essence(steps) != wanted) continue;
    if (family.nfc == nfc && family.ignore_merges == ignore_merges)
      return std::string(family.names.substr(0, family.names.find(' ')));
  }
  return errorf(ErrorCode::kUnsupported,
                "tokenizer.json: GGUF has no name for the way this vocabulary splits text");
}

}  // namespace penstock
