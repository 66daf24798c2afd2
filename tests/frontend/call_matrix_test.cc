// Every way to write calls with every kind of reply, whole and cut at every place.
// docs/reference/call-formats.md and tests/golden/call_replies.jsonl are made here
// (PENSTOCK_WRITE_REFERENCE=1 writes them).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "frontend/chat/exact_json.h"
#include "frontend/chat/harmony.h"
#include "frontend/chat/reply_parser.h"
#include "frontend/parse_reply.h"
#include "support/test_data.h"

namespace penstock::call_matrix {
namespace {

using Json = nlohmann::ordered_json;

const char* kBig = "123456789012345678901234567890";

// The types of the parameters of the tools `f` and `now`, as a schema would say them.
std::shared_ptr<const ParameterTypes> tools() {
  using namespace json_types;
  static const auto types =
      std::make_shared<const ParameterTypes>(ParameterTypes{{"f",
                                                             {{"text", kString},
                                                              {"n", kNumber},
                                                              {"list", kArray},
                                                              {"object", kObject},
                                                              {"yes", kBoolean},
                                                              {"none", kNull}}},
                                                            {"now", {}}});
  return types;
}

std::string filled(std::string text) {
  for (const auto& [field, by] : {std::pair{"{n}", "0"}, std::pair{"{id}", "abcdefghi"}}) {
    for (size_t at = 0; (at = text.find(field, at)) != std::string::npos;)
      text.replace(at, std::strlen(field), by);
  }
  return text;
}

std::string python(const Json& value) {
  if (is_number(value)) return dump_exact(value);
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_null()) return "None";
  if (value.is_string()) return value.dump();
  std::string out = value.is_array() ? "[" : "{";
  for (const auto& [key, item] : value.items()) {
    if (out.size() > 1) out += ", ";
    out += (value.is_array() ? "" : Json(key).dump() + ": ") + python(item);
  }
  return out + (value.is_array() ? "]" : "}");
}

std::string gemma(const Json& value, const std::string& quote) {
  if (is_number(value)) return dump_exact(value);
  if (value.is_string()) return quote + value.get<std::string>() + quote;
  if (!value.is_structured()) return value.dump();
  std::string out = value.is_array() ? "[" : "{";
  for (const auto& [key, item] : value.items()) {
    if (out.size() > 1) out += ",";
    out += (value.is_array() ? "" : key + ":") + gemma(item, quote);
  }
  return out + (value.is_array() ? "]" : "}");
}

std::string element(const ParameterMarks& marks, const std::string& name, const Json& value) {
  std::string inside;
  for (const auto& [key, item] : value.items()) {
    if (value.is_structured())
      inside += element(marks, value.is_array() ? std::string(kItemElement) : key, item);
  }
  const bool text = value.is_string() && !is_number(value);
  if (inside.empty()) inside = text ? value.get<std::string>() : dump_exact(value);
  return marks.open + name + marks.name_end + inside + marks.close + name + marks.name_end;
}

std::string arguments_text(const CallWriting& writing, const Json& arguments) {
  const ParameterMarks& marks = writing.parameters;
  if (writing.arguments == ArgumentForm::kJson) return dump_exact(arguments);
  std::string out;
  for (const auto& [name, value] : arguments.items()) {
    const bool text = value.is_string() && !is_number(value);
    if (writing.arguments == ArgumentForm::kElements) {
      out += element(marks, name, value);
      continue;
    }
    if (writing.arguments == ArgumentForm::kParameters) {
      std::string name_end =
          text || marks.json_name_end.empty() ? marks.name_end : marks.json_name_end;
      const std::string field = "{type}";
      if (const size_t at = name_end.find(field); at != std::string::npos)
        name_end.replace(at, field.size(), is_number(value) ? "number" : value.type_name());
      out += marks.open + name + name_end + (text ? value.get<std::string>() : dump_exact(value)) +
             marks.close;
      continue;
    }
    if (!out.empty()) out += marks.close;
    out += name + marks.name_end +
           (writing.arguments == ArgumentForm::kPython ? python(value) : gemma(value, marks.open));
  }
  return out;
}

using Calls = std::vector<std::pair<std::string, Json>>;

std::string written(const CallWriting& writing, const Calls& calls) {
  std::string out = filled(writing.begin);
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i > 0) out += filled(writing.separator);
    std::string name_end = filled(writing.name_end);
    const std::string field = "{name}";
    if (const size_t at = name_end.find(field); at != std::string::npos)
      name_end.replace(at, field.size(), calls[i].first);
    out += filled(writing.name_begin) + calls[i].first + name_end +
           arguments_text(writing, calls[i].second) + filled(writing.call_end);
  }
  return out + filled(writing.end);
}

struct Row {
  std::string name;
  const ToolParserRow* parser;
  CallWriting writing;
};

std::vector<Row> rows() {
  std::vector<Row> all;
  for (const ToolParserRow& parser : tool_parsers()) {
    int n = 0;
    for (const CallWriting& writing : parser.format.written)
      all.push_back(
          {parser.name + (n++ > 0 ? fmt::format(" ({})", n) : std::string()), &parser, writing});
  }
  // gpt-oss has a parser of its own.
  const CallWriting harmony{.name_begin = "<|start|>assistant<|channel|>commentary to=functions.",
                            .name_end = " <|constrain|>json<|message|>",
                            .call_end = "<|call|>"};
  all.push_back({"harmony", find_tool_parser("harmony"), harmony});
  return all;
}

