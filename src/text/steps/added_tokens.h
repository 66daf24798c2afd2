// Tokens that are found in the text as they are, before the vocabulary sees it: "<|im_start|>", runs of
// spaces.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "penstock/types.h"
#include "text/steps/normalizer.h"
#include "text/vocab/trie.h"

namespace penstock {

struct AddedToken {
  TokenId id = kNoToken;
  std::string content;
  bool special = false;
  bool normalized = false;  // is looked for in the normalized text
  bool lstrip = false, rstrip = false,
       single_word = false;  // eats white space before, after; only between non-words
};

// A stretch of text: a token, or (kNoToken) text to encode.
struct Segment {
  TokenId id;
  std::string_view text;
};

// Immutable once built.
class AddedTokens {
 public:
  // Of two tokens with one content the later wins. Tokens with empty content are never found.
  void build(std::vector<AddedToken> tokens, const Normalizer& normalizer);

  bool has_normalized() const { return !normalized_.empty(); }
  // Cuts text at tokens (leftmost, then longest). With parse_special off, special tokens count as text.
  void split(std::string_view text, bool normalized, bool parse_special,
             FunctionRef<void(const Segment&)> out) const;
  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  std::vector<AddedToken> tokens_;
  Trie raw_, normalized_;  // content -> index into tokens_
};

}  // namespace penstock
