#include "jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/ascii.h"
#include "base/locale_free.h"
#include "jinja/text.h"

namespace penstock::jinja {
namespace {

constexpr size_t kNone = std::string_view::npos;

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_digit_char(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)) {}

  std::vector<Token> run() {
    while (position_ < source_.size()) root();
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void error(std::string message) const {
    throw Failure{ErrorCode::kInvalidArgument, "TemplateSyntaxError", std::move(message), line_};
  }

  std::string_view rest() const { return std::string_view(source_).substr(position_); }
  bool at(std::string_view text) const { return rest().starts_with(text); }

  void add(TokenKind kind, std::string text) {
    Token token;
    token.kind = kind;
    token.line = line_;
    token.text = std::move(text);
    tokens_.push_back(std::move(token));
  }

  // Consumes n bytes, and sets whether they end a line.
  void advance(size_t n) {
    for (size_t i = 0; i < n; ++i) line_ += source_[position_ + i] == '\n' ? 1 : 0;
    position_ += n;
    line_starting_ = n > 0 && source_[position_ - 1] == '\n';
  }

  void skip_space() {
    size_t end = position_;
    while (end < source_.size()) {
      size_t next = end;
      if (!is_space(decode(source_, next))) break;
      end = next;
    }
    if (end > position_) advance(end - position_);
  }

  // Emits the text before a tag. sign: '-' or '+' after the opening of the tag, or 0.
  void emit_data(std::string_view text, char sign, bool is_variable) {
    std::string_view kept = text;
    if (sign == '-') {
      kept = strip(text, Side::kRight);
    } else if (sign != '+' && !is_variable) {
      const size_t newline = text.rfind('\n');
      const size_t line_start = newline == kNone ? 0 : newline + 1;
      const std::string_view tail = text.substr(line_start);
      if ((line_start > 0 || line_starting_) && !tail.empty() && strip(tail, Side::kLeft).empty()) {
        kept = text.substr(0, line_start);
      }
    }
    if (!kept.empty()) add(TokenKind::kData, std::string(kept));
  }

  static char sign_at(std::string_view text, size_t i) {
    return i < text.size() && (text[i] == '-' || text[i] == '+') ? text[i] : '\0';
  }

  // Returns the length of "{%[-+]? raw [-]%}" at the position, or 0.
  size_t raw_begin_length(size_t start, char& sign) const {
    size_t i = start + 2;
    sign = sign_at(source_, i);
    if (sign != 0) ++i;
    i = after_space(i);
    if (std::string_view(source_).substr(i, 3) != "raw") return 0;
    i = after_space(i + 3);
    const std::string_view tail = std::string_view(source_).substr(std::min(i, source_.size()));
    if (tail.starts_with("-%}")) return after_space(i + 3) - start;
    return tail.starts_with("%}") ? i + 2 - start : 0;
  }

  size_t after_space(size_t i) const {
    while (i < source_.size()) {
      size_t next = i;
      if (!is_space(decode(source_, next))) break;
      i = next;
    }
    return i;
  }

  void root() {
    size_t tag = position_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == kNone || tag + 1 >= source_.size()) {
        add(TokenKind::kData, std::string(rest()));
        return advance(rest().size());
      }
      const char second = source_[tag + 1];
      if (second == '{' || second == '%' || second == '#') break;
    }
    const std::string data = source_.substr(position_, tag - position_);
    const char second = source_[tag + 1];
    char sign = 0;
    const size_t raw = second == '%' ? raw_begin_length(tag, sign) : 0;
    if (raw == 0) sign = sign_at(source_, tag + 2);
    emit_data(data, sign, second == '{');
    advance(data.size());
    if (raw > 0) {
      advance(raw);
      return raw_block();
    }
    const int begin_line = line_;
    advance(sign != 0 ? 3 : 2);
    if (second == '#') return comment(begin_line);
    add(second == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
    tag_body(second == '{');
  }

  void comment(int begin_line) {
    // like jinja2: an open tag at the very end is no error
    if (position_ >= source_.size()) return;
    const size_t end = source_.find("#}", position_);
    if (end == kNone) {
      line_ = begin_line;
      error("Missing end of comment tag");
    }
    const char sign = end > position_ ? sign_at(source_, end - 1) : '\0';
    close_tag(end, sign);
  }

