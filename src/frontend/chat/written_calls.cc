// Calls read by the description of how they are written.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "frontend/chat/marked_parser.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

enum class Match : uint8_t { kYes, kNo, kMore };

// One piece of a writing at `at`, which moves behind it.
Match take_field(std::string_view piece, std::string_view text, size_t& at) {
  const size_t start = at;
  while (at < text.size() && is_letter_or_digit(text[at]) &&
         (piece != "{n}" || (text[at] >= '0' && text[at] <= '9')))
    ++at;
  if (at == text.size()) return Match::kMore;
  return at > start ? Match::kYes : Match::kNo;
}

Match take_literal(std::string_view literal, std::string_view text, size_t& at) {
  for (size_t i = 0; i < literal.size();) {
    if (const size_t next = skip_space(literal, i); next > i) {
      i = next;
      at = skip_space(text, at);
      continue;
    }
    if (at == text.size()) return Match::kMore;
    if (text[at++] != literal[i++]) return Match::kNo;
  }
  return Match::kYes;
}

// White space in the pattern stands for any.
Match take(std::string_view pattern, std::string_view text, size_t& at) {
  while (!pattern.empty()) {
    const std::string_view piece = next_piece(pattern);
    const Match match =
        piece == "{n}" || piece == "{id}" ? take_field(piece, text, at) : take_literal(piece, text, at);
    if (match != Match::kYes) return match;
  }
  return Match::kYes;
}

std::string_view without_space(std::string_view text) {
  text.remove_prefix(skip_space(text));
  while (!text.empty() && is_space_only(text.substr(text.size() - 1))) text.remove_suffix(1);
  return text;
}

// Reads one call of one writing. Every method tells how it went; the position is behind what was taken.
class WrittenCall {
 public:
  WrittenCall(const CallWriting& writing, std::string_view mark, std::string_view text,
              const ParameterTypes* types)
      : writing_(writing), text_(text), types_(types) {
    const std::string before = writing.begin + writing.name_begin;
    const size_t hit = before.find(mark);
    knows_mark_ = hit != std::string::npos;
    if (knows_mark_) before_ = before.substr(hit + mark.size());
  }

  CallText read(CallScan& scan) {
    if (!knows_mark_) return CallText::not_a_call();
    at_ = skip_space(text_);
    Match match = take(before_, text_, at_);
    if (match == Match::kYes) match = name();
    if (match == Match::kYes)
      match = writing_.arguments == ArgumentForm::kParameters ? parameters(scan) : json(scan);
    if (match == Match::kMore) return CallText::more();
    if (match == Match::kNo) return CallText::not_a_call();
    return {CallText::Kind::kCalls, at_, {{std::string(name_), std::move(arguments_)}}};
  }

 private:
  // Up to where the text behind names first fits.
  Match name() {
    const size_t start = at_;
    for (size_t end = start;; ++end) {
      size_t behind = end;
      const Match match = take(writing_.name_end, text_, behind);
      if (match == Match::kMore) return match;
      name_ = without_space(text_.substr(start, end - start));
      const bool blank = is_space_only(writing_.name_end);  // a parameter or the call's end tells then
      if (match == Match::kYes && (!blank || text_.substr(behind).starts_with('<'))) {
        at_ = behind;
        return is_function_name(name_) ? Match::kYes : Match::kNo;
      }
      if (end == text_.size()) return is_function_name(name_) || name_.empty() ? Match::kMore : Match::kNo;
      const bool in_name = is_function_name(text_.substr(end, 1)) || is_space_only(text_.substr(end, 1));
      if (!in_name || end - start > kMostName) return Match::kNo;
    }
  }
  Match json(CallScan& scan) {
    at_ = skip_space(text_, at_);
    size_t end = at_;
    const bool none =
        !without_space(writing_.call_end).empty() && take(writing_.call_end, text_, end) == Match::kYes;
    if (none) {
      arguments_ = "{}";
      at_ = end;
      return Match::kYes;
    }
    if (at_ == text_.size()) return Match::kMore;
    if (text_[at_] != '{') return may_go_on(writing_.call_end) ? Match::kMore : Match::kNo;
    CallScan reading = scan;
    const auto value_end = find_value_end(text_, at_, reading);
    if (!value_end) {
      scan = reading;
      return Match::kMore;
    }
    const auto parsed = arguments_of_json(text_.substr(at_, *value_end - at_));
    if (!parsed) return Match::kNo;
    arguments_ = *parsed;
    at_ = *value_end;
    return take(writing_.call_end, text_, at_);
  }
  bool may_go_on(std::string_view pattern) const {
    size_t at = at_;
    return take(pattern, text_, at) == Match::kMore;
  }

