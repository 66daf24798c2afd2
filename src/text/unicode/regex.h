// Regular expressions of tokenizer files (Oniguruma's and Rust's dialect), run by PCRE2 with JIT.
// Character classes follow Unicode 16 (newer_characters.h).
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
  size_t begin, end;  // byte offsets
};

// Immutable and thread-safe.
class Regex {
 public:
  // Errors: kCorruptFile (does not compile), kUnsupported (longer than 64 KiB).
  static Result<Regex> compile(std::string_view pattern);
  // Returns an expression that matches exactly this text.
  static Regex literal(std::string_view text);

  // Calls `found` for every match, left to right, non-overlapping, empty ones included. Patterns
  // that group digits in threes from the right, which backtracking runs in quadratic time, take
  // linear time. A search that exceeds the backtracking limit ends the list early: the rest of the
  // text counts as unmatched. In the scope of a Work (base/work.h), too many searches that come
  // near the limit end the work. REQUIRES: text is well-formed UTF-8.
  void for_each(std::string_view text, FunctionRef<void(Match)> found) const;
  void find_all(std::string_view text, std::vector<Match>& out) const {
    for_each(text, [&](Match match) { out.push_back(match); });
  }

 private:
  struct Code;
  // Patterns that group digits in threes from the right: kGroups matches the groups, kBetween the
  // positions between them (and before a full first group).
  enum class Grouped : uint8_t { kNo, kGroups, kBetween };
  static Grouped grouped_by(std::string_view pattern, std::string& runs);
  static void for_each_group(const Code& code, std::string_view text,
                             FunctionRef<void(Match)> found);
  std::shared_ptr<const Code> code_;
};

}  // namespace penstock
