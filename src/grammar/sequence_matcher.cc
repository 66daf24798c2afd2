#include "grammar/sequence_matcher.h"

#include <algorithm>
#include <string>
#include <vector>

#include "grammar/spellings.h"

namespace penstock::grammar {
namespace {

constexpr size_t kMostForced = 128;  // bytes
// What may follow a text that is forced: of every kind that tokenizers tell apart.
constexpr std::string_view kFollowers = "aZ09 \n\"',:.-_/\\[]{}()<=";

class SequenceMatcher final : public TokenMatcher {
 public:
  SequenceMatcher(Matcher matcher, size_t mask_words)
      : matcher_(std::move(matcher)), mask_words_(mask_words) {
    text_.reserve(kMostForced + kFollowers.size());
  }

  void fill_mask(std::span<uint32_t> mask) override {
    if (mask.size() >= mask_words_) return matcher_.fill_mask(mask.first(mask_words_));
    whole_.resize(mask_words_);  // the model has fewer tokens than its tokenizer
    matcher_.fill_mask(whole_);
    std::copy_n(whole_.begin(), mask.size(), mask.begin());
  }
  bool append(TokenId token) override { return matcher_.append(token); }
  void reserve(int n_tokens) override { matcher_.reserve(static_cast<size_t>(n_tokens)); }
  void rollback(int n) override { matcher_.rollback(n); }
  bool complete() const override { return matcher_.may_end(); }
  bool must_end() const override { return matcher_.must_end(); }
  int forced(std::span<TokenId> tokens) override;
  std::unique_ptr<TokenMatcher> fork() const override {
    return std::make_unique<SequenceMatcher>(matcher_, mask_words_);
  }

 private:
  Matcher matcher_;
  size_t mask_words_;
  std::vector<uint32_t> whole_;
  std::string text_;
};

int SequenceMatcher::forced(std::span<TokenId> tokens) {
  Spellings* const spellings = matcher_.grammar().vocabulary().spellings();
  text_.clear();
  if (spellings != nullptr) matcher_.forced_bytes(text_, kMostForced, true);
  if (text_.empty() || !matcher_.append_bytes(text_)) return 0;
  const size_t size = text_.size();
  for (const char follower : kFollowers) {
    if (!matcher_.append_bytes({&follower, 1})) continue;
    matcher_.rollback(1);
    text_ += follower;
  }
  const bool ends = matcher_.must_end();
  matcher_.rollback(1);
  const std::string_view all = text_;
  if (!ends && all.size() == size) return 0;
  return spellings->write({all.substr(0, size), all.substr(size)}, tokens);
}

}  // namespace

std::unique_ptr<TokenMatcher> make_sequence_matcher(std::shared_ptr<const Grammar> grammar) {
  const size_t mask_words = grammar->vocabulary().mask_words();
  return std::make_unique<SequenceMatcher>(Matcher(std::move(grammar)), mask_words);
}

}  // namespace penstock::grammar
