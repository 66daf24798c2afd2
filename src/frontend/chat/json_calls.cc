// Calls written as JSON.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "frontend/chat/exact_json.h"
#include "frontend/chat/marked_parser.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

// Accepts an object of arguments, or a string with it, as some models write.
std::optional<std::string> arguments_text(const Json& json) {
  if (json.is_object()) return dump_exact(json);
  if (json.is_null()) return "{}";
  if (!json.is_string()) return std::nullopt;
  const auto inner = parse_exact(json.get_ref<const std::string&>());
  return inner && inner->is_object() ? std::optional(dump_exact(*inner)) : std::nullopt;
}

std::optional<ToolCall> call_of(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  if (const auto inner = json.find("function"); inner != json.end() && inner->is_object())
    return call_of(*inner);
  auto name = json.find("name");
  for (const char* other : {"function", "tool_name"}) {
    if (name == json.end()) name = json.find(other);
  }
  if (name == json.end() || !name->is_string() || name->get_ref<const std::string&>().empty())
    return std::nullopt;
  ToolCall call{*name, "{}"};
  for (const char* key : {"arguments", "parameters", "args"}) {
    const auto found = json.find(key);
    if (found == json.end()) continue;
    const auto text = arguments_text(*found);
    if (!text) return std::nullopt;
    call.arguments = *text;
    break;
  }
  return call;
}

}  // namespace

std::optional<std::vector<ToolCall>> calls_of_json(std::string_view text) {
  const auto json = parse_exact(text);
  if (!json) return std::nullopt;
  std::vector<ToolCall> calls;
  if (json->is_array()) {
    for (const Json& item : *json) {
      auto call = call_of(item);
      if (!call) return std::nullopt;
      calls.push_back(std::move(*call));
    }
  } else if (auto call = call_of(*json)) {
    calls.push_back(std::move(*call));
  }
  if (calls.empty()) return std::nullopt;
  return calls;
}

bool is_only_call(std::string_view text) {
  const auto json = parse_exact(text);
  if (!json) return true;
  const auto is_call = [](const Json& one) {
    return one.is_object() && one.size() == 2 && one.contains("name") &&
           (one.contains("arguments") || one.contains("parameters"));
  };
  return json->is_array() ? std::ranges::all_of(*json, is_call) : is_call(*json);
}

std::optional<std::string> arguments_of_json(std::string_view text) {
  const auto json = parse_exact(text);
  return json && json->is_object() ? std::optional(dump_exact(*json)) : std::nullopt;
}

std::optional<ToolCall> keyed_call(const Json& json) {
  if (!json.is_object() || json.size() != 1 || json.begin().key().empty()) return std::nullopt;
  auto arguments = arguments_text(json.front());
  if (!arguments) return std::nullopt;
  return ToolCall{json.begin().key(), *std::move(arguments)};
}