// The replies of the matrix, one JSON object per line: tests/e2e/calls_e2e.py has them said to every
// endpoint.
class Replies {
 public:
  void add(const std::string& format, const char* tools, const std::string& reasoning,
           const std::string& what, const std::string& text, const ReplyPart& reply) {
    if (!names_.insert(format + "\n" + what).second) return;
    Json calls = Json::array();
    for (const ToolCall& call : reply.calls) calls.push_back({call.name, call.arguments, call.id});
    const Json line = {{"format", format},
                       {"tools", tools},
                       {"reasoning", reasoning},
                       {"case", what},
                       {"text", text},
                       {"reply",
                        {{"reasoning", reply.reasoning},
                         {"content", reply.content},
                         {"calls", std::move(calls)}}}};
    lines_ += line.dump() + "\n";
  }
  const std::string& lines() const { return lines_; }

 private:
  std::set<std::string> names_;
  std::string lines_;
};

std::string show(const ReplyPart& reply) {
  std::string out = "reasoning: " + reply.reasoning + "\ncontent: " + reply.content;
  for (const ToolCall& call : reply.calls) out += "\ncall: " + call.name + " " + call.arguments;
  return out;
}

ReplyPart expected_calls(const Calls& calls) {
  ReplyPart part;
  for (const auto& [name, arguments] : calls) part.calls.push_back({name, dump_exact(arguments)});
  return part;
}

ReplyPart with(ReplyPart part, std::string reasoning, std::string content) {
  part.reasoning = std::move(reasoning);
  part.content = std::move(content);
  return part;
}

class Matrix {
 public:
  // replies: gets every reply, if it is not null.
  explicit Matrix(const Row& row, Replies* replies = nullptr)
      : row_(row),
        format_(row.parser->format),
        harmony_(is_harmony(*row.parser)),
        replies_(replies) {
    static const std::set<std::string> own = {"gemma4",  "apertus",    "kimi_k3",
                                              "inkling", "hy_v3",      "hy_v4",
                                              "longcat", "minimax_m3", "muse_glimmer"};
    const std::string name = row.parser->name;
    reasoning_ = own.contains(name) ? name : "think";
  }

  // What the replies that follow are called.
  void begin(std::string what) { what_ = std::move(what); }

  // Whole, byte by byte and in two pieces cut anywhere.
  bool holds(const std::string& text, const ReplyPart& expected) const {
    const std::string wanted = show(expected);
    const auto read = [&](size_t cut, size_t step) { return show(joined(text, cut, step)); };
    const ReplyPart reply = joined(text, text.size(), 1);
    if (replies_ != nullptr)
      replies_->add(row_.name, row_.parser->name, reasoning_, what_, text, reply);
    const std::string whole = show(reply);
    EXPECT_EQ(whole, wanted) << row_.name << ": " << text;
    bool same = whole == wanted && read(0, 1) == wanted;
    for (size_t cut = 1; cut < text.size(); ++cut) same = same && read(cut, text.size()) == wanted;
    EXPECT_TRUE(same) << row_.name << ", in pieces: " << text;
    return same;
  }

  // The first `cut` bytes as one piece, then pieces of `step` bytes. n_pieces: the number of pieces
  // of calls.
  // cut_off: the reply ends too soon.
  ReplyPart joined(std::string_view text, size_t cut, size_t step, int* n_pieces = nullptr,
                   bool cut_off = false) const {
    auto parser = std::move(*make_reply_parser({row_.parser->name, reasoning_, false, tools()}));
    ReplyPart all;
    const auto take = [&](ReplyPart part) {
      // Only a call that is open goes on, and nothing else is said meanwhile.
      EXPECT_TRUE(!part.continues || all.open) << row_.name << ": " << text;
      EXPECT_TRUE(part.calls.empty() || part.continues || !all.open) << row_.name << ": " << text;
      EXPECT_TRUE(part.continues || !all.open || (part.content + part.reasoning).empty())
          << row_.name << ": " << text;
      for (const ToolCall& call : part.calls) {
        if (n_pieces != nullptr && !call.arguments.empty()) ++*n_pieces;
      }
      all.append(std::move(part));
    };
    take(parser->push(text.substr(0, cut)));
    for (size_t at = cut; at < text.size(); at += step) take(parser->push(text.substr(at, step)));
    take(parser->finish(cut_off));
    EXPECT_FALSE(all.open) << row_.name << ": " << text;
    return all;
  }

  // Whether arguments come before their call ends.
  bool streams() const { return harmony_ || format_.read.stream != nullptr; }

  bool calls(const Calls& calls) const {
    return holds(written(row_.writing, calls), expected_calls(calls));
  }

  std::string text() const {
    return harmony_ ? "<|channel|>final<|message|>Hello there.<|return|>" : "Hello there.";
  }

  bool has_marks() const { return harmony_ || !format_.open.empty(); }
  bool opens_with_mark() const {
    const std::string call = written(row_.writing, {{"now", Json::object()}});
    return std::ranges::any_of(format_.open,
                               [&](const std::string& mark) { return call.starts_with(mark); });
  }
  std::pair<std::string, std::string> thoughts() const {
    if (harmony_) return {"<|channel|>analysis<|message|>", "<|end|>"};
    const ReasoningRow* row = find_reasoning(reasoning_);
    return {row->open, row->close};
  }
  const std::string& reasoning() const { return reasoning_; }
  const CallFormat& format() const { return format_; }
  bool is_harmony_row() const { return harmony_; }

 private:
  const Row& row_;
  const CallFormat& format_;
  bool harmony_;
  std::string reasoning_, what_;
  Replies* replies_;
};

// nullopt: such replies cannot be in this format.
using Cell = std::optional<bool>;

const Calls kOne = {{"f", {{"text", "Zürich"}, {"n", 2}}}};
const Calls kTwo = {{"f", {{"text", "Zürich"}, {"n", 2}}}, {"now", Json::object()}};

