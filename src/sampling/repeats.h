// Earlier occurrences of the end of a context, for the DRY penalty.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "penstock/types.h"

namespace penstock {

struct Repeat {
  // the token that followed an earlier occurrence
  TokenId next;
  int32_t length;  // tokens of the longest such occurrence
};

// Keeps its memory between uses.
class RepeatFinder {
 public:
  void reserve(int n_tokens, int vocab_size);
  // Returns each token that followed an earlier occurrence of the last min_length tokens or more,
  // once. Occurrences contain no breaker. Work is linear in the number of tokens. breakers:
  // ascending. REQUIRES: min_length >= 1; token ids >= 0. Valid until the next call.
  std::span<const Repeat> find(std::span<const TokenId> tokens, std::span<const TokenId> breakers,
                               int min_length);

 private:
  void add(TokenId next, int32_t length);

  // by distance from the end: tokens that agree with those at the end
  std::vector<int32_t> matches_;
  // by token: its position in repeats_ plus 1; 0: not there
  std::vector<uint32_t> index_;
  std::vector<Repeat> repeats_;
};

}  // namespace penstock