namespace {

CallText read_json_calls(std::string_view text, CallScan& scan) {
  const size_t start = skip_some_space(text);
  if (start == text.size()) return CallText::more();
  if (text[start] != '{' && text[start] != '[') return CallText::not_a_call();
  const auto end = find_value_end(text, start, scan);
  if (!end) return CallText::more();
  auto calls = calls_of_json(text.substr(start, *end - start));
  if (!calls) return CallText::not_a_call();
  return {CallText::Kind::kCalls, *end, std::move(*calls)};
}

// [{"name": {…}}, …]
CallText read_keyed_calls(std::string_view text, CallScan& scan) {
  const size_t start = skip_some_space(text);
  if (start == text.size()) return CallText::more();
  if (text[start] != '[') return CallText::not_a_call();
  const auto end = find_value_end(text, start, scan);
  if (!end) return CallText::more();
  const auto list = parse_exact(text.substr(start, *end - start));
  if (!list || !list->is_array() || list->empty()) return CallText::not_a_call();
  CallText result{CallText::Kind::kCalls, *end, {}};
  for (const Json& item : *list) {
    auto call = keyed_call(item);
    if (!call) return CallText::not_a_call();
    result.calls.push_back(*std::move(call));
  }
  return result;
}

// Reads consecutive JSON values up to the closing mark, which may also occur inside strings.
CallText read_json_lines(std::string_view text, CallScan& scan) {
  constexpr std::string_view kClose = "</tool_calls>";
  const size_t start = skip_some_space(text);
  if (start < text.size() && text[start] != '{') return CallText::not_a_call();
  for (;;) {
    const size_t close = text.find(kClose, scan.position);
    if (close == std::string_view::npos) {
      scan.position = text.size() - std::min(text.size(), kClose.size() - 1);
      return CallText::more();
    }
    CallText result{CallText::Kind::kCalls, close, {}};
    size_t at = start;
    while (at < close) {
      CallScan value;
      const auto end = find_value_end(text.substr(0, close), at, value);
      if (!end) break;
      auto calls = calls_of_json(text.substr(at, *end - at));
      if (!calls) return CallText::not_a_call();
      std::ranges::move(*calls, std::back_inserter(result.calls));
      at = skip_space(text, *end);
    }
    if (at == close) return result.calls.empty() ? CallText::not_a_call() : result;
    scan.position = close + 1;
  }
}

// Reads the head of [{"name": …}, …] or name[CALL_ID]id[ARGS]{…}; both marks are optional.
CallHead mistral_head(std::string_view text) {
  const size_t start = skip_space(text);
  if (start == text.size()) return {Match::kMore};
  const size_t name_end = text.find_first_of("[{", start);
  const std::string_view name = text.substr(start, std::min(name_end, text.size()) - start);
  if (!is_function_name(name)) return {Match::kNo};
  if (name_end == std::string_view::npos) return {Match::kMore};
  size_t at = name_end;
  constexpr std::string_view kId = "[CALL_ID]", kArguments = "[ARGS]";
  const std::string_view rest = text.substr(at);
  if (may_become(rest, kId) || may_become(rest, kArguments)) return {Match::kMore};
  std::string id;
  if (rest.starts_with(kId)) {
    const size_t id_begin = at + kId.size();
    at = text.find_first_of("[{", id_begin);
    if (at == std::string_view::npos || may_become(text.substr(at), kArguments))
      return {Match::kMore};
    id = text.substr(id_begin, at - id_begin);
    if (!is_short_call_id(id)) id.clear();
  }
  if (text.substr(at).starts_with(kArguments)) at += kArguments.size();
  const Match match = find_object(text, at);
  return {match, at, {std::string(name), {}, std::move(id)}, json_arguments({})};
}

// Reads a line with the name, followed by a JSON object.
CallHead named_head(std::string_view text) {
  if (text.empty()) return {Match::kMore};
  const size_t line = text.find('\n');
  const std::string_view name = text.substr(0, std::min(line, text.size()));
  if (!is_function_name(name)) return {Match::kNo};
  if (line == std::string_view::npos) return {Match::kMore};
  size_t at = line;
  const Match match = find_object(text, at);
  return {match, at, {std::string(name), {}}, json_arguments({})};
}

// Scans the beginning of {"name": …, "arguments": {…}} or {"name": {…}} character by character.
class ItemHead {
 public:
  explicit ItemHead(bool keyed) : keyed_(keyed) {}

  // Takes a character after the item's brace. kYes: it is the first one after the brace of the
  // arguments. kNo: not a call, or the arguments do not follow the name.
  Match next(char c) {
    const bool blank = is_space_only({&c, 1});
    switch (state_) {
      case State::kKey:
        if (blank) return Match::kMore;
        key_.clear();
        return go_if(c == '"', State::kInKey);
      case State::kInKey:
        if (c == '\\') return Match::kNo;
        if (c == '"') return go_if(true, State::kColon);
        key_ += c;
        return Match::kMore;
      case State::kColon: return blank ? Match::kMore : go_if(c == ':', State::kValue);
      case State::kValue: return blank ? Match::kMore : value(c);
      case State::kText: return in_text(c);
      case State::kWord:
        if (c == ',') return go_if(true, State::kKey);
        return c == '}' || c == ']' ? Match::kNo : Match::kMore;
      case State::kComma: return blank ? Match::kMore : go_if(c == ',', State::kKey);
      case State::kArguments:
        if (blank) return Match::kMore;
        return c == '"' || c == '}' ? Match::kYes : Match::kNo;
    }
    return Match::kNo;
  }
  const std::string& name() const { return name_; }
  // Returns the number of objects around the arguments.
  int depth() const { return depth_; }

