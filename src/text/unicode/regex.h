// Regular expressions as tokenizer files write them (Oniguruma's and Rust's dialect), run by PCRE2 with JIT. Classes of
// characters are those of Unicode 16 (newer_characters.h).
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
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

  // Every match, left to right, none overlapping, empty ones included. The patterns that group digits in threes from the
  // right, quadratic as they are written, take linear time. A search that exceeds the backtracking limit ends the list
  // early: the rest of the text counts as unmatched. In the scope of a Work (base/work.h), too many searches that come
  // near the limit end the work. REQUIRES: text is well-formed UTF-8.
  void for_each(std::string_view text, FunctionRef<void(Match)> found) const;
  void find_all(std::string_view text, std::vector<Match>& out) const {
    for_each(text, [&](Match match) { out.push_back(match); });
  }

 private:
  struct Code;
  // Digits in threes from the right: the groups, or the places between them (one in front of a full first group too).
  enum class Grouped : uint8_t { kNo, kGroups, kBetween };
  static Grouped grouped_by(std::string_view pattern, std::string& runs);
  static void for_each_group(const Code& code, std::string_view text, FunctionRef<void(Match)> found);
  std::shared_ptr<const Code> code_;
};

}  // namespace penstock
