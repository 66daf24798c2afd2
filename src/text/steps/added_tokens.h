// Added tokens, which are matched verbatim in the text before the vocabulary is applied:
// "<|im_start|>", runs of spaces.
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
  // matched in the normalized text instead of the raw text
  bool normalized = false;
  // lstrip, rstrip: the token takes the white space before, after it; single_word: matched only
  // between non-word characters.
  bool lstrip = false, rstrip = false, single_word = false;
};

// A segment of a text: an added token, or, with id kNoToken, text to encode.
struct Segment {
  TokenId id;
  std::string_view text;
};

// Immutable after build().
class AddedTokens {
 public:
  // Of two tokens with the same content the later wins. Tokens with empty content never match.
  void build(std::vector<AddedToken> tokens, const Normalizer& normalizer);

  bool has_normalized() const { return !normalized_.empty(); }
  // Splits text at added tokens (leftmost, then longest) and calls `out` for each segment.
  // normalized: matches the tokens with that flag, else the others. parse_special = false: special
  // tokens count as text.
  void split(std::string_view text, bool normalized, bool parse_special,
             FunctionRef<void(const Segment&)> out) const;
  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  std::vector<AddedToken> tokens_;
  Trie raw_, normalized_;  // content -> index into tokens_
};

}  // namespace penstock