Cell no_call(const Matrix& m) { return m.holds(m.text(), {"", "Hello there.", {}}); }
Cell one_call(const Matrix& m) { return m.calls(kOne); }
Cell two_calls(const Matrix& m, const Row& row) {
  if (m.format().one_call) return std::nullopt;
  if (!m.format().keeps_space) return m.calls(kTwo);
  return m.holds(written(row.writing, kTwo), with(expected_calls(kTwo), "", row.writing.separator));
}

// Whether these are the first of the calls, the last one perhaps without the end of its arguments.
bool begins_as(const std::vector<ToolCall>& begun, const Calls& calls) {
  if (begun.size() > calls.size()) return false;
  for (size_t i = 0; i < begun.size(); ++i) {
    const std::string whole = dump_exact(calls[i].second);
    if (begun[i].name != calls[i].first || !whole.starts_with(begun[i].arguments)) return false;
    if (i + 1 < begun.size() && begun[i].arguments != whole) return false;
  }
  return true;
}

struct Column {
  const char* title;
  Cell (*check)(const Matrix& m, const Row& row);
};

std::vector<Column> columns() {
  return {
      {"no call", [](const Matrix& m, const Row&) { return no_call(m); }},
      {"one", [](const Matrix& m, const Row&) { return one_call(m); }},
      {"two", two_calls},
      {"behind thoughts",
       [](const Matrix& m, const Row& row) -> Cell {
         const auto [open, close] = m.thoughts();
         return m.holds(open + "Hm.\n" + close + written(row.writing, kOne),
                        with(expected_calls(kOne), m.is_harmony_row() ? "Hm.\n" : "Hm.", ""));
       }},
      {"in thoughts",
       [](const Matrix& m, const Row& row) -> Cell {
         if (m.is_harmony_row() || !m.opens_with_mark()) return std::nullopt;
         return m.holds(m.thoughts().first + "Hm.\n" + written(row.writing, kOne),
                        with(expected_calls(kOne), "Hm.", ""));
       }},
      {"behind text",
       [](const Matrix& m, const Row& row) -> Cell {
         const bool behind_text =
             m.opens_with_mark() ? !m.format().start_only : m.format().bare_lines;
         if (m.is_harmony_row() || !behind_text) return std::nullopt;
         const std::string space = m.format().keeps_space ? "" : "\n";
         return m.holds("Let me see." + space + written(row.writing, kOne),
                        with(expected_calls(kOne), "", "Let me see."));
       }},
      {"in front of text",
       [](const Matrix& m, const Row& row) -> Cell {
         if (m.is_harmony_row() || m.format().start_only) return std::nullopt;
         return m.holds(written(row.writing, kOne) + "Done.",
                        with(expected_calls(kOne), "", "Done."));
       }},
      {"nested",
       [](const Matrix& m, const Row&) -> Cell {
         return m.calls(
             {{"f",
               {{"object", {{"a", {{"b", Json::array({1, "x", Json{{"c", nullptr}}})}}}}},
                {"list", Json::array({Json::array({1, 2}), Json::array()})},
                {"yes", true},
                {"none", nullptr}}}});
       }},
      {"strings",
       [](const Matrix& m, const Row&) -> Cell {
         const std::string text =
             "\"quoted\" 'single' {b} [l] } ] ) ; <|x|> <tool_call> [TOOL_CALLS]\nline é 🩷 \\n";
         return m.calls({{"f", {{"text", text}, {"n", 1}}}});
       }},
      {"long numbers",
       [](const Matrix& m, const Row&) -> Cell {
         return m.calls(
             {{"f",
               {{"n", *exact_number(kBig)}, {"list", Json::array({*exact_number("1e400"), -7})}}}});
       }},
      {"no arguments",
       [](const Matrix& m, const Row&) -> Cell { return m.calls({{"now", Json::object()}}); }},
      {"cut",
       [](const Matrix& m, const Row& row) -> Cell {
         if (m.is_harmony_row() || !m.opens_with_mark()) return std::nullopt;
         const std::string text = written(row.writing, kOne);
         size_t mark = 0;
         for (const std::string& open : m.format().open) {
           if (text.starts_with(open)) mark = std::max(mark, open.size());
         }
         // Half a mark is none yet; where it could be a word it is text.
         const size_t least = std::isalnum(static_cast<unsigned char>(text[0])) != 0 ? mark : 2;
         for (size_t n = least; n < text.size(); ++n) {
           const std::string_view begun = std::string_view(text).substr(0, n);
           const ReplyPart part = m.joined(begun, n, 1, nullptr, true);
           const bool fits = part.content.empty() && begins_as(part.calls, kOne);
           EXPECT_TRUE(fits) << row.name << ": " << begun << "\n" << show(part);
           const std::string bytes = show(m.joined(begun, 0, 1, nullptr, true));
           EXPECT_EQ(bytes, show(part)) << row.name << ": " << begun;
           if (!fits || bytes != show(part)) return false;
         }
         return true;
       }},
      {"arguments stream",
       [](const Matrix& m, const Row& row) -> Cell {
         if (!m.streams()) return std::nullopt;
         const std::string long_text(600, 'x');
         int n_pieces = 0;
         const ReplyPart part = m.joined(
             written(row.writing, {{"f", {{"text", long_text}, {"n", 2}}}}), 0, 5, &n_pieces);
         EXPECT_EQ(show(part), show(expected_calls({{"f", {{"text", long_text}, {"n", 2}}}})))
             << row.name;
         return n_pieces > 100;
       }},
  };
}

