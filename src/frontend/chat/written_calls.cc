// Reads calls by the description of their writing.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "frontend/chat/exact_json.h"
#include "frontend/chat/marked_parser.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;
using Step = CallStream::Step;

constexpr size_t kMostName = 256;

struct ParameterName {
  Match match = Match::kNo;
  std::string_view name = {};
  // end of the text after the name; a line end is not included
  size_t behind = 0;
  bool is_json = false;  // the mark of non-string values follows
};

// Reads a parameter's opening mark and name at `at`.
ParameterName parameter_name(const ParameterMarks& marks, std::string_view text, size_t at) {
  if (const Match match = take_pattern(marks.open, text, at); match != Match::kYes) return {match};
  const auto without_line = [](std::string_view mark) {
    return mark.substr(0, mark.size() - (mark.ends_with('\n') ? 1 : 0));
  };
  const std::string_view ways[] = {without_line(marks.name_end), without_line(marks.json_name_end)};
  const size_t n_ways = ways[1].empty() ? 1 : 2, start = at;
  for (size_t stop = start;; ++stop) {
    bool more = false;
    for (size_t way = 0; way < n_ways; ++way) {
      size_t behind = stop;
      const Match match = take_pattern(ways[way], text, behind);
      more = more || match == Match::kMore;
      if (match != Match::kYes) continue;
      const std::string_view name = text.substr(start, stop - start);
      return {name.empty() ? Match::kNo : Match::kYes, name, behind, way == 1};
    }
    if (more) return {Match::kMore};
    if (stop - start > kMostName || text[stop] == '<') return {Match::kNo};
  }
}

// Reads consecutive parameters. Strings are emitted incrementally, other values when complete,
// since their type decides how they are read.
class ParameterStream final : public ArgumentStream {
 public:
  // types: of the tool's parameters; null: unknown.
  ParameterStream(const CallFormat& format, const CallWriting& writing,
                  const ParameterTypes::mapped_type* types)
      : marks_(writing.parameters),
        call_end_(writing.call_end),
        all_end_(without_space(writing.end)),
        types_(types),
        value_ends_{std::string(without_space(marks_.close)), "\n" + marks_.open},
        call_marks_(format.close) {
    const std::string_view call = without_space(call_end_);
    if (!call.empty() && !all_end_.empty()) value_ends_.emplace_back(call);
    call_marks_.insert(call_marks_.end(), format.open.begin(), format.open.end());
    known_marks_ = {marks_.open, std::string(call)};
  }

  Step read(std::string& text, std::string& arguments) override {
    for (;;) {
      const auto step = form_ == Form::kNone ? between(text, arguments) : value(text, arguments);
      if (step) return *step;
    }
  }

 private:
  // How the open value is read; kNone: no value is open.
  enum class Form : uint8_t { kNone, kUndecided, kText, kPerhapsText, kBrackets, kHeld };

  // nullopt: goes on.
  std::optional<Step> between(std::string& text, std::string& arguments) {
    text.erase(0, skip_space(text));
    size_t end = 0;
    const Match over = take_pattern(call_end_, text, end);
    if (over == Match::kYes) return finish(text, end, arguments);
    const ParameterName next = parameter_name(marks_, text, 0);
    if (next.match == Match::kYes) {
      open_value(next);
      text.erase(0, next.behind);
      return std::nullopt;
    }
    if (over == Match::kMore || next.match == Match::kMore) return Step::kMore;
    return skip(text, arguments);
  }

  Step finish(std::string& text, size_t end, std::string& arguments) {
    text.erase(0, end);
    arguments += any_ ? "}" : "{}";
    return Step::kDone;
  }

  // Skips text between parameters, up to the next parameter, the end of the call, or a mark that
  // opens or closes calls.
  std::optional<Step> skip(std::string& text, std::string& arguments) {
    const std::string_view all = text;
    const size_t known = first_mark(all.substr(1), known_marks_).first,
                 other = first_mark(all, call_marks_).first;
    if (other != std::string::npos && (known == std::string::npos || other <= known))
      return finish(text, other, arguments);
    if (known != std::string::npos) {
      text.erase(0, known + 1);
      return std::nullopt;
    }
    text.erase(0, all.size() - std::max(held_back(all.substr(1), known_marks_),
                                        held_back(all, call_marks_)));
    return Step::kMore;
  }

