// What the notations of rules have in common: where they are in the text, the first refusal, and the parts that are
// written alike.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "grammar/parts/text_cursor.h"
#include "grammar/syntax/rules.h"
#include "grammar/vocabulary/vocabulary.h"

namespace penstock::grammar {

class RuleScanner {
 public:
  // vocabulary: for special tokens; may be null.
  RuleScanner(std::string_view text, Rules& rules, const Vocabulary* vocabulary, int max_depth)
      : in_(text), rules_(rules), vocabulary_(vocabulary), max_depth_(max_depth) {}

 protected:
  // Keeps the first refusal, with the place where the text is read; returns 0.
  uint32_t fail(RefusalKind kind, std::string message);
  uint32_t invalid(std::string message) { return fail(RefusalKind::kInvalid, std::move(message)); }

  // The rest of an escape: so many hexadecimal digits, or {1} to {10FFFF}.
  char32_t hex(size_t digits);
  char32_t braced_hex();
  // <name>, <[12]> or <[12,20-29]>: one of these special tokens.
  uint32_t token();
  // "{2}" "{2,}" "{,5}" "{2,5}" behind what they repeat.
  uint32_t counted(uint32_t part);
  // part, where least and most are as they were written.
  uint32_t repeated(uint32_t part, uint32_t least, uint32_t most);
  // Digits, none at all being nullopt; more than any count is as much as there can be.
  std::optional<uint32_t> number();
  void blanks();  // and line ends

  TextCursor in_;
  Rules& rules_;
  const Vocabulary* vocabulary_;
  int max_depth_;
  bool failed_ = false;
  Refusal refusal_;

 private:
  bool token_ids(std::string_view list, std::vector<uint32_t>& nodes);
};

}  // namespace penstock::grammar