 private:
  enum class State : uint8_t { kKey, kInKey, kColon, kValue, kText, kWord, kComma, kArguments };

  Match go_if(bool fits, State next) {
    if (fits) state_ = next;
    return fits ? Match::kMore : Match::kNo;
  }
  bool names() const { return key_ == "name" || key_ == "function" || key_ == "tool_name"; }

  Match value(char c) {
    const bool arguments = key_ == "arguments" || key_ == "parameters" || key_ == "args";
    if (keyed_) {
      name_ = key_;
      return go_if(c == '{' && is_function_name(name_), State::kArguments);
    }
    if (arguments) return go_if(c == '{' && !name_.empty(), State::kArguments);
    if (c == '"') return go_if(!names() || name_.empty(), State::kText);
    if (c == '{' && key_ == "function" && depth_ == 1 && name_.empty()) {
      ++depth_;
      return go_if(true, State::kKey);
    }
    return go_if(c != '{' && c != '[' && !names(), State::kWord);
  }
  Match in_text(char c) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '"') {
      return go_if(!names() || is_function_name(name_), State::kComma);
    } else if (c == '\\') {
      escaped_ = true;
    }
    if (names()) name_ += c;
    return Match::kMore;
  }

  bool keyed_;
  State state_ = State::kKey;
  std::string key_, name_;
  bool escaped_ = false;
  int depth_ = 1;
};

class JsonCallStream final : public CallStream {
 public:
  enum class Form : uint8_t { kCalls, kLines, kKeyed };
  // only: the names that make calls; null: every name does.
  JsonCallStream(Form form, const ParameterTypes* only)
      : form_(form), only_(only), in_list_(form == Form::kLines), head_(form == Form::kKeyed) {}

  Step read(std::string& text, ReplyPart& out) override {
    for (;;) {
      if (const auto step = read_on(text, out)) return *step;
    }
  }

 private:
  enum class State : uint8_t { kBegin, kHead, kArguments, kRest, kLeave, kWhole, kBetween };

  // nullopt: continue.
  std::optional<Step> read_on(std::string& text, ReplyPart& out) {
    switch (state_) {
      case State::kBegin: return begin_item(text);
      case State::kHead: return read_head(text, out);
      case State::kArguments: return read_arguments(text, out);
      case State::kRest:
      case State::kLeave: return read_rest(text);
      case State::kWhole: return read_whole(text, out);
      case State::kBetween: return read_between(text);
    }
    return Step::kDone;
  }

  // Keeps the text until the first call begins.
  std::optional<Step> begin_item(std::string& text) {
    at_ = skip_space(text, at_);
    if (at_ == text.size()) return Step::kMore;
    if (text[at_] == '[' && !in_list_) {
      ++at_;
      in_list_ = true;
      return std::nullopt;
    }
    if (begun() && text[at_] != '{') return leave_list(text);
    if (text[at_] != '{' || (form_ == Form::kKeyed && !in_list_)) return Step::kNotACall;
    item_ = at_++;
    head_ = ItemHead(form_ == Form::kKeyed);
    state_ = State::kHead;
    return std::nullopt;
  }

  // Skips the rest of a list after an invalid item.
  std::optional<Step> leave_list(std::string& text) {
    if (form_ == Form::kLines) return Step::kDone;
    text.erase(0, std::exchange(at_, 0));
    scan_ = {};
    scan_.depth = 1;
    state_ = State::kLeave;
    return std::nullopt;
  }

  std::optional<Step> read_head(std::string& text, ReplyPart& out) {
    for (; at_ < text.size(); ++at_) {
      const Match match = head_.next(text[at_]);
      if (match == Match::kMore) continue;
      const bool is_call =
          match == Match::kYes && (begun() || only_ == nullptr || only_->contains(head_.name()));
      if (!is_call && !begun()) return Step::kNotACall;
      scan_ = {};
      if (is_call) {
        begin(out, head_.name());
        copy_ = {};
        text.erase(0, text.rfind('{', at_));
        scan_.depth = head_.depth();
      } else {
        text.erase(0, item_);
      }
      state_ = is_call ? State::kArguments : State::kWhole;
      return std::nullopt;
    }
    return Step::kMore;
  }

