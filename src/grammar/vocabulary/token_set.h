// Sets of tokens and operations on masks: one bit per token, in words of 32 bits.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace penstock::grammar {

inline void set_bit(std::span<uint32_t> bits, int32_t token) {
  bits[token / 32] |= 1U << (token % 32);
}
inline void clear_bit(std::span<uint32_t> bits, int32_t token) {
  bits[token / 32] &= ~(1U << (token % 32));
}
inline bool has_bit(std::span<const uint32_t> bits, int32_t token) {
  return (bits[token / 32] >> (token % 32) & 1) != 0;
}
inline void set_bits(std::span<uint32_t> bits, std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) set_bit(bits, token);
}

// A set of tokens, stored as a list while it is small, else as bits.
class TokenSet {
 public:
  TokenSet() = default;
  explicit TokenSet(std::span<const uint32_t> bits) {
    size_t n = 0;
    for (const uint32_t word : bits) n += static_cast<size_t>(std::popcount(word));
    if (n * 8 > bits.size() * 4) {
      words_.assign(bits.begin(), bits.end());
      return;
    }
    tokens_.reserve(n);
    for (size_t i = 0; i < bits.size(); ++i) {
      for (uint32_t word = bits[i]; word != 0; word &= word - 1)
        tokens_.push_back(static_cast<int32_t>(i * 32) + std::countr_zero(word));
    }
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
