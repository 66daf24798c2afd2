#include "sampling/repeats.h"

#include <algorithm>

namespace penstock {
namespace {

// Returns the number of tokens before the last occurrence of `token`; -1: there is none. Blocks are
// compared as a whole, which compilers do with vector instructions.
int last_of(std::span<const TokenId> tokens, TokenId token) {
  constexpr int kBlock = 64;
  int end = static_cast<int>(tokens.size());
  for (; end >= kBlock; end -= kBlock) {
    const TokenId* const block = tokens.data() + end - kBlock;
    int found = 0;
    for (int i = 0; i < kBlock; ++i) found |= static_cast<int>(block[i] == token);
    if (found != 0) break;
  }
  while (--end >= 0 && tokens[end] != token) {
  }
  return end;
}

}  // namespace

void RepeatFinder::reserve(int n_tokens, int vocab_size) {
  matches_.reserve(n_tokens);
  repeats_.reserve(n_tokens);
  index_.reserve(vocab_size);
}

void RepeatFinder::add(TokenId next, int32_t length) {
  const auto token = static_cast<size_t>(next);
  if (token >= index_.size()) index_.resize(token + 1);
  if (index_[token] == 0) {
    repeats_.push_back({next, length});
    index_[token] = static_cast<uint32_t>(repeats_.size());
  }
  int32_t& longest = repeats_[index_[token] - 1].length;
  longest = std::max(longest, length);
}

// Z function of the reversed tokens. Lengths end at the last breaker, so only those values are
// stored; positions with another token than the last one are skipped.
std::span<const Repeat> RepeatFinder::find(std::span<const TokenId> tokens,
                                           std::span<const TokenId> breakers, int min_length) {
  for (const Repeat& repeat : repeats_) index_[repeat.next] = 0;
  repeats_.clear();
  const int n = static_cast<int>(tokens.size());
  const auto reversed = [&](int i) { return tokens[n - 1 - i]; };
  int most = 0;
  while (most < n && !std::ranges::binary_search(breakers, reversed(most))) ++most;
  if (most < min_length) return {};
  matches_.assign(most, 0);
  for (int i = 1, left = 0, right = 0; i < n; ++i) {
    int length = 0;
    if (i < right) {
      length = std::min(right - i, matches_[i - left]);
    } else {
      i = n - 1 - last_of(tokens.first(n - i), tokens.back());
      if (i == n) break;
    }
    while (length < most && i + length < n && reversed(length) == reversed(i + length)) ++length;
    if (i < most) matches_[i] = length;
    if (length >= min_length) add(reversed(i - 1), length);
    if (i + length > right) {
      left = i;
      right = i + length;
    }
  }
  return repeats_;
}

}  // namespace penstock
