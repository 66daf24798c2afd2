#include "frontend/grammar_cache.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "grammar/matcher/program.h"
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

Constraint constraint_of(std::shared_ptr<const grammar::Grammar> grammar) {
  std::vector<grammar::Note> notes(grammar->notes().begin(), grammar->notes().end());
  return {grammar::make_sequence_matcher(std::move(grammar)), std::move(notes)};
}

tl::unexpected<Error> error_of(const grammar::Refusal& refusal, std::string_view field) {
  const bool unsupported = refusal.kind == grammar::RefusalKind::kUnsupported;
  return errorf(unsupported ? ErrorCode::kUnsupported : ErrorCode::kInvalidArgument, "{}: {}{}{} ({})", field,
                refusal.where, refusal.where.empty() ? "" : ": ", refusal.message,
                grammar::name_of(refusal.kind));
}

}  // namespace

std::shared_ptr<const grammar::Vocabulary> GrammarCache::vocabulary() {
  std::call_once(vocabulary_made_, [&] { vocabulary_ = grammar::Vocabulary::make(tokenizer_); });
  return vocabulary_;
}

std::optional<Constraint> GrammarCache::find(const StructuredOutputs& wanted) {
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(latest_, wanted, [](const Kept& entry) { return entry.first; });
  if (known == latest_.end()) return std::nullopt;
  latest_.splice(latest_.begin(), latest_, known);
  return constraint_of(known->second);
}

Result<Constraint> GrammarCache::compile(const StructuredOutputs& outputs, std::string_view field) {
  if (auto known = find(outputs)) return *std::move(known);
  ASSIGN_OR_RETURN(const Wanted wanted, wanted_of(outputs));
  const std::string own = fmt::format("structured_outputs.{}", wanted.field);
  if (field.empty()) field = own;
  if (vocabulary()->ends().empty())
    return errorf(ErrorCode::kUnsupported, "{}: the tokenizer has no end-of-generation token", field);
  auto made = grammar::Grammar::compile(wanted.spec, vocabulary());
  if (!made) return error_of(made.error(), field);
  const std::lock_guard lock(mutex_);
  latest_.emplace_front(outputs, *made);
  if (latest_.size() > kMaxKept) latest_.pop_back();
  return constraint_of(*std::move(made));
}

Result<GrammarReport> GrammarCache::report(const StructuredOutputs& outputs) {
  ASSIGN_OR_RETURN(const Wanted wanted, wanted_of(outputs));
  const auto known_tokens = vocabulary();
  GrammarReport report{.field = wanted.field};
  const auto begin = std::chrono::steady_clock::now();
  const auto made = grammar::Grammar::compile(wanted.spec, known_tokens);
  report.compile_us =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  if (!made) {
    report.refusal = made.error();
    return report;
  }
  report.notes.assign((*made)->notes().begin(), (*made)->notes().end());
  report.canonical = grammar::summary_of((*made)->program());
  return report;
}

}  // namespace penstock
