// Grammars over a vocabulary of letters, for engines over a FakeModel: token 0 ends, token i is a
// letter or two.
#pragma once
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "grammar/sequence_matcher.h"

namespace penstock {

inline std::shared_ptr<const grammar::Vocabulary> letters(int vocab_size) {
  std::vector<std::string> tokens = {""};
  for (int i = 0; i + 1 < vocab_size; ++i) {
    std::string text(1, static_cast<char>('a' + i % 26));
    if (i >= 26) text += static_cast<char>('a' + i * 7 % 3);
    tokens.push_back(std::move(text));
  }
  return grammar::Vocabulary::make(std::move(tokens), {0});
}

// Proposes what only one token can write, in place of a tokenizer that knows how texts are spelled.
class OneWayMatcher : public TokenMatcher {
 public:
  OneWayMatcher(std::unique_ptr<TokenMatcher> inner, int vocab_size)
      : inner_(std::move(inner)), mask_((static_cast<size_t>(vocab_size) + 31) / 32) {}
  void fill_mask(std::span<uint32_t> mask) override { inner_->fill_mask(mask); }
  bool append(TokenId token) override { return inner_->append(token); }
  void reserve(int n_tokens) override { inner_->reserve(n_tokens); }
  void rollback(int n) override { inner_->rollback(n); }
  bool complete() const override { return inner_->complete(); }
  bool must_end() const override { return inner_->must_end(); }
  std::unique_ptr<TokenMatcher> fork() const override {
    return std::make_unique<OneWayMatcher>(inner_->fork(), static_cast<int>(mask_.size()) * 32);
  }
  int forced(std::span<TokenId> tokens) override {
    int n = 0;
    while (n < static_cast<int>(tokens.size()) && !inner_->complete()) {
      std::ranges::fill(mask_, 0);
      inner_->fill_mask(mask_);
      TokenId only = kNoToken;
      int n_allowed = 0;
      for (size_t token = 0; token < mask_.size() * 32; ++token) {
        if ((mask_[token / 32] >> (token % 32) & 1u) == 0) continue;
        only = static_cast<TokenId>(token);
        ++n_allowed;
      }
      if (n_allowed != 1) break;
      inner_->append(only);
      tokens[static_cast<size_t>(n++)] = only;
    }
    inner_->rollback(n);
    return n;
  }

 private:
  std::unique_ptr<TokenMatcher> inner_;
  std::vector<uint32_t> mask_;
};

// Of texts that match the expression. drafts: what it forces may be drafted.
inline std::shared_ptr<const TokenMatcher> letter_grammar(const std::string& expression,
                                                          int vocab_size, bool drafts = true) {
  auto compiled = grammar::Grammar::compile({.kind = grammar::SpecKind::kRegex, .text = expression},
                                            letters(vocab_size));
  PENSTOCK_CHECK(compiled.has_value());
  auto matcher = grammar::make_sequence_matcher(*std::move(compiled));
  if (!drafts) return matcher;
  return std::make_shared<OneWayMatcher>(std::move(matcher), vocab_size);
}

}  // namespace penstock
