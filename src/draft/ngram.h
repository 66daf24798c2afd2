// Prompt lookup: an index of n-grams. The tokens that followed an earlier occurrence of the
// sequence's last tokens are proposed again.
#pragma once
#include <unordered_map>

#include "draft/drafters.h"

namespace penstock {

// Index of earlier occurrences of a context's last tokens. Holds positions only: the caller passes
// the same growing text to every call.
class NgramIndex {
 public:
  struct Match {
    // position after the occurrence, or -1: there is none
    int next = -1;
    int length = 0;  // length of the occurrence in tokens
  };
  // Adds the tokens before position `end`, and the pairs of tokens that end there, to the index.
  void extend(std::span<const TokenId> text, int end);
  // Returns the longest occurrence of the context's end in the text; the latest among equals. Of
  // the occurrences of the context's last pair the latest kMostTried are compared.
  Match find(std::span<const TokenId> text, std::span<const TokenId> context) const;
  int end() const { return static_cast<int>(previous_.size()); }

 private:
  static constexpr int kMostTried = 64, kLongest = 64;
  size_t slot_of(std::span<const TokenId> text, TokenId first, TokenId second) const;
  void grow(std::span<const TokenId> text);

  std::unordered_map<TokenId, int32_t> latest_;  // the last position of a token
  // open addressing: the last position at which a pair ends, or -1
  std::vector<int32_t> slots_;
  // [end] previous position at which the same pair ends, or -1
  std::vector<int32_t> previous_;
  int used_ = 0;
};

}  // namespace penstock
