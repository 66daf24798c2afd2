// The tokenizer's spelling of a text that is known in advance: the tokens that a model most likely
// chooses for it.
//
// Results are cached within a bound, so that the keys of a schema are tokenized once. Thread-safe.
#pragma once
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text_hash.h"
#include "penstock/types.h"

namespace penstock {

class Tokenizer;

namespace grammar {

class Spellings {
 public:
  // REQUIRES: the tokenizer outlives this object.
  explicit Spellings(const Tokenizer& tokenizer);

  struct Known {
    std::string_view text;  // the text, which follows other text
    // bytes that may follow the text; empty: it is the end
    std::string_view followers;
  };
  // Writes the tokens of the text to `tokens`, as many as fit and do not depend on the following
  // byte for most followers, and returns their number. Does not allocate for cached texts.
  int write(const Known& known, std::span<TokenId> tokens);

 private:
  static constexpr size_t kMostKept = 4096;
  std::vector<TokenId> tokens_of(std::string text) const;
  std::vector<TokenId> spell(const Known& known) const;

  const Tokenizer& tokenizer_;
  // tokens of the text that precedes every spelled text
  std::vector<TokenId> before_;
  std::mutex mutex_;
  std::string key_;
  TextMap<std::vector<TokenId>> kept_;
};

}  // namespace grammar
}  // namespace penstock