// Compares what a test makes with the end of a file, which begins with `from`, or writes it.
void expect_in_file(const std::filesystem::path& path, std::string_view from,
                    const std::string& made) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t at = from.empty() ? 0 : std::min(text.find(from), text.size());
  if (std::getenv("PENSTOCK_WRITE_REFERENCE") != nullptr) {
    std::ofstream(path) << text.substr(0, at) << made;
    return;
  }
  EXPECT_EQ(text.substr(at), made) << path << ": PENSTOCK_WRITE_REFERENCE=1 writes it";
}

const std::string kNameSpace = "]<]minimax[>[";

// What models break, and how it is read.
struct Broken {
  const char* tools;
  std::string text;
  ReplyPart expected;
};

std::vector<Broken> slightly_broken() {
  const std::string open = "<tool_call>\n<function=f>\n", close = "</function>\n</tool_call>";
  const ToolCall both{"f", R"({"text":"a","n":2})"};
  return {
      // </parameter> is missing.
      {"qwen3_coder",
       open + "<parameter=text>\na\n<parameter=n>\n2\n</parameter>\n" + close,
       {"", "", {both}}},
      {"qwen3_coder",
       open + "<parameter=text>\na\n</parameter>\n<parameter=n>\n2\n" + close,
       {"", "", {both}}},
      // Python's words and lists.
      {"qwen3_coder",
       open + "<parameter=list>\n['a', True, None]\n</parameter>\n" + close,
       {"", "", {{"f", R"({"list":["a",true,null]})"}}}},
      {"qwen3_coder",
       open + "<parameter=object>\n{'a': (1, 2)}\n</parameter>\n" + close,
       {"", "", {{"f", R"({"object":{"a":[1,2]}})"}}}},
      // A value of another type stays the text that it is.
      {"qwen3_coder",
       open + "<parameter=n>\nmany\n</parameter>\n" + close,
       {"", "", {{"f", R"({"n":"many"})"}}}},
      {"qwen3_coder",
       open + "<parameter=text>\n12\n</parameter>\n" + close,
       {"", "", {{"f", R"({"text":"12"})"}}}},
      // Strings without their marks.
      {"gemma4",
       "<|tool_call>call:f{text:a b,n:2}<tool_call|>",
       {"", "", {{"f", R"({"text":"a b","n":2})"}}}},
      {"gemma4", "<|tool_call>call:f{\"text\": \"a\", n: 2}<tool_call|>", {"", "", {both}}},
      {"lfm2", "<|tool_call_start|>[f(text='a', n=+2)]<|tool_call_end|>", {"", "", {both}}},
      {"minicpm5",
       "<function name=\"f\"><param name=\"text\"><![CDATA[<b>]]></param><param "
       "name=\"n\"><![CDATA[2]]></param></function>",
       {"", "", {{"f", R"({"text":"<b>","n":2})"}}}},
      {"minicpm5",
       "<function name=\"f\"><param name=\"text\">\n<![CDATA[a]]</param>]]></param></function>",
       {"", "", {{"f", R"({"text":"a]]</param>"})"}}}},
      {"kimi_k3",
       "<|open|>response<|sep|>I look.<|close|>response<|sep|><|open|>tools<|sep|><|open|>call "
       "tool=\"f\" index=\"12\"<|sep|><|open|>argument key=\"text\" "
       "type=\"string\"<|sep|>a<|close|>"
       "argument<|sep|><|open|>argument key=\"n\" "
       "type=\"integer\"<|sep|>2<|close|>argument<|sep|><|"
       "close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>",
       {"", "I look.", {both}}},
      {"inkling",
       "<|message_model|><|content_text|>I "
       "look.<|end_message|><|message_model|><|content_invoke_tool_"
       "json|>{\"name\":\"f\",\"args\":{\"text\":\"a\",\"n\":2}}<|end_message|>",
       {"", "I look.", {both}}},
      {"step3",
       "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke "
       "name=\"f\"><steptml:parameter name=\"text\">a</steptml:parameter><steptml:parameter "
       "name=\"n\">2</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>",
       {"", "", {both}}},
      // A mark of text begins with the mark of calls, also where the text looks like arguments.
      {"functionary_v3",
       ">>>all\n{\"n\": 1}>>>f\n{\"text\": \"a\", \"n\": 2}<|eot_id|>",
       {"", "{\"n\": 1}", {both}}},
      {"functionary_v3", ">>>all", {}},
      {"functionary_v3", ">>>f\n{\"text\": \"a\", \"n\": 2}>>>all\nDone.", {"", "Done.", {both}}},
      {"functionary_v2",
       "<|recipient|>all\n<|content|>I "
       "look.\n<|from|>assistant\n<|recipient|>f\n<|content|>{\"text\": "
       "\"a\", \"n\": 2}<|stop|>",
       {"", "I look.", {both}}},
      // Without a mark, at the start of a line.
      {"llama3_json",
       "I look.\n\n{\"name\": \"f\", \"parameters\": {\"text\": \"a\", \"n\": 2}}",
       {"", "I look.", {both}}},
      {"llama3_json",
       "Like this:\n{\n  \"born\": 1815\n}\n{\"name\": \"Ada\", \"parameters\": {}}\nor\n{}",
       {"",
        "Like this:\n{\n  \"born\": 1815\n}\n{\"name\": \"Ada\", \"parameters\": {}}\nor\n{}",
        {}}},
      {"olmo3",
       "<function_calls>\nf(text='a', n=2),\nnow()\n</function_calls>",
       {"", "", {both, {"now", "{}"}}}},
      {"hermes",
       "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"text\\\": \\\"a\\\", \\\"n\\\": "
       "2}\"}</tool_call>",
       {"", "", {both}}},
      // A closing mark is missing, of an item and of the call; text stands between the parameters.
      {"minimax_m3",
       kNameSpace + "<tool_call>\n" + kNameSpace + "<invoke name=\"f\">Now: " + kNameSpace +
           "<list>" + kNameSpace + "<item>1" + kNameSpace + "</list>and " + kNameSpace + "<n>2" +
           kNameSpace + "</n>\n" + kNameSpace + "</tool_call>",
       {"", "", {{"f", R"({"list":[1],"n":2})"}}}},
  };
}

