#include "frontend/grammar_cache.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "frontend/grammar_key.h"
#include "grammar/program/program.h"
#include "grammar/sequence_matcher.h"
#include "text/tokenizer.h"

namespace penstock {
namespace {

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
      nlohmann::json(outputs.choice)
          .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  add("grammar", SpecKind::kGrammar, !outputs.grammar.empty(), outputs.grammar);
  add("json_object", SpecKind::kJsonObject, outputs.json_object, "");
  add("structural_tag", SpecKind::kStructuralTag, !outputs.structural_tag.empty(),
      outputs.structural_tag);
  if (given.size() != 1) {
    return errorf(
        ErrorCode::kInvalidArgument,
        "structured_outputs: expected one of json, regex, choice, grammar, json_object and "
        "structural_tag, got {}",
        given.size());
  }
  if (outputs.additional_properties && outputs.disable_additional_properties) {
    return errorf(ErrorCode::kInvalidArgument,
                  "structured_outputs: additional_properties: cannot be true beside "
                  "disable_additional_properties");
  }
  grammar::JsonStyle& style = given.front().spec.json;
  style.whitespace =
      outputs.disable_any_whitespace ? grammar::WhiteSpace::kNone : grammar::WhiteSpace::kOneLine;
  style.whitespace_pattern = outputs.whitespace_pattern.value_or("");
  style.closed_objects = !outputs.additional_properties;
  return std::move(given.front());
}

Constraint constraint_of(std::shared_ptr<const grammar::Grammar> grammar) {
  std::vector<grammar::Note> notes(grammar->notes().begin(), grammar->notes().end());
  return {grammar::make_sequence_matcher(std::move(grammar)), std::move(notes)};
}

tl::unexpected<Error> error_of(const grammar::Refusal& refusal, std::string_view field) {
  const bool unsupported = refusal.kind == grammar::RefusalKind::kUnsupported;
  return errorf(unsupported ? ErrorCode::kUnsupported : ErrorCode::kInvalidArgument,
                "{}: {}{}{} ({})", field, refusal.where, refusal.where.empty() ? "" : ": ",
                refusal.message, grammar::name_of(refusal.kind));
}

bool is_ready(const auto& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace

std::shared_ptr<const grammar::Vocabulary> GrammarCache::vocabulary() {
  std::call_once(vocabulary_made_, [&] { vocabulary_ = grammar::Vocabulary::make(tokenizer_); });
  return vocabulary_;
}

const GrammarCache::Entry* GrammarCache::known(std::string_view key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  latest_.splice(latest_.begin(), latest_, found->second);
  return &*found->second;
}

void GrammarCache::drop(Place place) {
  by_key_.erase(place->key);
  by_key_.erase(place->text_key);
  latest_.erase(place);
}

// Evicts the least recently used grammars beyond the limits, but none that is being compiled. Sums
// up the sizes of all, since grammars grow by the masks that they cache.
void GrammarCache::trim() {
  size_t n = 0, bytes = 0;
  for (auto place = latest_.begin(); place != latest_.end();) {
    const Place entry = place++;
    if (!is_ready(entry->outcome)) continue;
    const Outcome& outcome = entry->outcome.get();
    bytes += outcome ? (*outcome)->memory() : 0;
    if (++n <= limits_.max_entries && (bytes <= limits_.max_bytes || n == 1)) continue;
    if (outcome) evicted_.push_back({*outcome, std::move(entry->owner)});
    drop(entry);
  }
  std::erase_if(evicted_, [](const Evicted& one) { return one.grammar.expired(); });
}

// For one more grammar beside those that are in use. One that is kept takes none.
Status GrammarCache::check_room(const grammar::GrammarSpec& spec, const std::string& owner,
                                std::string_view field) {
  std::unique_lock lock(mutex_);
  if (evicted_.empty()) return {};
  lock.unlock();  // the key's work grows with the grammar's text
  const std::string text_key = grammar_text_key(spec);
  lock.lock();
  if (by_key_.contains(text_key)) return {};
  size_t all = 0, own = 0;
  for (const Evicted& one : evicted_) {
    const auto grammar = one.grammar.lock();
    const size_t bytes = grammar == nullptr ? 0 : grammar->memory();
    all += bytes;
    own += one.owner == owner ? bytes : 0;
  }
  if (all <= limits_.max_in_use && own <= limits_.max_in_use / 4 * 3) return {};
  return errorf(ErrorCode::kResourceExhausted,
                "{}: the grammars of requests that wait or run take {} bytes, and {} of them are "
                "this client's: expected at most {}, and three quarters of that",
                field, all, own, limits_.max_in_use);
}

// Compiles within the bounds of `effort`. Returns null if it was cancelled or ran out of steps.
GrammarCache::Outcome GrammarCache::made_of(const grammar::GrammarSpec& spec,
                                            CompileEffort& effort) {
  grammar::CompileLimits limits;
  limits.cancelled = effort.cancelled;
  limits.max_steps = effort.max_steps;
  uint64_t steps = 0;
  Outcome outcome = grammar::Grammar::compile(spec, vocabulary(), limits, &steps);
  const bool cancelled = effort.cancelled != nullptr && *effort.cancelled;
  const bool ran_out =
      steps > limits.max_steps && limits.max_steps < grammar::CompileLimits().max_steps;
  effort.max_steps -= std::min(steps, effort.max_steps);
  if (outcome || !(cancelled || ran_out)) return outcome;
  effort.ran_out |= ran_out && !cancelled;
  return nullptr;
}

GrammarCache::Outcome GrammarCache::compile_as(Place place, const grammar::GrammarSpec& spec,
                                               CompileEffort& effort,
                                               std::promise<Outcome>& promise) {
  try {
    const auto begin = std::chrono::steady_clock::now();
    Outcome outcome = made_of(spec, effort);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    const std::lock_guard lock(mutex_);
    if (outcome && *outcome == nullptr) {  // given up: the threads that wait compile it again
      drop(place);
      promise.set_value(nullptr);
      return nullptr;
    }
    compile_seconds_.observe(taken.count());
    if (!outcome) refusals_.add();
    promise.set_value(outcome);
    trim();
    return outcome;
  } catch (...) {
    const std::lock_guard lock(mutex_);
    promise.set_exception(std::current_exception());
    drop(place);
    throw;
  }
}

GrammarCache::Outcome GrammarCache::outcome_of(const grammar::GrammarSpec& spec,
                                               CompileEffort& effort) {
  std::string text_key = grammar_text_key(spec), key;
  std::unique_lock lock(mutex_);
  queries_.add();
  const Entry* entry = known(text_key);
  if (entry == nullptr) {
    lock.unlock();  // takes time linear in the text
    key = grammar_key(spec);
    lock.lock();
    entry = known(key);
  }
  if (entry != nullptr && !effort.waits && !is_ready(entry->outcome)) {
    effort.ran_out = true;
    return nullptr;
  }
  if (entry != nullptr) {
    hits_.add();
    const std::shared_future<Outcome> outcome = entry->outcome;
    lock.unlock();
    Outcome made = outcome.get();
    const bool abandoned = made && *made == nullptr;
    return abandoned ? outcome_of(spec, effort) : made;
  }
  evicted_.reserve(evicted_.size() + latest_.size() + 1);  // for trim(), which must not fail
  std::promise<Outcome> promise;
  latest_.push_front(
      {std::move(key), std::move(text_key), promise.get_future().share(), effort.owner});
  const Place place = latest_.begin();
  by_key_.emplace(place->key, place);
  by_key_.emplace(place->text_key, place);
  lock.unlock();
  return compile_as(place, spec, effort, promise);
}

std::optional<Constraint> GrammarCache::find(const StructuredOutputs& outputs) {
  const auto wanted = wanted_of(outputs);
  if (!wanted) return std::nullopt;
  const std::string text_key = grammar_text_key(wanted->spec);
  const std::lock_guard lock(mutex_);
  const Entry* const entry = known(text_key);
  if (entry == nullptr || !is_ready(entry->outcome) || !entry->outcome.get()) return std::nullopt;
  queries_.add();
  hits_.add();
  return constraint_of(*entry->outcome.get());
}

Result<Constraint> GrammarCache::compile(const StructuredOutputs& outputs, std::string_view field,
                                         CompileEffort& effort) {
  ASSIGN_OR_RETURN(const Wanted wanted, wanted_of(outputs));
  const std::string own = fmt::format("structured_outputs.{}", wanted.field);
  if (field.empty()) field = own;
  if (vocabulary()->ends().empty())
    return errorf(ErrorCode::kUnsupported, "{}: the tokenizer has no end-of-generation token",
                  field);
  RETURN_IF_ERROR(check_room(wanted.spec, effort.owner, field));
  const Outcome outcome = outcome_of(wanted.spec, effort);
  if (!outcome) return error_of(outcome.error(), field);
  if (*outcome == nullptr) return errorf(ErrorCode::kCancelled, "{}: cancelled", field);
  return constraint_of(*outcome);
}

void GrammarCache::add_metrics(Metrics& metrics) const {
  const std::lock_guard lock(mutex_);
  metrics.grammar_cache_queries = queries_;
  metrics.grammar_cache_hits = hits_;
  metrics.grammar_refusals = refusals_;
  metrics.grammar_compile_seconds = compile_seconds_;
}

size_t GrammarCache::n_kept() const {
  const std::lock_guard lock(mutex_);
  return latest_.size();
}

Result<GrammarReport> GrammarCache::report(const StructuredOutputs& outputs,
                                           CompileEffort& effort) {
  ASSIGN_OR_RETURN(const Wanted wanted, wanted_of(outputs));
  vocabulary();
  GrammarReport report{.field = wanted.field};
  const auto begin = std::chrono::steady_clock::now();
  const Outcome made = made_of(wanted.spec, effort);
  report.compile_us =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  if (!made) {
    report.refusal = made.error();
    return report;
  }
  if (*made == nullptr) return errorf(ErrorCode::kCancelled, "{}: cancelled", wanted.field);
  report.notes.assign((*made)->notes().begin(), (*made)->notes().end());
  report.canonical = grammar::summary_of((*made)->program());
  return report;
}

}  // namespace penstock
