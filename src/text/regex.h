// Regular expressions as tokenizer files write them (Oniguruma's and Rust's dialect), run by PCRE2 with JIT.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace penstock {

struct Match {
  size_t begin, end;  // bytes
};

// Immutable; any thread may call find_all.
class Regex {
 public:
  // Errors: kCorruptFile (does not compile), kUnsupported (longer than 64 KiB).
  static Result<Regex> compile(std::string_view pattern);
  // Matches this text and nothing else.
  static Regex literal(std::string_view text);

  // Appends every match, left to right, none overlapping, empty ones included.
  // A search that exceeds the backtracking limit ends the list early: the rest of the text counts as
  // unmatched. REQUIRES: text is well-formed UTF-8.
  void find_all(std::string_view text, std::vector<Match>& out) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

}  // namespace penstock
