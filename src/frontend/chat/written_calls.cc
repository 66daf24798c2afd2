// Calls read by the description of how they are written.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "frontend/chat/exact_json.h"
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

// White space in the pattern stands for any. field: what the pattern's last field was, if it has one.
Match take(std::string_view pattern, std::string_view text, size_t& at, std::string_view* field = nullptr) {
  while (!pattern.empty()) {
    const std::string_view piece = next_piece(pattern);
    const size_t start = at;
    const bool is_field = piece == "{n}" || piece == "{id}";
    const Match match = is_field ? take_field(piece, text, at) : take_literal(piece, text, at);
    if (match != Match::kYes) return match;
    if (is_field && field != nullptr) *field = text.substr(start, at - start);
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
    Match match = take(before_, text_, at_, &field_);
    if (match == Match::kYes) match = name();
    if (match == Match::kYes)
      match = writing_.arguments == ArgumentForm::kParameters ? parameters(scan) : json(scan);
    if (match == Match::kMore) return CallText::more();
    if (match == Match::kNo) return CallText::not_a_call();
    return {CallText::Kind::kCalls, at_, {{std::string(name_), std::move(arguments_), id()}}};
  }

 private:
  std::string id() const {
    std::string id = writing_.id;
    for (const auto& [mark, by] :
         {std::pair("{name}", name_), std::pair("{n}", field_), std::pair("{id}", field_)}) {
      if (const size_t at = id.find(mark); at != std::string::npos) id.replace(at, std::strlen(mark), by);
    }
    return id;
  }

  // Up to where the text behind names first fits.
  Match name() {
    const size_t start = at_;
    for (size_t end = start;; ++end) {
      size_t behind = end;
      const Match match = take(writing_.name_end, text_, behind, &field_);
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
        arguments_ = dump_exact(arguments);
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
    const size_t start = at_;
    bool is_json = false;
    if (const Match match = name_end(is_json); match != Match::kYes) return match;
    const std::string_view name = text_.substr(start, name_stop_ - start);
    if (name.empty()) return Match::kNo;
    auto types = types_of(name);
    if (!marks.json_name_end.empty())
      types = is_json ? types.value_or(json_types::kAny) & ~json_types::kString : json_types::kString;
    const auto [close, behind] = close_of(types);
    if (close == std::string_view::npos) return Match::kMore;
    std::string_view raw = text_.substr(at_, close - at_);
    if (marks.name_end.ends_with('\n') && raw.starts_with('\n')) raw.remove_prefix(1);
    if (marks.close.starts_with('\n') && raw.ends_with('\n')) raw.remove_suffix(1);
    arguments[std::string(name)] = value(raw, types.value_or(json_types::kAny));
    at_ = behind;
    return Match::kYes;
  }

  // Moves at_ behind what follows a parameter's name, which ends at name_stop_. A line end of the mark is left.
  Match name_end(bool& is_json) {
    const ParameterMarks& marks = writing_.parameters;
    const auto without_line = [](std::string_view mark) {
      return mark.substr(0, mark.size() - (mark.ends_with('\n') ? 1 : 0));
    };
    const std::string_view ways[] = {without_line(marks.name_end), without_line(marks.json_name_end)};
    const size_t n_ways = ways[1].empty() ? 1 : 2, start = at_;
    for (name_stop_ = start;; ++name_stop_) {
      bool more = false;
      for (size_t way = 0; way < n_ways; ++way) {
        at_ = name_stop_;
        const Match match = take(ways[way], text_, at_);
        is_json = way == 1;
        if (match == Match::kYes) return match;
        more = more || match == Match::kMore;
      }
      if (more) return Match::kMore;
      if (name_stop_ - start > kMostName || text_[name_stop_] == '<') return Match::kNo;
    }
  }

  // Where the value at at_ ends, and where what follows it begins. The mark may stand in strings of lists and objects, where
  // such are expected. Models forget it: then the next parameter on a line of its own ends the value, or the end of all calls.
  std::pair<size_t, size_t> close_of(std::optional<JsonTypes> types) const {
    const std::string_view mark = without_space(writing_.parameters.close);
    size_t from = at_;
    const size_t start = skip_space(text_, at_);
    const std::string_view rest = text_.substr(start);
    const bool is_json = (rest.starts_with('[') && (types.value_or(0) & json_types::kArray) != 0) ||
                         (rest.starts_with('{') && (types.value_or(0) & json_types::kObject) != 0);
    if (is_json) {
      CallScan scan;
      const auto end = find_value_end(text_, start, scan);
      if (!end) return {std::string_view::npos, 0};
      from = *end;
    }
    const size_t close = text_.find(mark, from);
    const size_t next = std::min(text_.find("\n" + writing_.parameters.open, from), last_call_end(from));
    if (next < close) return {next, next};
    return {close, close + mark.size()};
  }
  // Where the call's end stands in front of the end of all calls.
  size_t last_call_end(size_t from) const {
    const std::string_view call = without_space(writing_.call_end), all = without_space(writing_.end);
    if (call.empty() || all.empty()) return std::string_view::npos;
    for (size_t at = from; (at = text_.find(call, at)) != std::string_view::npos; ++at) {
      if (text_.substr(skip_space(text_, at + call.size())).starts_with(all)) return at;
    }
    return std::string_view::npos;
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
    auto json = parse_exact(raw);
    // Some templates show models Python's words and lists.
    if ((types & kString) == 0 && !json) json = python_value(raw);
    if (!json || (json->is_string() && !is_number(*json))) return std::string(raw);
    const JsonTypes type = is_number(*json)     ? kNumber
                           : json->is_boolean() ? kBoolean
                           : json->is_null()    ? kNull
                           : json->is_array()   ? kArray
                                                : kObject;
    if ((types & kString) != 0 && (types & type) == 0) return std::string(raw);
    return *std::move(json);
  }

  static constexpr size_t kMostName = 256;

  const CallWriting& writing_;
  std::string_view text_;
  const ParameterTypes* types_;
  bool knows_mark_ = false;
  std::string before_;
  size_t at_ = 0, name_stop_ = 0;
  std::string_view name_, field_;
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
