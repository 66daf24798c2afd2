// Reads the text of a grammar character by character and reports its position.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/parts/refusal.h"
#include "text/unicode/unicode.h"

namespace penstock::grammar {

class TextCursor {
 public:
  explicit TextCursor(std::string_view text) : text_(text) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') lines_.push_back(i + 1);
    }
  }

  bool at_end() const { return at_ >= text_.size(); }
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  std::string_view rest() const { return text_.substr(at_); }
  void skip(size_t n) { at_ += n; }
  bool take(std::string_view expected) {
    if (!rest().starts_with(expected)) return false;
    at_ += expected.size();
    return true;
  }
  // Reads one UTF-8 character; U+FFFD for an ill-formed byte. REQUIRES: !at_end().
  char32_t next() {
    const unicode::Decoded c = unicode::decode(text_, at_);
    at_ += c.length;
    return c.code;
  }
  size_t position() const { return at_; }
  void back_to(size_t position) { at_ = position; }

  // Returns the position as "line 3, column 7".
  std::string where() const {
    const size_t at = std::min(at_, text_.size());
    const auto line = std::prev(std::upper_bound(lines_.begin(), lines_.end(), at));
    return fmt::format("line {}, column {}", line - lines_.begin() + 1, at - *line + 1);
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
  std::vector<size_t> lines_{0};  // byte offset at which each line begins
};

inline bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

}  // namespace penstock::grammar