  // Nothing more can be said of them before the end of a value or of the call has come.
  Match parameters(CallScan& scan) {
    const std::string_view last = without_space(writing_.call_end);
    if (text_.find(last, std::max(at_, scan.position)) == std::string_view::npos && !refused()) {
      scan.position = std::max(at_, text_.size() - std::min(text_.size(), last.size() - 1));
      return Match::kMore;
    }
    Json arguments = Json::object();
    for (;;) {
      at_ = skip_space(text_, at_);
      size_t end = at_;
      const Match over = take(writing_.call_end, text_, end);
      if (over == Match::kYes) {
        at_ = end;
        arguments_ = arguments.dump(-1, ' ', false, Json::error_handler_t::replace);
        return over;
      }
      const Match one = parameter(arguments);
      if (one == Match::kNo && over == Match::kMore) return over;
      if (one == Match::kMore) scan.position = text_.size() - std::min(text_.size(), last.size() - 1);
      if (one != Match::kYes) return one;
    }
  }
  // Whether what has come is neither a parameter nor the call's end.
  bool refused() const {
    size_t at = skip_space(text_, at_), end = at;
    return take(writing_.parameters.open, text_, at) == Match::kNo &&
           take(writing_.call_end, text_, end) == Match::kNo;
  }

  Match parameter(Json& arguments) {
    const ParameterMarks& marks = writing_.parameters;
    if (const Match match = take(marks.open, text_, at_); match != Match::kYes) return match;
    const bool own_line = marks.name_end.ends_with('\n');
    const std::string_view name_end =
        std::string_view(marks.name_end).substr(0, marks.name_end.size() - (own_line ? 1 : 0));
    const size_t start = at_;
    size_t end = start;
    for (;; ++end) {
      at_ = end;
      const Match match = take(name_end, text_, at_);
      if (match == Match::kMore) return match;
      if (match == Match::kYes) break;
      if (end - start > kMostName || text_[end] == '<') return Match::kNo;
    }
    const std::string_view name = text_.substr(start, end - start);
    if (name.empty()) return Match::kNo;
    const auto types = types_of(name);
    const std::string_view mark = without_space(marks.close);
    const size_t close = close_of(mark, types);
    if (close == std::string_view::npos) return Match::kMore;
    std::string_view raw = text_.substr(at_, close - at_);
    if (own_line && raw.starts_with('\n')) raw.remove_prefix(1);
    if (marks.close.starts_with('\n') && raw.ends_with('\n')) raw.remove_suffix(1);
    arguments[std::string(name)] = value(raw, types.value_or(json_types::kAny));
    at_ = close + mark.size();
    return Match::kYes;
  }

  // Where the value at at_ ends. The mark may stand in strings of lists and objects, where such are expected.
  size_t close_of(std::string_view mark, std::optional<JsonTypes> types) const {
    size_t from = at_;
    const size_t start = skip_space(text_, at_);
    const std::string_view rest = text_.substr(start);
    const bool is_json = (rest.starts_with('[') && (types.value_or(0) & json_types::kArray) != 0) ||
                         (rest.starts_with('{') && (types.value_or(0) & json_types::kObject) != 0);
    if (is_json) {
      CallScan scan;
      const auto end = find_value_end(text_, start, scan);
      if (!end) return std::string_view::npos;
      from = *end;
    }
    return text_.find(mark, from);
  }

  // nullopt: nothing is known.
  std::optional<JsonTypes> types_of(std::string_view parameter) const {
    if (types_ == nullptr) return std::nullopt;
    const auto tool = types_->find(name_);
    if (tool == types_->end()) return std::nullopt;
    const auto known = tool->second.find(parameter);
    return known == tool->second.end() ? std::nullopt : std::optional(known->second);
  }

  // JSON of the types that are expected, else a string.
  static Json value(std::string_view raw, JsonTypes types) {
    using namespace json_types;
    if (types == kString) return std::string(raw);
    Json json = bounded_json<Json>(raw);
    if ((types & kString) == 0 && json.is_discarded()) {  // some templates show models Python's words
      const std::string_view word = without_space(raw);
      if (word == "True" || word == "False") json = word == "True";
      if (word == "None") json = nullptr;
    }
    if (json.is_discarded() || json.is_string()) return std::string(raw);
    const JsonTypes type = json.is_number()    ? kNumber
                           : json.is_boolean() ? kBoolean
                           : json.is_null()    ? kNull
                           : json.is_array()   ? kArray
                                               : kObject;
    if ((types & kString) != 0 && (types & type) == 0) return std::string(raw);
    return json;
  }

  static constexpr size_t kMostName = 256;

  const CallWriting& writing_;
  std::string_view text_;
  const ParameterTypes* types_;
  bool knows_mark_ = false;
  std::string before_;
  size_t at_ = 0;
  std::string_view name_;
  std::string arguments_;
};

}  // namespace

CallText read_written_call(const CallFormat& format, std::string_view mark, std::string_view text,
                           const ParameterTypes* types, CallScan& scan) {
  CallText result = CallText::not_a_call();
  std::optional<CallScan> next;
  for (const CallWriting& writing : format.written) {
    CallScan own = scan;
    CallText read = WrittenCall(writing, mark, text, types).read(own);
    if (read.kind == CallText::Kind::kCalls) return read;
    if (read.kind != CallText::Kind::kMore) continue;
    result = std::move(read);
    next = !next || *next == own ? own : CallScan{};
  }
  if (next) scan = *next;
  return result;
}

}  // namespace penstock
