// Scanner shared by the parsers of rule notations: the cursor, the first error, and the syntax that
// all notations have.
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

  TextCursor& in() { return in_; }
  Rules& rules() { return rules_; }
  int max_depth() const { return max_depth_; }
  bool failed() const { return failed_; }
  Refusal& refusal() { return refusal_; }

  // Records a refusal with the current position, unless there is one already; returns 0.
  uint32_t fail(RefusalKind kind, std::string message);
  uint32_t invalid(std::string message) { return fail(RefusalKind::kInvalid, std::move(message)); }
  uint32_t unsupported(std::string message) {
    return fail(RefusalKind::kUnsupported, std::move(message));
  }

  // Read the rest of an escape: `digits` hexadecimal digits, or {1} to {10FFFF}.
  char32_t hex(size_t digits);
  char32_t braced_hex();
  // Reads <name>, <[12]> or <[12,20-29]>: one of these special tokens.
  uint32_t token();
  // Reads "{2}" "{2,}" "{,5}" or "{2,5}" after `part`; returns the node of the repetition.
  uint32_t counted(uint32_t part);
  // Returns the node of `part` repeated least to most times, with the counts as written.
  uint32_t repeated(uint32_t part, uint32_t least, uint32_t most);
  // Reads a number; nullopt when there are no digits; too large numbers are clamped to the maximum.
  std::optional<uint32_t> number();
  void blanks();  // skips white space and line ends

 private:
  bool token_ids(std::string_view list, std::vector<uint32_t>& nodes);

  TextCursor in_;
  Rules& rules_;
  const Vocabulary* vocabulary_;
  int max_depth_;
  bool failed_ = false;
  Refusal refusal_;
};

}  // namespace penstock::grammar
