// Turns one word into token ids: the part of a tokenizer that differs by kind of vocabulary.
#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "penstock/types.h"

namespace penstock {

// Memory a model reuses from word to word; one per encode call.
class WordScratch {
 public:
  virtual ~WordScratch() = default;
};

// Immutable; any thread may call it.
class WordModel {
 public:
  virtual ~WordModel() = default;
  virtual std::unique_ptr<WordScratch> make_scratch() const { return nullptr; }
  // Appends the tokens of word. scratch: from make_scratch() of this model.
  virtual void encode(std::string_view word, WordScratch* scratch, std::vector<TokenId>& out) const = 0;
};

}  // namespace penstock
