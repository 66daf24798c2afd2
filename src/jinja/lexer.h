// Splits a template into tokens, with jinja2's white space control (trim_blocks and lstrip_blocks
// on).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.h"

namespace penstock::jinja {

enum class TokenKind : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 0;
  std::string text;  // data, name, decoded string or operator
  int64_t integer = 0;
  double real = 0;

  bool is(TokenKind k) const { return kind == k; }
  bool is_name(std::string_view name) const { return kind == TokenKind::kName && text == name; }
  bool is_operator(std::string_view symbol) const {
    return kind == TokenKind::kOperator && text == symbol;
  }
};

// The last token is kEnd. Throws Failure (TemplateSyntaxError). source must be valid UTF-8.
std::vector<Token> tokenize(std::string_view source);

std::string describe(const Token& token);

}  // namespace penstock::jinja
