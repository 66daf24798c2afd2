#include "frontend/grammar_cache.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "grammar/sequence_matcher.h"
#include "text/tokenizer.h"

namespace penstock {
namespace {

constexpr size_t kMaxKept = 64;

struct Wanted {
  const char* field;
  grammar::GrammarSpec spec;
};

Result<Wanted> wanted_of(const StructuredOutputs& outputs) {
  using grammar::SpecKind;
  std::vector<Wanted> given;
  const auto add = [&](const char* field, SpecKind kind, bool is_given, std::string text) {
    if (is_given) given.push_back({field, {.kind = kind, .text = std::move(text)}});
  };
  add("json", SpecKind::kJsonSchema, !outputs.json.empty(), outputs.json);
  add("regex", SpecKind::kRegex, !outputs.regex.empty(), outputs.regex);
  add("choice", SpecKind::kChoice, !outputs.choice.empty(),
      nlohmann::json(outputs.choice).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  add("grammar", SpecKind::kGrammar, !outputs.grammar.empty(), outputs.grammar);
  add("json_object", SpecKind::kJsonObject, outputs.json_object, "");
  add("structural_tag", SpecKind::kStructuralTag, !outputs.structural_tag.empty(), outputs.structural_tag);
  if (given.size() != 1) {
    return errorf(ErrorCode::kInvalidArgument,
                  "structured_outputs: expected one of json, regex, choice, grammar, json_object and "
                  "structural_tag, got {}",
                  given.size());
  }
  grammar::JsonStyle& style = given.front().spec.json;
  style.any_whitespace = !outputs.disable_any_whitespace;
  style.whitespace_pattern = outputs.whitespace_pattern.value_or("");
  style.closed_objects = outputs.disable_additional_properties;
  return std::move(given.front());
}

}  // namespace

Result<std::shared_ptr<const grammar::Grammar>> GrammarCache::compiled(const StructuredOutputs& outputs) {
  std::shared_ptr<const grammar::Vocabulary> vocabulary;
  {
    const std::lock_guard lock(mutex_);
    const auto known = std::ranges::find(latest_, outputs, [](const auto& entry) { return entry.first; });
    if (known != latest_.end()) {
      latest_.splice(latest_.begin(), latest_, known);
      return known->second;
    }
    if (vocabulary_ == nullptr) vocabulary_ = grammar::Vocabulary::make(tokenizer_);
    vocabulary = vocabulary_;
  }
  if (vocabulary->ends().empty()) {
    return errorf(ErrorCode::kUnsupported,
                  "structured_outputs: the tokenizer has no end-of-generation token");
  }
  ASSIGN_OR_RETURN(const Wanted wanted, wanted_of(outputs));
  auto made = grammar::Grammar::compile(wanted.spec, vocabulary);
  if (!made) {
    const grammar::Refusal& refusal = made.error();
    const bool unsupported = refusal.kind == grammar::RefusalKind::kUnsupported;
    return errorf(unsupported ? ErrorCode::kUnsupported : ErrorCode::kInvalidArgument,
                  "structured_outputs.{}: {}{}{} ({})", wanted.field, refusal.where,
                  refusal.where.empty() ? "" : ": ", refusal.message, grammar::name_of(refusal.kind));
  }
  const std::lock_guard lock(mutex_);
  latest_.emplace_front(outputs, *made);
  if (latest_.size() > kMaxKept) latest_.pop_back();
  return *std::move(made);
}

Result<std::shared_ptr<const TokenMatcher>> GrammarCache::matcher(const StructuredOutputs& wanted) {
  ASSIGN_OR_RETURN(auto grammar, compiled(wanted));
  return std::shared_ptr<const TokenMatcher>(grammar::make_sequence_matcher(std::move(grammar)));
}

}  // namespace penstock
