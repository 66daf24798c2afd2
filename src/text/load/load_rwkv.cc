// The vocabulary of RWKV's World models: tokens are bytes, and the longest one that fits is taken. Its
// list has lines of an id, a literal of Python (text or bytes) and a number of bytes.
#include <charconv>

#include "text/tokenizer_parts.h"
#include "text/unicode/unicode.h"
#include "text/vocab/byte_alphabet.h"
#include "text/vocab/word_piece.h"

namespace penstock {
namespace {

constexpr TokenId kEndOfText = 0;

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// Reads n hexadecimal digits of body from `at` on, and moves `at` behind them; -1: there are others.
int32_t read_hex(std::string_view body, size_t& at, int n) {
  int64_t value = 0;
  for (int i = 0; i < n; ++i, ++at) {
    const int digit = at < body.size() ? hex_digit(body[at]) : -1;
    if (digit < 0) return -1;
    value = value << 4 | digit;
  }
  return value < 0x110000 ? static_cast<int32_t>(value) : -1;
}

// Appends what the escape sequence stands for whose letter is at `at`, and moves `at` behind it.
bool append_escaped(std::string_view body, bool bytes, size_t& at, std::string& out) {
  const char letter = body[at++];
  switch (letter) {
    case 'n': out += '\n'; return true;
    case 'r': out += '\r'; return true;
    case 't': out += '\t'; return true;
    case 'x':
    case 'u':
    case 'U': break;
    default: out += letter; return true;
  }
  const int32_t code = read_hex(body, at, letter == 'x' ? 2 : letter == 'u' ? 4 : 8);
  if (code < 0) return false;
  if (bytes) {
    out += static_cast<char>(code & 0xff);
  } else {
    unicode::append(out, static_cast<char32_t>(code));
  }
  return true;
}

// Returns what the inside of a literal stands for; nullopt: it is none.
std::optional<std::string> unescaped(std::string_view body, bool bytes) {
  std::string out;
  for (size_t at = 0; at < body.size();) {
    if (body[at] != '\\') {
      out += body[at++];
    } else if (++at == body.size() || !append_escaped(body, bytes, at, out)) {
      return std::nullopt;
    }
  }
  return out;
}

std::optional<int> number_of(std::string_view digits) {
  int value = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  return whole && value >= 0 ? std::optional(value) : std::nullopt;
}

// Returns the token of a line; nullopt: the line is of another kind.
std::optional<TokenBytes> parse_line(std::string_view line) {
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == line.npos || last <= first) return std::nullopt;
  const std::optional<int> id = number_of(line.substr(0, first)),
                           size = number_of(line.substr(last + 1));
  std::string_view literal = line.substr(first + 1, last - first - 1);
  const bool bytes = literal.starts_with('b');
  literal.remove_prefix(bytes ? 1 : 0);
  const bool quoted = literal.size() >= 2 && (literal[0] == '\'' || literal[0] == '"') &&
                      literal.back() == literal[0];
  if (!id || !size || !quoted) return std::nullopt;
  auto text = unescaped(literal.substr(1, literal.size() - 2), bytes);
  if (!text || text->empty() || text->size() != static_cast<size_t>(*size)) return std::nullopt;
  return TokenBytes{std::move(*text), *id};
}

Result<TokenizerParts> make_rwkv(std::span<const TokenBytes> tokens) {
  TokenizerParts parts;
  Trie words;
  for (const TokenBytes& token : tokens) {
    RETURN_IF_ERROR(parts.vocabulary.add(token.id, to_byte_alphabet(token.bytes)));
    words.insert(token.bytes, token.id);
  }
  parts.pre_tokenizer.add_byte_level(false, false);
  parts.model = std::make_unique<LongestPieces>(std::move(words));
  parts.eos = parts.bos = kEndOfText;
  parts.special.push_back(kEndOfText);
  return parts;
}

}  // namespace

bool is_rwkv_list(std::string_view text) {
  std::string_view line = text.substr(0, text.find('\n'));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return parse_line(line).has_value();
}

Result<TokenizerParts> load_rwkv_list(std::string_view text) {
  std::vector<TokenBytes> tokens;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    auto token = parse_line(line);
    if (!token || token->id == kEndOfText)
      return errorf(ErrorCode::kCorruptFile,
                    "RWKV vocabulary: line {}: expected a positive id, a quoted token and its "
                    "number of bytes, got '{:.60}'",
                    number, line);
    tokens.push_back(std::move(*token));
  }
  return make_rwkv(tokens);
}

Result<TokenizerParts> load_rwkv_pieces(std::span<const ScoredPiece> pieces) {
  std::vector<TokenBytes> tokens;
  for (size_t id = 1; id < pieces.size(); ++id) {
    auto bytes = unescaped(pieces[id].text, true);
    if (!bytes)
      return errorf(ErrorCode::kCorruptFile,
                    "tokenizer.ggml.tokens: token {}: expected the inside of a bytes literal, got "
                    "'{:.60}'",
                    id, pieces[id].text);
    if (!bytes->empty()) tokens.push_back({std::move(*bytes), static_cast<TokenId>(id)});
  }
  ASSIGN_OR_RETURN(TokenizerParts parts, make_rwkv(tokens));
  const std::string& end = pieces[0].text;
  RETURN_IF_ERROR(parts.vocabulary.add(kEndOfText, end));
  parts.added.push_back({.id = kEndOfText, .content = end, .special = true});
  return parts;
}

}  // namespace penstock