  std::optional<Step> read_arguments(std::string& text, ReplyPart& out) {
    std::string piece;
    text.erase(0, copy_.take(text, piece));
    out.add_arguments(piece);
    if (!copy_.done()) return Step::kMore;
    end(out);
    state_ = State::kRest;
    return std::nullopt;
  }

  // Skips text up to the end of the item or the list.
  std::optional<Step> read_rest(std::string& text) {
    const auto item_end = find_value_end(text, 0, scan_);
    text.erase(0, item_end.value_or(text.size()));
    scan_.position = 0;
    if (!item_end) return Step::kMore;
    if (state_ == State::kLeave) return Step::kDone;
    state_ = State::kBetween;
    return std::nullopt;
  }

  // Reads an item whose arguments do not follow its name; invalid items are skipped.
  std::optional<Step> read_whole(std::string& text, ReplyPart& out) {
    const auto item_end = find_value_end(text, 0, scan_);
    if (!item_end) return Step::kMore;
    const std::string_view item = std::string_view(text).substr(0, *item_end);
    if (form_ == Form::kKeyed) {
      const auto json = parse_exact(item);
      if (auto call = json ? keyed_call(*json) : std::nullopt) give(out, *std::move(call));
    } else if (auto calls = calls_of_json(item)) {
      for (ToolCall& call : *calls) give(out, std::move(call));
    }
    text.erase(0, *item_end);
    state_ = State::kBetween;
    return std::nullopt;
  }

  std::optional<Step> read_between(std::string& text) {
    if (!in_list_) return Step::kDone;
    text.erase(0, skip_space(text));
    if (text.empty()) return Step::kMore;
    if (form_ != Form::kLines) {
      const bool goes_on = text[0] == ',';
      if (goes_on || text[0] == ']') text.erase(0, 1);
      if (!goes_on) return Step::kDone;
    }
    at_ = 0;
    state_ = State::kBegin;
    return std::nullopt;
  }

  const Form form_;
  const ParameterTypes* only_;
  bool in_list_;
  ItemHead head_;
  State state_ = State::kBegin;
  size_t at_ = 0, item_ = 0;  // read position, and start of the item
  JsonCopy copy_;
  CallScan scan_;
};

// Without a mark, only known tool names make calls.
const ParameterTypes* only_tools(const CallOpening& opening) {
  return opening.mark.empty() ? opening.types : nullptr;
}

template <JsonCallStream::Form form>
std::unique_ptr<CallStream> stream_json(const CallOpening& opening) {
  return std::make_unique<JsonCallStream>(form, only_tools(opening));
}

std::unique_ptr<CallStream> stream_named(const CallOpening& opening) {
  return headed_stream([only = only_tools(opening)](std::string_view text) -> CallHead {
    CallHead head = named_head(text);
    if (head.match == Match::kYes && only != nullptr && !only->contains(head.call.name))
      head.match = Match::kNo;
    return head;
  });
}

// The first character selects one of Mistral's two forms.
class MistralStream final : public CallStream {
 public:
  Step read(std::string& text, ReplyPart& out) override {
    if (stream_ == nullptr) {
      const size_t start = skip_some_space(text);
      if (start == text.size()) return Step::kMore;
      if (is_space_only({&text[start], 1})) return Step::kNotACall;
      if (text[start] == '[' || text[start] == '{') {
        stream_ = std::make_unique<JsonCallStream>(JsonCallStream::Form::kCalls, nullptr);
      } else {
        stream_ = headed_stream(mistral_head);
      }
    }
    return stream_->read(text, out);
  }
  bool begun() const override { return stream_ != nullptr && stream_->begun(); }
  void cut(ReplyPart& out) override {
    if (stream_ != nullptr) stream_->cut(out);
  }

 private:
  std::unique_ptr<CallStream> stream_;
};

std::unique_ptr<CallStream> stream_mistral(const CallOpening&) {
  return std::make_unique<MistralStream>();
}

}  // namespace

const CallReading kJsonCalls{stream_json<JsonCallStream::Form::kCalls>, read_json_calls};
const CallReading kJsonLines{stream_json<JsonCallStream::Form::kLines>, read_json_lines};
const CallReading kKeyedCalls{stream_json<JsonCallStream::Form::kKeyed>, read_keyed_calls};
const CallReading kMistralCalls{stream_mistral, read_json_calls};
const CallReading kNamedCalls{stream_named};

}  // namespace penstock
