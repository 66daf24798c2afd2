// The sampler's interface to a grammar: which tokens may come next.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "penstock/types.h"

namespace penstock {

// Follows the output of one sequence. Not thread-safe; data shared by several matchers is
// immutable.
class TokenMatcher {
 public:
  virtual ~TokenMatcher() = default;
  // Sets the bit of every token that may come next; end tokens are among them exactly when
  // complete(). REQUIRES: `mask` [ceil(vocab_size / 32)] is all 0.
  virtual void fill_mask(std::span<uint32_t> mask) = 0;
  // Appends the next token. Returns false, and changes nothing, when it is not allowed.
  virtual bool append(TokenId token) = 0;
  // Hint that n_tokens tokens will be appended; for small numbers append() then allocates no
  // memory.
  virtual void reserve(int n_tokens) { (void)n_tokens; }
  // Undoes the last n appends.
  virtual void rollback(int n) = 0;
  // The error when following the output takes too much work or memory; "": none. After an error
  // masks are empty and append() refuses all tokens.
  virtual std::string failure() const { return ""; }
  // Whether the output may end here.
  virtual bool complete() const = 0;
  // Whether the output must end here: only end tokens are allowed.
  virtual bool must_end() const { return false; }
  // Writes to `tokens` the tokenizer's tokens for the text that must come next, with white space in
  // the style of the previous text, as many as fit, and returns their number; 0: there is a choice.
  // Other tokenizations of that text may be allowed too.
  virtual int forced(std::span<TokenId> tokens) {
    (void)tokens;
    return 0;
  }
  // Limits the rest of the output to n_tokens tokens, the end token included. append() then refuses
  // tokens after which the output could not be completed in time; masks exclude them only when few
  // tokens are left. REQUIRES: tokens_to_end() <= n_tokens.
  virtual void limit(int n_tokens) { (void)n_tokens; }
  // Returns a number of tokens that suffices to end the text, the end token included; kUnknown: not
  // known.
  static constexpr int kUnknown = 1 << 28;
  virtual int tokens_to_end() { return 0; }
  // Whether append() would accept a token that the mask allows.
  virtual bool may_take(TokenId token) {
    (void)token;
    return true;
  }
  // Returns an independent copy in the same state.
  virtual std::unique_ptr<TokenMatcher> fork() const = 0;
};

}  // namespace penstock
