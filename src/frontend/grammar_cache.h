// Compiled grammars of one tokenizer, the latest kept.
#pragma once
#include <atomic>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "grammar/grammar.h"
#include "penstock/metrics.h"
#include "penstock/structured_outputs.h"

namespace penstock {

class Tokenizer;
class TokenMatcher;

// What an output is held to.
struct Constraint {
  std::shared_ptr<const TokenMatcher> matcher;  // at the beginning of an output
  std::vector<grammar::Note> notes;             // what of it allows and forbids nothing
};

// What became of a compilation that somebody asks about.
struct GrammarReport {
  std::string field;  // "json", "regex", …: the one that was given
  std::optional<grammar::Refusal> refusal;
  std::vector<grammar::Note> notes;
  std::string canonical;  // as `penstock grammar show` prints it
  double compile_us = 0;
};

// How much a compilation may do, and what became of it.
struct CompileEffort {
  const std::atomic<bool>* cancelled = nullptr;  // set by another thread, ends it; null: nobody does
  uint64_t max_steps = grammar::CompileLimits().max_steps;
  bool waits = true;     // for others who compile the same; false: runs out instead
  bool ran_out = false;  // with fewer than all steps: nothing is known about the specification
};

// Any thread may call. What several ask for at once is compiled once, by the first of them.
class GrammarCache {
 public:
  struct Limits {
    size_t max_entries = 256;
    size_t max_bytes = size_t{256} << 20;  // of grammars and the masks they keep; the latest may have more
  };
  // tokenizer: outlives this.
  explicit GrammarCache(const Tokenizer& tokenizer) : GrammarCache(tokenizer, Limits()) {}
  GrammarCache(const Tokenizer& tokenizer, Limits limits) : tokenizer_(tokenizer), limits_(limits) {}

  // Takes time: not for threads that others wait for. field: what messages call the part that was given; "" is
  // "structured_outputs.json" and so on. Errors: kInvalidArgument, kUnsupported; messages name the field, the place in it
  // and the reason; kCancelled, also where the effort ran out. effort: has what is left of its steps afterwards.
  Result<Constraint> compile(const StructuredOutputs& wanted, std::string_view field, CompileEffort& effort);
  Result<Constraint> compile(const StructuredOutputs& wanted, std::string_view field = {}) {
    CompileEffort effort;
    return compile(wanted, field, effort);
  }
  // The same without the work; null where it has not been compiled lately.
  std::optional<Constraint> find(const StructuredOutputs& wanted);
  // Compiles it, known or not. Errors: kInvalidArgument, not exactly one of the fields; kCancelled as of compile().
  Result<GrammarReport> report(const StructuredOutputs& wanted, CompileEffort& effort);
  Result<GrammarReport> report(const StructuredOutputs& wanted) {
    CompileEffort effort;
    return report(wanted, effort);
  }

  // Sets those that it counts.
  void add_metrics(Metrics& metrics) const;
  size_t n_kept() const;

 private:
  using Outcome = grammar::Compiled<std::shared_ptr<const grammar::Grammar>>;  // null: given up
  struct Entry {
    std::string key, text_key;  // of what it means, of how it was first written
    std::shared_future<Outcome> outcome;
  };
  using Place = std::list<Entry>::iterator;

  std::shared_ptr<const grammar::Vocabulary> vocabulary();
  const Entry* known(std::string_view key);
  Outcome made_of(const grammar::GrammarSpec& spec, CompileEffort& effort);
  Outcome outcome_of(const grammar::GrammarSpec& spec, CompileEffort& effort);
  Outcome compile_as(Place place, const grammar::GrammarSpec& spec, CompileEffort& effort,
                     std::promise<Outcome>& promise);
  void drop(Place place);
  void trim();

  const Tokenizer& tokenizer_;
  const Limits limits_;
  std::once_flag vocabulary_made_;
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;  // made when first needed
  mutable std::mutex mutex_;                               // for what follows
  std::list<Entry> latest_;                                // first: the last used
  std::unordered_map<std::string_view, Place> by_key_;     // by both keys
  Counter queries_, hits_, refusals_;
  Histogram compile_seconds_{kCompileBounds};
};

}  // namespace penstock
