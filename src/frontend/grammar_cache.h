// Compiled grammars of one tokenizer, the latest kept.
#pragma once
#include <list>
#include <memory>
#include <mutex>

#include "base/result.h"
#include "grammar/grammar.h"
#include "penstock/structured_outputs.h"

namespace penstock {

class Tokenizer;
class TokenMatcher;

// Any thread may call.
class GrammarCache {
 public:
  // tokenizer: outlives this.
  explicit GrammarCache(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // A matcher at the beginning of an output. Takes time: not for threads that others wait for. Errors: kInvalidArgument,
  // kUnsupported; messages name the field, the place in it and the reason.
  Result<std::shared_ptr<const TokenMatcher>> matcher(const StructuredOutputs& wanted);

 private:
  Result<std::shared_ptr<const grammar::Grammar>> compiled(const StructuredOutputs& wanted);

  const Tokenizer& tokenizer_;
  std::mutex mutex_;
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;  // made when first needed
  std::list<std::pair<StructuredOutputs, std::shared_ptr<const grammar::Grammar>>>
      latest_;  // first: the last used
};

}  // namespace penstock
