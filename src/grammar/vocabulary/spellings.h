// How a tokenizer writes a text that is known before it is written: the tokens a model most likely chooses for it.
//
// What was spelled before is kept within a bound, so that the keys of a schema are tokenized once. Any thread may call.
#pragma once
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "penstock/types.h"

namespace penstock {

class Tokenizer;

namespace grammar {

class Spellings {
 public:
  // tokenizer: outlives this.
  explicit Spellings(const Tokenizer& tokenizer);

  struct Known {
    std::string_view text;       // behind other text
    std::string_view followers;  // bytes of which one may follow; empty: nothing follows
  };
  // Puts in the tokens of the text, as many as there is room for and as stay the same before most of the followers, and
  // returns how many. Allocates nothing for what was asked before.
  int write(const Known& known, std::span<TokenId> tokens);

 private:
  static constexpr size_t kMostKept = 4096;
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::vector<TokenId> tokens_of(std::string text) const;
  std::vector<TokenId> spell(const Known& known) const;

  const Tokenizer& tokenizer_;
  std::vector<TokenId> before_;  // of the text that stands before all others
  std::mutex mutex_;
  std::string key_;
  std::unordered_map<std::string, std::vector<TokenId>, Hash, std::equal_to<>> kept_;
};

}  // namespace grammar
}  // namespace penstock
