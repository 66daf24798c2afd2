// Parsing of JSON from outside, files and replies: nesting is bounded, because operations on a
// value (copying, dumping, checking) recurse on the stack. Bodies of requests have a parser of
// their own (server/api/json_reader.h), which bounds memory too. tools/check_layers.py checks that
// all other code uses this file.
#pragma once
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/ordered_json.h"
#include "base/result.h"

namespace penstock {

inline constexpr int kMaxJsonNesting = 256;  // greatest depth of nested lists and objects

// Whether the depth of nested lists and objects in a JSON text is at most `most`; comments are
// skipped. Accepts any text.
inline bool nests_within(std::string_view text, int most) {
  // Returns the position of the last byte of the comment that starts at `slash`; `slash` itself
  // when there is none.
  const auto end_of_comment = [text](size_t slash) {
    const bool line = text.substr(slash, 2) == "//", block = text.substr(slash, 2) == "/*";
    if (!line && !block) return slash;
    const size_t end = line ? text.find('\n', slash) : text.find("*/", slash + 2);
    return end == std::string_view::npos ? text.size() : end + (line ? 0 : 1);
  };
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '[':
      case '{':
        if (++depth > most) return false;
        break;
      case ']':
      case '}': --depth; break;
      case '"':
        for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\' ? 1 : 0;
        break;
      case '/': i = end_of_comment(i); break;
      default: break;
    }
  }
  return true;
}

// Parses the text; the result is_discarded() when it is not JSON or nests too deeply. The work is
// linear in the text, but for a logarithm of an object's members.
template <class Json = nlohmann::json>
Json bounded_json(std::string_view text) {
  if (!nests_within(text, kMaxJsonNesting)) return Json(Json::value_t::discarded);
  if constexpr (std::is_same_v<Json, nlohmann::ordered_json>)
    return parse_ordered(text);
  else
    return Json::parse(text, nullptr, false);
}

// Describes where a text is not JSON. The parser's own message is not used, since it quotes the
// text, which may be any file.
inline std::string json_error_place(const std::exception& error) {
  const auto* const place = dynamic_cast<const nlohmann::json::parse_error*>(&error);
  return place == nullptr
             ? "expected JSON whose numbers are in range"
             : fmt::format("expected JSON, got something else at byte {}", place->byte);
}

// Parses the text as bounded_json() does, with an error that says why it failed. Errors: `code`;
// the message starts with `where`.
template <class Json = nlohmann::json>
Result<Json> read_bounded_json(std::string_view text, ErrorCode code, std::string_view where,
                               int most = kMaxJsonNesting, bool with_comments = false) {
  if (!nests_within(text, most)) return errorf(code, "{}: nested deeper than {}", where, most);
  try {
    return Json::parse(text, nullptr, true, with_comments);
  } catch (const typename Json::exception& error) {
    return errorf(code, "{}: {}", where, json_error_place(error));
  }
}

}  // namespace penstock