  void open_value(const ParameterName& name) {
    using namespace json_types;
    key_ = name.name;
    known_types_.reset();
    if (const auto known = types_ != nullptr ? types_->find(name.name)
                                             : ParameterTypes::mapped_type::const_iterator();
        types_ != nullptr && known != types_->end())
      known_types_ = known->second.types;
    if (!marks_.json_name_end.empty())
      known_types_ = name.is_json ? known_types_.value_or(kAny) & ~kString : kString;
    form_ = known_types_ == kString ? Form::kText : Form::kUndecided;
    scan_ = {};
    searched_ = 0;
    given_ = false;
    quote_ = marks_.quote.empty() ? Quote::kNone : Quote::kPerhaps;
  }

  // Removes the further mark in front of a value; the one behind it then ends the value.
  void open_quote(std::string& text) {
    const size_t start = skip_some_space(text);
    const bool quoted = text.compare(start, marks_.quote.size(), marks_.quote) == 0;
    if (!quoted && may_become(std::string_view(text).substr(start), marks_.quote)) return;
    quote_ = quoted ? Quote::kOpen : Quote::kNone;
    if (quoted) text.erase(0, start + marks_.quote.size());
    value_ends_[0] =
        (quoted ? marks_.unquote : std::string()) + std::string(without_space(marks_.close));
  }

  std::optional<Step> value(std::string& text, std::string& arguments) {
    using namespace json_types;
    if (quote_ == Quote::kPerhaps) open_quote(text);
    if (quote_ == Quote::kPerhaps) return Step::kMore;
    if (form_ == Form::kUndecided) {
      const size_t start = skip_some_space(text);
      if (start == text.size()) return Step::kMore;
      const JsonTypes known = known_types_.value_or(0);
      const bool brackets = (text[start] == '[' && (known & kArray) != 0) ||
                            (text[start] == '{' && (known & kObject) != 0);
      form_ = brackets                   ? Form::kBrackets
              : (types() & kString) != 0 ? Form::kPerhapsText
                                         : Form::kHeld;
    }
    // The marks may occur in strings of lists and objects.
    if (form_ == Form::kBrackets) {
      const auto end = find_value_end(text, skip_some_space(text), scan_);
      if (!end) return Step::kMore;
      searched_ = *end;
      form_ = Form::kHeld;
    }
    const ValueEnd end = find_end(text);
    if (form_ == Form::kPerhapsText &&
        is_parameter_text(std::string_view(text).substr(0, end.at), types()))
      form_ = Form::kText;
    if (form_ == Form::kText) give_text(text, end, arguments);
    if (!end.found) return Step::kMore;
    if (form_ != Form::kText) {
      begin_member(arguments);
      arguments += dump_exact(
          parameter_value(without_lines(std::string_view(text).substr(0, end.at)), types()));
    }
    text.erase(0, end.behind - (form_ == Form::kText ? end.at : 0));
    form_ = Form::kNone;
    return std::nullopt;
  }

  struct ValueEnd {
    // start of the end mark; not found: length of the text that is certainly value
    size_t at = 0;
    size_t behind = 0;  // end of the mark
    bool found = false;
  };

  // Finds the end of a value. Models omit closing marks: then the next parameter on its own line,
  // or the end of all calls, ends the value.
  ValueEnd find_end(std::string_view text) {
    for (;;) {
      const std::string_view rest = text.substr(searched_);
      const auto [hit, mark] = first_mark(rest, value_ends_);
      if (hit == std::string::npos) {
        searched_ = text.size() - held_back(rest, value_ends_);
        return {searched_, searched_};
      }
      searched_ += hit;
      if (mark == 0) return {searched_, searched_ + value_ends_[0].size(), true};
      if (mark == 1) return {searched_, searched_, true};
      const size_t behind = skip_some_space(text, searched_ + value_ends_[mark].size());
      if (text.substr(behind).starts_with(all_end_)) return {searched_, searched_, true};
      if (may_become(text.substr(behind), all_end_)) return {searched_, searched_};
      ++searched_;
    }
  }

