#include "text/load/presets.h"

#include <nlohmann/json.hpp>
#include <string>

#include "text/steps/split_rules.h"

namespace penstock {
namespace {

using Json = nlohmann::json;
using Kind = SplitStep::Kind;

Json step_json(const SplitStep& step) {
  const auto byte_level = [](bool split) {
    return Json{{"type", "ByteLevel"},
                {"add_prefix_space", false},
                {"trim_offsets", true},
                {"use_regex", split}};
  };
  switch (step.kind) {
    case Kind::kPattern:
      return {{"type", "Split"},
              {"pattern", {{"Regex", step.pattern}}},
              {"behavior", "Isolated"},
              {"invert", false}};
    case Kind::kEachDigit: return {{"type", "Digits"}, {"individual_digits", true}};
    case Kind::kDigitRuns: return {{"type", "Digits"}, {"individual_digits", false}};
    case Kind::kPunctuation: return {{"type", "Punctuation"}, {"behavior", "Isolated"}};
    case Kind::kPunctuationRuns: return {{"type", "Punctuation"}, {"behavior", "Contiguous"}};
    case Kind::kGpt2: return byte_level(true);
    case Kind::kBytes: break;
  }
  return byte_level(false);
}

Json steps_json(const SplitFamily& family) {
  if (family.steps.size() == 1) return step_json(family.steps[0]);
  Json steps = Json::array();
  for (const SplitStep& step : family.steps) steps.push_back(step_json(step));
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

Json normalizer_json(const SplitFamily& family) {
  if (family.characters)
    return {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\xE2\x96\x81"}};
  return family.nfc ? Json{{"type", "NFC"}} : Json();
}

Result<const SplitFamily*> known_family(std::string_view name) {
  const SplitFamily* family = find_split_family(name);
  if (family != nullptr) return family;
  return errorf(ErrorCode::kUnsupported,
                "tokenizer.ggml.pre: \"{:.60}\" is not a known way to split text", name);
}

// Returns the properties of a pre-tokenizer that decide its result: patterns and kinds of its
// steps, in order.
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
  if (type == "\"Split\"")
    return "split " + text("pattern") + text("behavior") + text("invert") + ";";
  if (type == "\"Digits\"") return "digits " + text("individual_digits") + ";";
  if (type == "\"Punctuation\"") return "punctuation " + text("behavior") + ";";
  return type + ";";
}

bool normalizes_nfc(const Json& tokenizer) {
  const auto normalizer = tokenizer.find("normalizer");
  return normalizer != tokenizer.end() && normalizer->is_object() &&
         normalizer->value("type", Json("")) == Json("NFC");
}

}  // namespace

Result<Preset> preset_of(std::string_view name) {
  ASSIGN_OR_RETURN(const SplitFamily* family, known_family(name));
  Preset preset;
  ASSIGN_OR_RETURN(preset.pre_tokenizer, PreTokenizer::from_json(steps_json(*family)));
  ASSIGN_OR_RETURN(preset.normalizer, Normalizer::from_json(normalizer_json(*family)));
  preset.ignore_merges = family->ignore_merges;
  preset.add_bos = family->add_bos;
  preset.ranks = family->ranks;
  preset.characters = family->characters;
  return preset;
}

Result<nlohmann::json> preset_json(std::string_view name) {
  ASSIGN_OR_RETURN(const SplitFamily* family, known_family(name));
  if (family->characters) {
    return errorf(ErrorCode::kUnsupported,
                  "tokenizer.ggml.pre: \"{:.60}\" cannot be written to tokenizer.json yet", name);
  }
  return Json{{"pre_tokenizer", steps_json(*family)},
              {"normalizer", normalizer_json(*family)},
              {"ignore_merges", family->ignore_merges}};
}

Result<std::string> preset_of_json(const nlohmann::json& tokenizer) {
  const auto found = tokenizer.find("pre_tokenizer");
  const std::string wanted = found != tokenizer.end() ? essence(*found) : "";
  const bool nfc = normalizes_nfc(tokenizer);
  const auto model = tokenizer.find("model");
  const bool ignore_merges = model != tokenizer.end() && model->is_object() &&
                             model->value("ignore_merges", Json(false)) == Json(true);
  for (const SplitFamily& family : split_families()) {
    if (family.characters || essence(steps_json(family)) != wanted) continue;
    if (family.nfc == nfc && family.ignore_merges == ignore_merges)
      return std::string(family.names.substr(0, family.names.find(' ')));
  }
  return errorf(ErrorCode::kUnsupported,
                "tokenizer.json: GGUF has no name for the way this vocabulary splits text");
}

}  // namespace penstock
