// SentencePiece's precompiled normalization table: a double-array trie of byte strings and their
// replacements.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace penstock {

class Charsmap {
 public:
  Charsmap() = default;
  // blob: the size of the trie in bytes (uint32), the trie, then zero-terminated replacements.
  // Errors: kCorruptFile.
  static Result<Charsmap> parse(std::string_view blob);

  bool empty() const { return units_.empty(); }
  struct Found {
    size_t length;  // number of bytes that are replaced
    std::string_view replacement;
  };
  // The longest (or shortest) key that text starts with.
  std::optional<Found> longest(std::string_view text) const { return find(text, false); }
  std::optional<Found> shortest(std::string_view text) const { return find(text, true); }

 private:
  std::optional<Found> find(std::string_view text, bool first) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace penstock