  // A line end after the opening mark or before the closing mark is part of the mark.
  std::string_view without_lines(std::string_view raw) const {
    if (!given_ && marks_.name_end.ends_with('\n') && raw.starts_with('\n')) raw.remove_prefix(1);
    if (marks_.close.starts_with('\n') && raw.ends_with('\n')) raw.remove_suffix(1);
    return raw;
  }

  // Emits and removes the certain part of a string.
  void give_text(std::string& text, const ValueEnd& end, std::string& arguments) {
    std::string_view piece = std::string_view(text).substr(0, end.at);
    if (!end.found && marks_.close.starts_with('\n') && piece.ends_with('\n'))
      piece.remove_suffix(1);
    const size_t n = end.found ? end.at : piece.size();
    if (n == 0 && !end.found) return;
    if (!given_) {
      begin_member(arguments);
      arguments += '"';
    }
    if (end.found) {
      piece = without_lines(piece);
    } else if (!given_ && marks_.name_end.ends_with('\n') && piece.starts_with('\n')) {
      piece.remove_prefix(1);
    }
    given_ = true;
    for (const char c : piece) append_escaped(c, arguments);
    if (end.found) arguments += '"';
    text.erase(0, n);
    searched_ -= n;
  }

  void begin_member(std::string& arguments) {
    arguments += std::exchange(any_, true) ? ',' : '{';
    arguments += Json(key_).dump(-1, ' ', false, Json::error_handler_t::replace) + ":";
  }

  JsonTypes types() const { return known_types_.value_or(json_types::kAny); }

  const ParameterMarks& marks_;
  const std::string_view call_end_, all_end_;
  const ParameterTypes::mapped_type* types_;
  // Marks that end a value: its closing mark, the next parameter on its own line, and the end of
  // the call before the end of all calls.
  std::vector<std::string> value_ends_;
  std::vector<std::string> call_marks_, known_marks_;
  std::string key_;                       // of the open value
  std::optional<JsonTypes> known_types_;  // of the open value
  Form form_ = Form::kNone;
  enum class Quote : uint8_t { kNone, kPerhaps, kOpen };
  Quote quote_ = Quote::kNone;  // further marks around the open value
  CallScan scan_;
  size_t searched_ = 0;  // no end mark begins before this offset
  bool given_ = false;   // part of the string was emitted
  bool any_ = false;     // a parameter was emitted
};

// Reads the head of a call in one writing. Methods return the match and advance the position.
class WrittenHead {
 public:
  WrittenHead(const CallOpening& opening, const CallWriting& writing, std::string_view text)
      : opening_(opening), writing_(writing), text_(text) {}

  CallHead read() {
    const std::string before = writing_.begin + writing_.name_begin;
    const size_t hit = before.find(opening_.mark);
    if (hit == std::string::npos) return {Match::kNo};
    at_ = skip_space(text_);
    Match match = take_pattern(std::string_view(before).substr(hit + opening_.mark.size()), text_,
                               at_, &field_);
    if (match == Match::kYes) match = name();
    if (match != Match::kYes) return {match};
    return arguments();
  }

 private:
  CallHead arguments() {
    const bool is_json = writing_.arguments == ArgumentForm::kJson;
    at_ = skip_space(text_, at_);
    ToolCall call{std::string(name_), {}, id()};
    if (writing_.arguments == ArgumentForm::kElements) {
      return {Match::kYes, at_, std::move(call),
              element_arguments(opening_.format, writing_, types())};
    }
    size_t end = at_;
    const Match over = without_space(writing_.call_end).empty()
                           ? Match::kNo
                           : take_pattern(writing_.call_end, text_, end);
    if (over == Match::kYes) return {over, end, std::move(call)};
    const Match match =
        is_json ? find_object(text_, at_) : parameter_name(writing_.parameters, text_, at_).match;
    if (match != Match::kYes) return {over == Match::kMore ? over : match};
    if (is_json) return {match, at_, std::move(call), json_arguments(writing_.call_end)};
    return {match, at_, std::move(call),
            std::make_unique<ParameterStream>(opening_.format, writing_, types())};
  }

