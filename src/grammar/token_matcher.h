// Which tokens may come next by a grammar, as the sampler sees it.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "penstock/types.h"

namespace penstock {

// Follows one sequence's output. One thread at a time; what several share is immutable.
class TokenMatcher {
 public:
  virtual ~TokenMatcher() = default;
  // Sets the bit of every token that may come next; `mask` [ceil(vocab_size / 32)] comes with all bits 0. End tokens
  // are among them exactly when complete().
  virtual void fill_mask(std::span<uint32_t> mask) = 0;
  // Takes in the next token. False, and nothing has changed: it may not come here.
  virtual bool append(TokenId token) = 0;
  // So many will come: where they are few, taking them in allocates nothing.
  virtual void reserve(int n_tokens) { (void)n_tokens; }
  // Undoes the last n of them.
  virtual void rollback(int n) = 0;
  // Why nothing can be said of the output any more: following it takes too much work or memory. Then masks are empty and
  // nothing is taken. "": it can.
  virtual std::string failure() const { return ""; }
  // Whether the output may end here.
  virtual bool complete() const = 0;
  // Whether it has to: nothing but an end token may come.
  virtual bool must_end() const { return false; }
  // Puts in the tokens that the tokenizer writes for the text that must come next, white space as the text before has it,
  // as many as there is room for, and returns how many; 0: there is a choice. Other tokens may be allowed too.
  virtual int forced(std::span<TokenId> tokens) {
    (void)tokens;
    return 0;
  }
  // The text shall be complete within so many tokens from here on, an end token counted. append() then refuses what leaves
  // too few of them, masks only where they run short. REQUIRES: tokens_to_end() is no more.
  virtual void limit(int n_tokens) { (void)n_tokens; }
  // So many tokens are always enough to end the text, the end token counted; kUnknown: nobody knows.
  static constexpr int kUnknown = 1 << 28;
  virtual int tokens_to_end() { return 0; }
  // Whether append() would take what the mask allows.
  virtual bool may_take(TokenId token) {
    (void)token;
    return true;
  }
  // Another one that stands where this one does.
  virtual std::unique_ptr<TokenMatcher> fork() const = 0;
};

}  // namespace penstock
