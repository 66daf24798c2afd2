// Compiled grammars of one tokenizer, the latest kept.
#pragma once
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/grammar.h"
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

// Any thread may call.
class GrammarCache {
 public:
  // tokenizer: outlives this.
  explicit GrammarCache(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Takes time: not for threads that others wait for. field: what messages call the part that was given; "" is
  // "structured_outputs.json" and so on. Errors: kInvalidArgument, kUnsupported; messages name the field, the place in it
  // and the reason.
  Result<Constraint> compile(const StructuredOutputs& wanted, std::string_view field = {});
  // The same without the work; null where it has not been compiled lately.
  std::optional<Constraint> find(const StructuredOutputs& wanted);
  // Compiles it, known or not. Error: kInvalidArgument, not exactly one of the fields.
  Result<GrammarReport> report(const StructuredOutputs& wanted);

 private:
  using Kept = std::pair<StructuredOutputs, std::shared_ptr<const grammar::Grammar>>;

  std::shared_ptr<const grammar::Vocabulary> vocabulary();

  const Tokenizer& tokenizer_;
  std::once_flag vocabulary_made_;
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;  // made when first needed
  std::mutex mutex_;
  std::list<Kept> latest_;  // first: the last used
};

}  // namespace penstock
