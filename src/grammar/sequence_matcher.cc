#include "grammar/sequence_matcher.h"

#include <algorithm>
#include <vector>

namespace penstock::grammar {
namespace {

class SequenceMatcher final : public TokenMatcher {
 public:
  SequenceMatcher(Matcher matcher, size_t mask_words)
      : matcher_(std::move(matcher)), mask_words_(mask_words) {}

  void fill_mask(std::span<uint32_t> mask) override {
    if (mask.size() >= mask_words_) return matcher_.fill_mask(mask.first(mask_words_));
    whole_.resize(mask_words_);  // the model has fewer tokens than its tokenizer
    matcher_.fill_mask(whole_);
    std::copy_n(whole_.begin(), mask.size(), mask.begin());
  }
  bool append(TokenId token) override { return matcher_.append(token); }
  void rollback(int n) override { matcher_.rollback(n); }
  bool complete() const override { return matcher_.may_end(); }
  std::unique_ptr<TokenMatcher> fork() const override {
    return std::make_unique<SequenceMatcher>(matcher_, mask_words_);
  }

 private:
  Matcher matcher_;
  size_t mask_words_;
  std::vector<uint32_t> whole_;
};

}  // namespace

std::unique_ptr<TokenMatcher> make_sequence_matcher(std::shared_ptr<const Grammar> grammar) {
  const size_t mask_words = grammar->vocabulary().mask_words();
  return std::make_unique<SequenceMatcher>(Matcher(std::move(grammar)), mask_words);
}

}  // namespace penstock::grammar
