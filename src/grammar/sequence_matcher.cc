#include "grammar/sequence_matcher.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <string>
#include <vector>

#include "grammar/vocabulary/spellings.h"

namespace penstock::grammar {
namespace {

constexpr size_t kMostForced = 128;  // bytes
// Bytes that may follow a forced text, one of each class that tokenizers distinguish.
constexpr std::string_view kFollowers = "aZ09 \n\"',:.-_/\\[]{}()<=";

class SequenceMatcher final : public TokenMatcher {
 public:
  SequenceMatcher(Matcher matcher, size_t mask_words)
      : matcher_(std::move(matcher)), mask_words_(mask_words) {
    text_.reserve(kMostForced + kFollowers.size());
  }

  void fill_mask(std::span<uint32_t> mask) override;
  bool append(TokenId token) override;
  void reserve(int n_tokens) override { matcher_.reserve(static_cast<size_t>(n_tokens)); }
  void rollback(int n) override { matcher_.rollback(n); }
  std::string failure() const override { return matcher_.failure(); }
  bool complete() const override { return matcher_.may_end(); }
  bool must_end() const override { return matcher_.must_end(); }
  int forced(std::span<TokenId> tokens) override;
  void limit(int n_tokens) override { last_ = matcher_.n_appended() + n_tokens; }
  int tokens_to_end() override;
  bool may_take(TokenId token) override;
  std::unique_ptr<TokenMatcher> fork() const override {
    auto other = std::make_unique<SequenceMatcher>(matcher_, mask_words_);
    other->last_ = last_;
    return other;
  }

 private:
  // This many tokens before the limit, masks contain only tokens that lead to the end in time. No
  // other token increases the shortest ending by more, except a few that are tested individually.
  static constexpr int kShort = 24;
  int left() const { return last_ - matcher_.n_appended(); }
  void keep_endings(std::span<uint32_t> mask);

  Matcher matcher_;
  size_t mask_words_;
  int last_ = INT_MAX;  // total number of tokens allowed
  std::vector<uint32_t> whole_;
  std::string text_;
};

void SequenceMatcher::fill_mask(std::span<uint32_t> mask) {
  if (mask.size() >= mask_words_) {
    matcher_.fill_mask(mask.first(mask_words_));
  } else {
    whole_.resize(mask_words_);  // the model has fewer tokens than the tokenizer
    matcher_.fill_mask(whole_);
    std::copy_n(whole_.begin(), mask.size(), mask.begin());
  }
  if (last_ != INT_MAX && left() < tokens_to_end() + kShort) keep_endings(mask);
}

// Keeps single bytes and tokens without text, which include those that reduce the shortest ending.
void SequenceMatcher::keep_endings(std::span<uint32_t> mask) {
  const Vocabulary& vocabulary = matcher_.grammar().vocabulary();
  for (size_t word = 0; word < mask.size(); ++word) {
    for (uint32_t bits = mask[word]; bits != 0; bits &= bits - 1) {
      const auto token = static_cast<TokenId>(word * 32) + std::countr_zero(bits);
      if (vocabulary.bytes(token).size() > 1 || !may_take(token)) mask[word] &= ~(bits & -bits);
    }
  }
}

int SequenceMatcher::tokens_to_end() {
  if (matcher_.ended()) return 0;
  if (!matcher_.grammar().vocabulary().has_bytes()) return kUnknown;
  const uint64_t tokens = matcher_.shortest_ending() + (matcher_.must_end() ? 0 : 1);
  return static_cast<int>(std::min<uint64_t>(tokens, kUnknown));
}

bool SequenceMatcher::may_take(TokenId token) {
  if (!append(token)) return false;
  matcher_.rollback(1);
  return true;
}

bool SequenceMatcher::append(TokenId token) {
  if (!matcher_.append(token)) return false;
  if (last_ == INT_MAX || tokens_to_end() <= left()) return true;
  matcher_.rollback(1);
  return false;
}

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