  // Consumes everything up to and including the two-byte closing tag at `end`, then the white space
  // that its sign removes.
  void close_tag(size_t end, char sign) {
    advance(end + 2 - position_);
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && position_ < source_.size() && source_[position_] == '\n') {
      advance(1);
    }
  }

  void raw_block() {
    if (position_ >= source_.size()) return;
    for (size_t tag = position_; (tag = source_.find("{%", tag)) != kNone; ++tag) {
      size_t i = tag + 2;
      const char sign = sign_at(source_, i);
      i = after_space(sign != 0 ? i + 1 : i);
      if (std::string_view(source_).substr(i, 6) != "endraw") continue;
      i = after_space(i + 6);
      const char end_sign = sign_at(source_, i);
      const size_t close = end_sign != 0 ? i + 1 : i;
      if (std::string_view(source_).substr(std::min(close, source_.size()), 2) != "%}") continue;
      emit_data(source_.substr(position_, tag - position_), sign, false);
      return close_tag(close, end_sign);
    }
    error("Missing end of raw directive");
  }

  // Returns whether a closing tag was consumed.
  bool try_close(bool variable) {
    const std::string_view close = variable ? "}}" : "%}";
    const char sign = sign_at(source_, position_);
    if (at(close)) {
      if (variable) {
        add(TokenKind::kVariableEnd, "");
        advance(2);
      } else {
        add(TokenKind::kBlockEnd, "");
        close_tag(position_, '\0');
      }
      return true;
    }
    if (sign == 0 || !rest().substr(1).starts_with(close) || (variable && sign == '+'))
      return false;
    add(variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
    close_tag(position_ + 1, sign);
    return true;
  }

  void tag_body(bool variable) {
    std::string closers;
    while (true) {
      if (closers.empty() && try_close(variable)) return;
      if (position_ >= source_.size()) return;  // the parser reports the missing end
      const size_t space = after_space(position_);
      if (space > position_) {
        advance(space - position_);
      } else if (is_digit_char(source_[position_])) {
        number();
      } else if (source_[position_] == '\'' || source_[position_] == '"') {
        string();
      } else if (!name() && !symbol(closers)) {
        size_t next = position_;
        decode(source_, next);
        error(fmt::format("unexpected char '{}' at {}", source_.substr(position_, next - position_),
                          position_));
      }
    }
  }

  bool name() {
    size_t end = position_;
    while (end < source_.size()) {
      size_t next = end;
      if (!is_word(decode(source_, next))) break;
      end = next;
    }
    if (end == position_) return false;
    std::string text = source_.substr(position_, end - position_);
    if (!is_identifier(text)) error("Invalid character in identifier");
    add(TokenKind::kName, std::move(text));
    advance(end - position_);
    return true;
  }

  bool symbol(std::string& closers) {
    static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
    for (const std::string_view two : kTwo) {
      if (at(two)) {
        add(TokenKind::kOperator, std::string(two));
        advance(2);
        return true;
      }
    }
    const char c = source_[position_];
    if (kOne.find(c) == kNone) return false;
    if (c == '(' || c == '[' || c == '{') closers += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (closers.empty()) error(fmt::format("unexpected '{}'", c));
      if (closers.back() != c)
        error(fmt::format("unexpected '{}', expected '{}'", c, closers.back()));
      closers.pop_back();
    }
    add(TokenKind::kOperator, std::string(1, c));
    advance(1);
    return true;
  }

  // Returns the end of digits, each optionally after one '_'; start if there are none.
  size_t digits_end(size_t start, bool (*digit)(char)) const {
    size_t i = start;
    while (i < source_.size()) {
      const size_t next = source_[i] == '_' && i > start ? i + 1 : i;
      if (next >= source_.size() || !digit(source_[next])) break;
      i = next + 1;
    }
    return i;
  }

  // Returns the end of a float at the position, or 0.
  size_t float_end() const {
    if (position_ > 0 && source_[position_ - 1] == '.') return 0;
    size_t i = digits_end(position_, is_digit_char);
    bool is_float = false;
    if (i < source_.size() && source_[i] == '.') {
      const size_t end = digits_end(i + 1, is_digit_char);
      if (end == i + 1) return 0;
      is_float = true;
      i = end;
    }
    if (i < source_.size() && (source_[i] | 0x20) == 'e') {
      const size_t sign = sign_at(source_, i + 1) != 0 ? i + 2 : i + 1;
      const size_t end = digits_end(sign, is_digit_char);
      if (end > sign) return end;
    }
    return is_float ? i : 0;
  }

  void number() {
    const size_t end = float_end();
    std::string digits;
    if (end != 0) {
      add(TokenKind::kFloat, source_.substr(position_, end - position_));
      for (const char c : tokens_.back().text) digits += c == '_' ? "" : std::string(1, c);
      tokens_.back().real = locale_free_strtod(digits.c_str(), nullptr);
      return advance(end - position_);
    }
    int base = 10;
    size_t start = position_;
    const char letter = start + 1 < source_.size() && source_[start] == '0'
                            ? static_cast<char>(source_[start + 1] | 0x20)
                            : '\0';
    bool (*digit)(char) = is_digit_char;
    if (letter == 'x' || letter == 'o' || letter == 'b') {
      bool (*other)(char) = letter == 'x'   ? is_ascii_hex_digit
                            : letter == 'o' ? +[](char c) { return c >= '0' && c <= '7'; }
                                            : +[](char c) { return c == '0' || c == '1'; };
      size_t first = start + 2;
      if (first < source_.size() && source_[first] == '_') ++first;
      if (first < source_.size() && other(source_[first])) {
        base = letter == 'x' ? 16 : letter == 'o' ? 8 : 2;
        start = first;
        digit = other;
      }
    }
    if (base == 10 && source_[start] == '0') digit = +[](char c) { return c == '0'; };
    const size_t last = digits_end(start, digit);
    for (size_t i = start; i < last; ++i)
      digits += source_[i] == '_' ? "" : std::string(1, source_[i]);
    add(TokenKind::kInteger, source_.substr(position_, last - position_));
    const auto parsed =
        std::from_chars(digits.data(), digits.data() + digits.size(), tokens_.back().integer, base);
    if (parsed.ec != std::errc()) error(fmt::format("integer {} does not fit in 64 bits", digits));
    advance(last - position_);
  }

  void string() {
    const char mark = source_[position_];
    size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != mark) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) error(fmt::format("unexpected char {} at {}", mark, position_));
    add(TokenKind::kString,
        unescape(std::string_view(source_).substr(position_ + 1, end - position_ - 1)));
    advance(end + 1 - position_);
  }

  char32_t code_point(std::string_view text, size_t& i, size_t digits, int base) const {
    uint32_t value = 0;
    const std::string_view part = text.substr(std::min(i, text.size()), digits);
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), value, base);
    const auto used = static_cast<size_t>(parsed.ptr - part.data());
    if (used == 0 || (base == 16 && used != digits)) error("truncated escape in a string");
    if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
      error("illegal Unicode character in a string");
    i += used;
    return value;
  }

  // Decodes Python's unicode-escape; unknown escapes are kept.
  std::string unescape(std::string_view text) const {
    static constexpr std::string_view kLetters = "abfnrtv\\'\"", kMeanings = "\a\b\f\n\r\t\v\\'\"";
    std::string out;
    for (size_t i = 0; i < text.size();) {
      if (text[i] != '\\') {
        out += text[i++];
        continue;
      }
      const char c = text[++i];
      const size_t known = kLetters.find(c);
      if (known != kNone) {
        out += kMeanings[known];
        ++i;
      } else if (c == '\n') {
        ++i;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        append_utf8(out, code_point(text, ++i, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16));
      } else if (c >= '0' && c <= '7') {
        append_utf8(out, code_point(text, i, 3, 8));
      } else if (c == 'N') {
        error("\\N{...} is not supported in a string");
      } else if (static_cast<unsigned char>(c) >= 0x80) {
        // jinja2 escapes non-ASCII characters first, so that the backslash escapes the backslash of
        // that escape.
        const auto code = static_cast<uint32_t>(decode(text, i));
        out += code < 0x100     ? fmt::format("\\x{:02x}", code)
               : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                                : fmt::format("\\U{:08x}", code);
      } else {
        out += '\\';
        out += c;
        ++i;
      }
    }
    return out;
  }

  const std::string source_;
  std::vector<Token> tokens_;
  size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData: return "template data / text";
    case TokenKind::kVariableBegin: return "begin of print statement";
    case TokenKind::kVariableEnd: return "end of print statement";
    case TokenKind::kBlockBegin: return "begin of statement block";
    case TokenKind::kBlockEnd: return "end of statement block";
    case TokenKind::kString: return "string";
    case TokenKind::kInteger: return "integer";
    case TokenKind::kFloat: return "float";
    case TokenKind::kEnd: return "end of template";
    case TokenKind::kName:
    case TokenKind::kOperator: break;
  }
  return token.text;
}

}  // namespace penstock::jinja
