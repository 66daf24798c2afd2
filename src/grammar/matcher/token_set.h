// Sets of tokens as masks have them: a bit per token, in words of 32.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace penstock::grammar {

inline void set_bit(std::span<uint32_t> bits, int32_t token) { bits[token / 32] |= 1U << (token % 32); }
inline void clear_bit(std::span<uint32_t> bits, int32_t token) { bits[token / 32] &= ~(1U << (token % 32)); }
inline bool has_bit(std::span<const uint32_t> bits, int32_t token) {
  return (bits[token / 32] >> (token % 32) & 1) != 0;
}
inline void set_bits(std::span<uint32_t> bits, std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) set_bit(bits, token);
}

// A list while it is short, bits otherwise.
class TokenSet {
 public:
  TokenSet() = default;
  TokenSet(std::vector<int32_t> tokens, size_t n_words) {
    if (tokens.size() * 8 <= n_words * 4) {
      tokens_ = std::move(tokens);
      tokens_.shrink_to_fit();
      return;
    }
    words_.resize(n_words);
    set_bits(words_, tokens);
  }
  void add_to(std::span<uint32_t> bits) const {
    if (words_.empty()) return set_bits(bits, tokens_);
    for (size_t i = 0; i < words_.size(); ++i) bits[i] |= words_[i];
  }
  bool dense() const { return !words_.empty(); }
  std::span<const uint32_t> words() const { return words_; }
  size_t memory() const { return tokens_.capacity() * 4 + words_.capacity() * 4; }

 private:
  std::vector<int32_t> tokens_;
  std::vector<uint32_t> words_;
};

}  // namespace penstock::grammar