  // Types of the tool's parameters; null: not known.
  const ParameterTypes::mapped_type* types() const {
    if (opening_.types == nullptr) return nullptr;
    const auto tool = opening_.types->find(name_);
    return tool == opening_.types->end() ? nullptr : &tool->second;
  }

  std::string id() const {
    std::string id = writing_.id;
    for (const auto& [mark, by] :
         {std::pair("{name}", name_), std::pair("{n}", field_), std::pair("{id}", field_)}) {
      if (const size_t at = id.find(mark); at != std::string::npos)
        id.replace(at, std::strlen(mark), by);
    }
    return id;
  }

  // Reads up to the first match of the text after names.
  Match name() {
    const size_t start = at_;
    for (size_t end = start;; ++end) {
      size_t behind = end;
      const Match match = take_pattern(writing_.name_end, text_, behind, &field_);
      if (match == Match::kMore) return match;
      name_ = without_space(text_.substr(start, end - start));
      // decided by the following parameter or call end
      const bool blank = is_space_only(writing_.name_end);
      if (match == Match::kYes && (!blank || text_.substr(behind).starts_with('<'))) {
        at_ = behind;
        return is_function_name(name_) ? Match::kYes : Match::kNo;
      }
      if (end == text_.size())
        return is_function_name(name_) || name_.empty() ? Match::kMore : Match::kNo;
      const bool in_name =
          is_function_name(text_.substr(end, 1)) || is_space_only(text_.substr(end, 1));
      if (!in_name || end - start > kMostName) return Match::kNo;
    }
  }

  const CallOpening& opening_;
  const CallWriting& writing_;
  std::string_view text_, name_, field_;
  size_t at_ = 0;
};

// Returns the head of the writing that matches first.
CallHead written_head(const CallOpening& opening, std::string_view text) {
  CallHead first{Match::kNo};
  for (const CallWriting& writing : opening.format.written) {
    CallHead head = WrittenHead(opening, writing, text).read();
    const bool better = head.match == Match::kYes
                            ? first.match != Match::kYes || head.at < first.at
                            : head.match == Match::kMore && first.match == Match::kNo;
    if (better) first = std::move(head);
  }
  return first;
}

std::unique_ptr<CallStream> stream_written(const CallOpening& opening) {
  return headed_stream([&format = opening.format, mark = std::string(opening.mark),
                        types = opening.types](std::string_view text) {
    return written_head({format, mark, types}, text);
  });
}

}  // namespace

nlohmann::ordered_json parameter_value(std::string_view raw, JsonTypes types) {
  using namespace json_types;
  if (types == kString) return std::string(raw);
  auto json = parse_exact(raw);
  // Some templates show Python words and lists to the model.
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

bool is_parameter_text(std::string_view begun, JsonTypes types) {
  using namespace json_types;
  begun.remove_prefix(skip_some_space(begun));
  if (begun.empty()) return false;
  const char c = begun[0];
  if (c == '[') return (types & kArray) == 0;
  if (c == '{') return (types & kObject) == 0;
  for (const auto& [word, type] : {std::pair<std::string_view, JsonTypes>{"null", kNull},
                                   {"true", kBoolean},
                                   {"false", kBoolean}}) {
    if (c != word[0] || (types & type) == 0) continue;
    return !may_become(begun, word) &&
           !(begun.starts_with(word) && skip_some_space(begun, word.size()) == begun.size());
  }
  const bool number = c == '-' || (c >= '0' && c <= '9');
  return !number || (types & kNumber) == 0 || begun.size() > kMostUndecided ||
         begun.find_first_not_of("0123456789+-.eE \n\t\r") != std::string_view::npos;
}

const CallReading kWrittenCalls{stream_written};

}  // namespace penstock