// Once the name of a call is certain it is a call, whatever follows.
std::vector<Broken> broken_off() {
  const std::string open = "<tool_call>\n<function=f>\n", close = "</function>\n</tool_call>";
  return {
      {"hermes",
       R"(<tool_call>{"name": "f", "arguments": {"text": "a <)",
       {"", "", {{"f", R"({"text":"a <)"}}}},
      {"hermes", R"(<tool_call>{"name": "f", "arguments": {)", {"", "", {}}},
      {"hermes",
       R"(<tool_call>{"name": "f", "arguments": {"n": 1} </tool_call>)",
       {"", "", {{"f", R"({"n":1})"}}}},
      {"hermes",
       R"(<tool_call>{"name": "f", "arguments": {"n": one}}</tool_call>ok)",
       {"", "ok", {{"f", R"({"n":one})"}}}},
      {"hermes",
       "<tool_call>{\"name\": \"f\", \"arguments\": {\"text\": \"a\n\tb\"}}</tool_call>",
       {"", "", {{"f", R"({"text":"a\n\tb"})"}}}},
      {"hermes",
       R"(<tool_call>[{"name": "f", "arguments": {"n": 1}}, {"arguments": {}, "name": "now"}, {"n": 2}, {"name": "now"}]</tool_call>)",
       {"", "", {{"f", R"({"n":1})"}, {"now", "{}"}, {"now", "{}"}}}},
      {"hermes",
       R"(<tool_call>{"type": "function", "function": {"id": 1, "name": "f", "arguments": {"n": 1}}}</tool_call>)",
       {"", "", {{"f", R"({"n":1})"}}}},
      {"xlam",
       R"([{"name": "f", "arguments": {"n": 1}}, {"name": "Ada", "arguments": {"born": 1815}}])",
       {"", "", {{"f", R"({"n":1})"}, {"Ada", R"({"born":1815})"}}}},
      {"apertus",
       R"(<|tools_prefix|>[{"f": {"n": 1}}, {"now": {}}, 5]<|tools_suffix|>)",
       {"", "", {{"f", R"({"n":1})"}, {"now", "{}"}}}},
      {"deepseek",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"n\": 1",
       {"", "", {{"f", R"({"n":1)"}}}},
      {"glm4", "f\n{\"text\": \"a", {"", "", {{"f", R"({"text":"a)"}}}},
      {"harmony",
       "<|channel|>commentary to=functions.f<|message|>{\"text\": \"a <|",
       {"", "", {{"f", R"({"text":"a <|)"}}}},
      {"harmony", "<|channel|>commentary to=functions.f<|mess", {"", "", {}}},
      {"harmony", "<|channel|>commentary to=functions.f<|message|>{ ", {"", "", {}}},
      {"harmony", "<|channel|>commentary to=functions.f<|message|>", {"", "", {{"f", "{}"}}}},
      // The mark that may end a value is not part of it; what is no string is not begun.
      {"qwen3_coder", open + "<parameter=text>\na\n</par", {"", "", {{"f", R"({"text":"a)"}}}},
      {"qwen3_coder",
       open + "<parameter=text>\na\n</parameter>\n<parameter=n>\n12",
       {"", "", {{"f", R"({"text":"a")"}}}},
      // Without </function>, and with words between the parameters.
      {"qwen3_coder",
       open + "<parameter=text>\na\n</parameter>\n</tool_call>\nok",
       {"", "ok", {{"f", R"({"text":"a"})"}}}},
      {"qwen3_coder",
       open + "<parameter=text>\na\n</parameter>\nand then <parameter=n>\n2\n</parameter>" + close,
       {"", "", {{"f", R"({"text":"a","n":2})"}}}},
      {"qwen3_coder",
       open + "<parameter=text>\na\n</parameter>\n<tool_call>\n<function=now>\n" + close,
       {"", "", {{"f", R"({"text":"a"})"}, {"now", "{}"}}}},
      {"minimax_m3",
       kNameSpace + "<tool_call>" + kNameSpace + "<invoke name=\"f\">" + kNameSpace +
           "<text>a ]<]mini",
       {"", "", {{"f", R"({"text":"a )"}}}},
      {"minimax_m3",
       kNameSpace + "<invoke name=\"f\">" + kNameSpace + "<text>a" + kNameSpace + "</text>" +
           kNameSpace + "<list>" + kNameSpace + "<item>1" + kNameSpace + "</item>",
       {"", "", {{"f", R"({"text":"a")"}}}},
      // Without a value.
      {"qwen3_coder",
       open + "<parameter=text>\n<parameter=n>\n2\n</parameter>\n" + close,
       {"", "", {{"f", R"({"text":"","n":2})"}}}},
  };
}

// The reasoning format, a reply, and what it says.
std::vector<std::tuple<const char*, std::string, ReplyPart>> answers_in_marks() {
  return {
      {"hunyuan_a13b", "<think>\nHm.\n</think>\n<answer>\nYes.\n</answer>", {"Hm.", "Yes.", {}}},
      {"hunyuan_a13b", "<think>Hm.</think><answer>a < b </ans", {"Hm.", "a < b </ans", {}}},
      {"ernie45", "<think>Hm.</think>\n\n<response>\nYes.\n</response>\n", {"Hm.", "Yes.", {}}},
      {"apriel",
       "Here are my reasoning steps:\nHm.\n[BEGIN FINAL RESPONSE]\nYes.\n[END FINAL RESPONSE]",
       {"Hm.", "Yes.", {}}},
      {"gemma4", "<|channel>thought\nHm.<channel|>Yes.", {"Hm.", "Yes.", {}}},
      {"apertus", "<|inner_prefix|>Hm.<|inner_suffix|>Yes.", {"Hm.", "Yes.", {}}},
  };
}

// Of every kind of reply, beside those of the columns.
void add_others(Replies& replies) {
  int n = 0;
  for (const auto& cases : {slightly_broken(), broken_off()}) {
    for (const Broken& c : cases) {
      auto parser = std::move(*make_reply_parser({c.tools, "think", false, tools()}));
      const Row row{c.tools, find_tool_parser(c.tools), {}};
      replies.add(c.tools, c.tools, Matrix(row).reasoning(), fmt::format("broken {}", ++n), c.text,
                  parse_reply(*parser, c.text));
    }
  }
  for (const auto& [name, text, expected] : answers_in_marks()) {
    replies.add(fmt::format("{}, answers", name), "none", name, fmt::format("answer {}", ++n), text,
                expected);
  }
}

TEST(CallMatrix, EveryFormatReadsEveryKindOfReply) {
  Replies replies;
  std::string table = "| format |";
  std::string line = "|---|";
  for (const Column& column : columns()) {
    table += fmt::format(" {} |", column.title);
    line += ":-:|";
  }
  table += "\n" + line + "\n";
  for (const Row& row : rows()) {
    table += fmt::format("| {} |", row.name);
    Matrix matrix(row, &replies);
    for (const Column& column : columns()) {
      matrix.begin(column.title);
      const Cell cell = column.check(matrix, row);
      EXPECT_TRUE(cell.value_or(true)) << row.name << ", " << column.title;
      table += fmt::format(" {} |", !cell ? "" : *cell ? "yes" : "no");
    }
    table += "\n";
  }
  expect_in_file(tests_dir().parent_path() / "docs" / "reference" / "call-formats.md", "| format |",
                 table);
  add_others(replies);
  expect_in_file(tests_dir() / "golden" / "call_replies.jsonl", "", replies.lines());
}

TEST(CallMatrix, SlightlyBrokenCallsAreRead) {
  for (const Broken& c : slightly_broken()) {
    auto parser = std::move(*make_reply_parser({c.tools, "", false, tools()}));
    EXPECT_EQ(show(parse_reply(*parser, c.text)), show(c.expected)) << c.tools << ": " << c.text;
    const auto row = Row{c.tools, find_tool_parser(c.tools), {}};
    Matrix(row).holds(c.text, c.expected);
  }
}

// The reply continues the mark at the end of the prompt.
TEST(CallMatrix, MarksThatThePromptEndsWithBelongToTheReply) {
  const std::tuple<const char*, const char*, std::string, ReplyPart> replies[] = {
      {"functionary_v3", ">>>", "all\nHello.", {"", "Hello.", {}}},
      {"functionary_v3", ">>>", "f\n{\"n\": 1}", {"", "", {{"f", R"({"n":1})"}}}},
      {"functionary_v3", ">>>", "now\n{}>>>all\nDone.", {"", "Done.", {{"now", "{}"}}}},
      {"functionary_v2", "<|recipient|>", "all\n<|content|>Hello.<|stop|>", {"", "Hello.", {}}},
      {"muse_glimmer",
       "<|start|>assistant",
       " to=user<|message|>Hello.<|eot|>",
       {"", "Hello.", {}}},
      {"muse_glimmer", "<|start|>assistant", "<|message|>Hello.<|eot|>", {"", "Hello.", {}}},
      {"muse_glimmer",
       "<|start|>assistant",
       " to=f<|message|><atem:function_calls>\n<atem:invoke name=\"f\">\n<atem:parameter "
       "name=\"n\">1</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eot|>",
       {"", "", {{"f", R"({"n":1})"}}}},
      {"functionary_v2",
       "<|recipient|>",
       "f\n<|content|>{\"n\": 1}",
       {"", "", {{"f", R"({"n":1})"}}}},
  };
  for (const auto& [name, mark, text, expected] : replies) {
    const std::string opened(
        prompt_opens_call(std::string("user: hi\n") + mark, find_tool_parser(name)->format));
    ASSERT_EQ(opened, mark);
    for (size_t step = 1; step <= text.size(); ++step) {
      auto parser =
          std::move(*make_reply_parser({.tools = name, .parameters = tools(), .opened = opened}));
      ReplyPart all;
      for (size_t at = 0; at < text.size(); at += step)
        all.append(parser->push(std::string_view(text).substr(at, step)));
      all.append(parser->finish());
      EXPECT_EQ(show(all), show(expected)) << name << ": " << text << ", " << step;
    }
  }
  EXPECT_EQ(prompt_opens_call("<tool_call>", find_tool_parser("hermes")->format), "");
}

// Thoughts are a message as well, behind which the next one begins with all of its mark.
TEST(CallMatrix, ThoughtsMayContinueTheMarkOfThePrompt) {
  const std::string turn = "<|start|>assistant", thoughts = " to=self<|message|>Hm.<|eom|>" + turn +
                                                            " to=self<|message|>Hm.<|eom|>";
  const std::pair<std::string, ReplyPart> replies[] = {
      {thoughts + turn + " to=user<|message|>Hello.<|eot|>", {"Hm.\nHm.", "Hello.", {}}},
      {thoughts + turn +
           " to=now<|message|><atem:function_calls>\n<atem:invoke name=\"now\">\n</atem:invoke>\n"
           "</atem:function_calls><|eom|>" +
           turn +
           " to=a.b<|message|><atem:function_calls>\n<atem:invoke name=\"a.b\">\n</atem:invoke>\n"
           "</atem:function_calls><|eot|>",
       {"Hm.\nHm.", "", {{"now", "{}"}, {"a.b", "{}"}}}},
      {" to=self<|message|>Hm.", {"Hm.", "", {}}},
      {" to=us", {}},
  };
  for (const auto& [text, expected] : replies) {
    for (size_t step = 1; step <= text.size(); ++step) {
      auto parser = std::move(*make_reply_parser({.tools = "muse_glimmer",
                                                  .reasoning = "muse_glimmer",
                                                  .parameters = tools(),
                                                  .opened = turn}));
      ReplyPart all;
      for (size_t at = 0; at < text.size(); at += step)
        all.append(parser->push(std::string_view(text).substr(at, step)));
      all.append(parser->finish());
      EXPECT_EQ(show(all), show(expected)) << text << ", " << step;
    }
  }
}

TEST(CallMatrix, CallsThatBreakOffKeepWhatWasGiven) {
  for (const Broken& c : broken_off()) {
    const auto row = Row{c.tools, find_tool_parser(c.tools), {}};
    Matrix(row).holds(c.text, c.expected);
  }
}

TEST(CallMatrix, MarksAroundAnswersAreNoText) {
  for (const auto& [name, text, expected] : answers_in_marks()) {
    EXPECT_EQ(show(parse_reply(**make_reply_parser({"", name, false}), text)), show(expected))
        << name;
    auto parser = std::move(*make_reply_parser({"", name, false}));
    ReplyPart all;
    for (const char c : text) all.append(parser->push({&c, 1}));
    all.append(parser->finish());
    EXPECT_EQ(show(all), show(expected)) << name << ", byte by byte";
  }
}

// What may be a value of another type is held until it is certain that it is a string.
TEST(CallMatrix, ValuesOfSeveralTypesAreTheSameHoweverCut) {
  using namespace json_types;
  const auto types = std::make_shared<const ParameterTypes>(ParameterTypes{
      {"f",
       {{"a", kString | kNull}, {"b", kString | kNumber | kBoolean}, {"c", kString | kArray}}}});
  const std::tuple<const char*, const char*, const char*> values[] = {
      {"a", "null", "null"},
      {"a", "nullable", R"("nullable")"},
      {"a", "12", R"("12")"},
      {"a", " null ", "null"},
      {"a", "null null", R"("null null")"},
      {"b", "12", "12"},
      {"b", "12 apples", R"("12 apples")"},
      {"b", "true", "true"},
      {"b", "null", R"("null")"},
      {"b", "-", R"("-")"},
      {"c", "[1]", "[1]"},
      {"c", "\"x\"", R"("\"x\"")"},
      {"d", "{\"x\": 1}", R"({"x":1})"},
      {"d", "word", R"("word")"},
      {"d", "", R"("")"},
  };
  for (const auto& [name, value, json] : values) {
    const std::string text = std::string("<seed:tool_call><function=f><parameter=") + name + ">" +
                             value + "</parameter></function></seed:tool_call>";
    const std::string expected = std::string("{\"") + name + "\":" + json + "}";
    for (size_t step = 1; step <= text.size(); ++step) {
      auto parser = std::move(*make_reply_parser({"seed_oss", "", false, types}));
      ReplyPart all;
      for (size_t at = 0; at < text.size(); at += step)
        all.append(parser->push(std::string_view(text).substr(at, step)));
      all.append(parser->finish());
      EXPECT_EQ(show(all), show({"", "", {{"f", expected}}})) << step;
    }
  }
}

TEST(CallMatrix, WhatIsWholeOfArgumentsThatEndTooSoon) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"a": [1, "x", "y)", R"({"a": [1, "x"]})"},
      {R"({"a": {"b": "c", "d": 12)", R"({"a": {"b": "c"}})"},
      {R"({"a": "}\"{", "b)", R"({"a": "}\"{"})"},
      {R"({"a": [[1], {)", R"({"a": [[1], {}]})"},
      {R"({"a")", "{}"},
      {R"({"a": 1})", R"({"a": 1})"},
      {"", ""},
  };
  for (const auto& [begun, whole] : cases) EXPECT_EQ(whole_part(begun), whole) << begun;
}

TEST(CallMatrix, AnswersAreNoCalls) {
  const std::pair<const char*, std::string> answers[] = {
      {"llama3_json", R"({"name": "Ada", "parameters": {"born": 1815}})"},
      {"llama3_json", R"({"name": "Ada", "born": 1815})"},
      {"xlam", R"([{"name": "Ada", "arguments": {}}])"},
      {"pythonic", "[print(1)]"},
      {"pythonic", "[x(a=1)]"},
      {"glm4", "Ada\n{\"born\": 1815}"},
  };
  for (const auto& [name, text] : answers) {
    auto parser = std::move(*make_reply_parser({name, "", false, tools()}));
    EXPECT_EQ(show(parse_reply(*parser, text)), show({"", text, {}})) << name;
  }
}

// Under a constraint a reply may be JSON that looks like a call: only a tool's name with arguments and
// nothing else is one, unless a mark opens it.
TEST(CallMatrix, AnswersUnderAConstraintAreNoCalls) {
  const auto read = [](const char* name, const std::string& text, size_t step) {
    auto parser = std::move(*make_reply_parser(
        {.tools = name, .reasoning = "think", .parameters = tools(), .constrained_answer = true}));
    ReplyPart all;
    for (size_t at = 0; at < text.size(); at += step)
      all.append(parser->push(std::string_view(text).substr(at, step)));
    all.append(parser->finish());
    return show(all);
  };
  const std::tuple<const char*, std::string, ReplyPart> replies[] = {
      {"llama3_json", R"({"name": "f", "born": 1815})", {}},
      {"llama3_json", R"({"name": "f", "parameters": {"n": 1}, "born": 1815})", {}},
      {"llama3_json", R"({"name": "f"})", {}},
      {"llama3_json", R"({"name": "f", "parameters": {"n": 1)", {}},
      {"llama3_json", R"({"name": "f", "parameters": {"n": 1}})", {"", "", {{"f", R"({"n":1})"}}}},
      {"llama3_json", R"(<|python_tag|>{"name": "f"})", {"", "", {{"f", "{}"}}}},
      {"xlam", R"([{"name": "f"}, {"name": "now", "arguments": {}}])", {}},
      {"xlam", R"([{"name": "f", "arguments": {"n": 1}}])", {"", "", {{"f", R"({"n":1})"}}}},
      {"hermes", R"({"name": "f", "arguments": {}})", {}},
  };
  for (auto [name, text, expected] : replies) {
    if (expected == ReplyPart()) expected.content = text;
    for (size_t step = 1; step <= text.size(); ++step)
      EXPECT_EQ(read(name, text, step), show(expected)) << name << ": " << text << ", " << step;
  }
}

// A reply that must be a call has no text, wherever it is cut.
TEST(CallMatrix, ForcedCallsLeaveNoTextWhenTheyAreCut) {
  for (const Row& row : rows()) {
    const std::string whole = written(row.writing, kTwo);
    for (const std::string& thoughts : {std::string(), std::string("<think>Hm.</think>")}) {
      const std::string text = thoughts + whole;
      for (size_t n = 0; n <= text.size(); ++n) {
        auto parser = std::move(*make_reply_parser({.tools = row.parser->name,
                                                    .reasoning = "think",
                                                    .parameters = tools(),
                                                    .calls_only = true}));
        const ReplyPart part = parse_reply(*parser, text.substr(0, n));
        if (is_harmony(*row.parser)) break;  // its marks never become text
        EXPECT_EQ(part.content, "") << row.name << ": " << text.substr(0, n);
      }
    }
  }
}

// What a limit cuts off is no text where it can only be a mark.
TEST(CallMatrix, HalfAMarkAtTheEndOfAReplyThatIsCutIsNoText) {
  const std::tuple<const char*, const char*, std::string, ReplyPart> replies[] = {
      {"hermes", "think", "<thi", {}},
      {"hermes", "think", "<think>Hm.</th", {"Hm.", "", {}}},
      {"hermes", "think", "<think>Hm.<tool_c", {"Hm.", "", {}}},
      {"hermes", "think", "Yes.<tool_c", {"", "Yes.", {}}},
      {"hermes", "think", "a <", {"", "a <", {}}},
      {"phi4_mini_json", "", "Have fun", {"", "Have fun", {}}},
      {"", "hunyuan_a13b", "<think>Hm.</think><answer>Yes.</ans", {"Hm.", "Yes.", {}}},
      {"harmony", "", "<|ch", {}},
      {"harmony",
       "",
       "<|channel|>commentary to=functions.now<|message|>{}<|ca",
       {"", "", {{"now", "{}"}}}},
      {"harmony", "", "<|channel|>final<|message|>Yes.<|ret", {"", "Yes.", {}}},
  };
  for (const auto& [name, reasoning, text, expected] : replies) {
    for (size_t step = 1; step <= text.size(); ++step) {
      auto parser = std::move(*make_reply_parser({name, reasoning, false, tools()}));
      ReplyPart all;
      for (size_t at = 0; at < text.size(); at += step)
        all.append(parser->push(std::string_view(text).substr(at, step)));
      all.append(parser->finish(true));
      EXPECT_EQ(show(all), show(expected)) << name << ": " << text << ", " << step;
    }
  }
}

// The model's own ids, which its template wants to have back.
TEST(CallMatrix, IdsAreKeptWhereTheTemplateNeedsThem) {
  const std::tuple<const char*, std::string, std::vector<std::string>> replies[] = {
      {"kimi_k2",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:3<|tool_call_argument_begin|>{}<"
       "|tool_call_end|><|tool_call_begin|>functions.now:4<|tool_call_argument_begin|>{}<|tool_"
       "call_end|><|tool_calls_section_end|>",
       {"functions.f:3", "functions.now:4"}},
      {"kimi_k2", "<|tool_call_begin|>f:0<|tool_call_argument_begin|>{}<|tool_call_end|>", {"f:0"}},
      {"solar_open",
       "<|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>f<|tool_call:args|>{}<|tool_"
       "call:end|>",
       {"a1b2c3d4e5"}},
      {"mistral", "[TOOL_CALLS]f[CALL_ID]abc123XYZ[ARGS]{}", {"abc123XYZ"}},
      {"mistral", "[TOOL_CALLS]f[CALL_ID]call_1[ARGS]{}", {""}},
      {"hermes", "<tool_call>{\"name\": \"f\"}</tool_call>", {""}},
  };
  for (const auto& [name, text, ids] : replies) {
    auto parser = std::move(*make_reply_parser({name, "", false, tools()}));
    std::vector<std::string> found;
    for (const ToolCall& call : parse_reply(*parser, text).calls) found.push_back(call.id);
    EXPECT_EQ(found, ids) << text;
  }
}

}  // namespace
}  // namespace penstock::call_matrix
