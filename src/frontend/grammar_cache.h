// A cache of one tokenizer's compiled grammars (least recently used ones are evicted).
#pragma once
#include <atomic>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/text_hash.h"
#include "grammar/grammar.h"
#include "penstock/metrics.h"
#include "penstock/structured_outputs.h"

namespace penstock {

class Tokenizer;
class TokenMatcher;

// The grammar constraint on an output.
struct Constraint {
  std::shared_ptr<const TokenMatcher> matcher;  // matcher at the start of an output
  // parts of the specification that have no effect
  std::vector<grammar::Note> notes;
};

// The result of a compilation, for reports.
struct GrammarReport {
  // name of the field that was given: "json", "regex", …
  std::string field;
  std::optional<grammar::Refusal> refusal;
  std::vector<grammar::Note> notes;
  // the grammar as `penstock grammar show` prints it
  std::string canonical;
  double compile_us = 0;
};

// The bounds of a compilation's work.
struct CompileEffort {
  // another thread sets it to end the compilation; may be null
  const std::atomic<bool>* cancelled = nullptr;
  uint64_t max_steps = grammar::CompileLimits().max_steps;
  // Whether to wait for another thread that compiles the same; false: ran_out is set instead.
  bool waits = true;
  // Who asks: has three quarters at most of what grammars in use may take (Limits::max_in_use).
  std::string owner = {};
  // Output: the work exceeded a bound below the default max_steps, so that it is not known whether
  // the specification is valid.
  bool ran_out = false;
};

// Thread-safe. A grammar that several threads request at once is compiled once, by the first of
// them.
class GrammarCache {
 public:
  struct Limits {
    size_t max_entries = 256;
    // Maximum bytes of grammars and their cached masks; the latest grammar alone may exceed it.
    size_t max_bytes = size_t{256} << 20;
    // Maximum bytes of grammars that were evicted while requests still use them; beyond, none is
    // compiled.
    size_t max_in_use = size_t{1} << 30;
  };
  // REQUIRES: the tokenizer outlives the cache.
  explicit GrammarCache(const Tokenizer& tokenizer) : GrammarCache(tokenizer, Limits()) {}
  GrammarCache(const Tokenizer& tokenizer, Limits limits)
      : tokenizer_(tokenizer), limits_(limits) {}

  // Compiles `wanted`, or returns it from the cache. May take long: do not call it on
  // latency-critical threads. field: name of the given part in messages; "":
  // "structured_outputs.json" and so on. Errors: kInvalidArgument, kUnsupported; messages name the
  // field, the place in it and the reason; kCancelled, also when effort.ran_out. effort.max_steps
  // is reduced by the steps that were taken.
  Result<Constraint> compile(const StructuredOutputs& wanted, std::string_view field,
                             CompileEffort& effort);
  Result<Constraint> compile(const StructuredOutputs& wanted, std::string_view field = {}) {
    CompileEffort effort;
    return compile(wanted, field, effort);
  }
  // Returns a cached grammar without compiling; nullopt when it is not in the cache.
  std::optional<Constraint> find(const StructuredOutputs& wanted);
  // Compiles `wanted` even if it is cached, and reports on it. Errors: kInvalidArgument, when not
  // exactly one field is given; kCancelled, as compile().
  Result<GrammarReport> report(const StructuredOutputs& wanted, CompileEffort& effort);
  Result<GrammarReport> report(const StructuredOutputs& wanted) {
    CompileEffort effort;
    return report(wanted, effort);
  }

  // Sets the grammar_* metrics.
  void add_metrics(Metrics& metrics) const;
  size_t n_kept() const;

 private:
  // Null: the compilation was cancelled or ran out of steps.
  using Outcome = grammar::Compiled<std::shared_ptr<const grammar::Grammar>>;
  struct Entry {
    // grammar_key() and grammar_text_key() of the specification that was compiled.
    std::string key, text_key;
    std::shared_future<Outcome> outcome;
    std::string owner;  // who had it compiled
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
  Status check_room(const grammar::GrammarSpec& spec, const std::string& owner,
                    std::string_view field);

  const Tokenizer& tokenizer_;
  const Limits limits_;
  std::once_flag vocabulary_made_;
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;  // created lazily
  mutable std::mutex mutex_;                               // guards the members below
  std::list<Entry> latest_;                                // most recently used first
  ViewMap<Place> by_key_;                                  // entries by `key` and by `text_key`
  struct Evicted {
    std::weak_ptr<const grammar::Grammar> grammar;
    std::string owner;
  };
  std::vector<Evicted> evicted_;  // those that requests still use
  Counter queries_, hits_, refusals_;
  Histogram compile_seconds_{kCompileBounds};
};

}  // namespace penstock
