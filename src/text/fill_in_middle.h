// The tokens with which models of code are asked for what stands between two texts.
#pragma once
#include "text/tokenizer.h"

namespace penstock {

// kNoToken where the vocabulary has none.
struct FillInMiddle {
  TokenId prefix = kNoToken, suffix = kNoToken, middle = kNoToken;  // before each of the three
  TokenId pad = kNoToken;                                           // after the middle, in some families
  TokenId repository = kNoToken, file = kNoToken;                   // before names of them

  bool known() const { return prefix != kNoToken && suffix != kNoToken && middle != kNoToken; }
};

// By the names that families of models give these tokens. The three that are needed come from one family.
FillInMiddle fill_in_middle_of(const Tokenizer& tokenizer);

}  // namespace penstock
