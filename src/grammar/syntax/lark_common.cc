#include "grammar/syntax/lark_common.h"

#include <algorithm>

namespace penstock::grammar {
namespace {

struct Terminal {
  std::string_view name, pattern;
};

// What Lark's module `common` allows; where its expressions are lazy, as what they come to.
constexpr Terminal kTerminals[] = {
    {"CNAME", "[_A-Za-z][_A-Za-z0-9]*"},
    {"CPP_COMMENT", R"(//[^\n]*)"},
    {"CR", R"(\r)"},
    {"C_COMMENT", R"(/\*([^*]|\*+[^*/])*\*+/)"},
    {"DECIMAL", R"([0-9]+\.[0-9]*|\.[0-9]+)"},
    {"DIGIT", "[0-9]"},
    {"ESCAPED_STRING", R"("([^"\\\n]|\\[^\n])*")"},
    {"FLOAT", R"(([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"},
    {"HEXDIGIT", "[0-9A-Fa-f]"},
    {"INT", "[0-9]+"},
    {"LCASE_LETTER", "[a-z]"},
    {"LETTER", "[A-Za-z]"},
    {"LF", R"(\n)"},
    {"NEWLINE", R"((\r?\n)+)"},
    {"NUMBER", R"(([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?)"},
    {"SH_COMMENT", R"(#[^\n]*)"},
    {"SIGNED_FLOAT", R"([+-]?(([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+))"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"SIGNED_NUMBER", R"([+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?)"},
    {"SQL_COMMENT", R"(--[^\n]*)"},
    {"UCASE_LETTER", "[A-Z]"},
    {"WORD", "[A-Za-z]+"},
    {"WS", R"([ \t\f\r\n]+)"},
    {"WS_INLINE", R"([ \t]+)"},
};

}  // namespace

std::string_view lark_common_terminal(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTerminals), std::end(kTerminals),
                                   [&](const Terminal& t) { return t.name == name; });
  return found == std::end(kTerminals) ? "" : found->pattern;
}

std::string lark_common_names() {
  std::string names;
  for (const Terminal& terminal : kTerminals) {
    if (!names.empty()) names += ", ";
    names += terminal.name;
  }
  return names;
}

}  // namespace penstock::grammar
