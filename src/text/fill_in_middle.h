// The special tokens of fill-in-the-middle prompts of code models.
#pragma once
#include "text/tokenizer.h"

namespace penstock {

// The fill-in-the-middle tokens of a vocabulary; kNoToken for those that it does not have.
struct FillInMiddle {
  // Token before the prefix, the suffix and the middle.
  TokenId prefix = kNoToken, suffix = kNoToken, middle = kNoToken;
  TokenId pad = kNoToken;  // token after the middle, in some families
  // token before the name of a repository, of a file
  TokenId repository = kNoToken, file = kNoToken;

  bool known() const { return prefix != kNoToken && suffix != kNoToken && middle != kNoToken; }
};

// Finds the tokens by the names that model families give them. prefix, suffix and middle are always
// of the same family.
FillInMiddle fill_in_middle_of(const Tokenizer& tokenizer);

}  // namespace penstock
