// THE lists of tool call and reasoning formats, and their combination.
#include <algorithm>
#include <utility>

#include "frontend/chat/marked_parser.h"
#include "frontend/chat/reasoning.h"
#include "frontend/chat/reply_parser.h"

namespace penstock {
namespace {

template <const CallFormat& (*Format)()>
std::unique_ptr<ReplyParser> make() {
  return std::make_unique<MarkedParser>(Format());
}

const CallFormat& hermes() {
  static const CallFormat format{{"<tool_call>"}, {"</tool_call>"}, 0, false, read_json_calls};
  return format;
}
const CallFormat& granite4() {  // vLLM's parser leaves the text around the calls as it is
  static const CallFormat format{{"<tool_call>"}, {"</tool_call>"}, 0, false, read_json_calls, true};
  return format;
}
const CallFormat& qwen3_coder() {
  static const CallFormat format{
      {"<tool_call>", "<function="}, {"</tool_call>"}, 0, false, read_parameter_tags};
  return format;
}
const CallFormat& seed_oss() {
  static const CallFormat format{
      {"<seed:tool_call>", "<function="}, {"</seed:tool_call>"}, 0, false, read_parameter_tags};
  return format;
}
const CallFormat& llama3_json() {
  static const CallFormat format{
      {"<|python_tag|>"}, {";", ",", "<|eom_id|>", "<|eot_id|>"}, '{', true, read_json_calls};
  return format;
}
const CallFormat& mistral() {
  static const CallFormat format{{"[TOOL_CALLS]"}, {}, 0, false, read_mistral_calls};
  return format;
}
const CallFormat& pythonic() {
  static const CallFormat format{{"<|python_start|>"}, {"<|python_end|>"}, '[', true, read_python_calls};
  return format;
}
const CallFormat& lfm2() {
  static const CallFormat format{{"<|tool_call_start|>"}, {"<|tool_call_end|>"}, 0, false, read_python_calls};
  return format;
}
const CallFormat& deepseek() {
  static const CallFormat format{{"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"},
                                 {"<｜tool▁calls▁end｜>"},
                                 0,
                                 false,
                                 read_deepseek_call};
  return format;
}
const CallFormat& kimi() {
  static const CallFormat format{{"<|tool_calls_section_begin|>", "<|tool_call_begin|>"},
                                 {"<|tool_calls_section_end|>"},
                                 0,
                                 false,
                                 read_kimi_call};
  return format;
}
const CallFormat& granite() {
  static const CallFormat format{
      {"<|tool_call|>", "<tool_call>", "<function_call>"}, {"</tool_call>"}, 0, false, read_json_calls};
  return format;
}
const CallFormat& functionary() {
  static const CallFormat format{
      {"<function="}, {"</function>", "<|eom_id|>", "<|eot_id|>"}, 0, false, read_function_tag};
  return format;
}

// Everything is text.
class PlainParser : public ReplyParser {
 public:
  ReplyPart push(std::string_view text) override { return {"", std::string(text), {}}; }
  ReplyPart finish() override { return {}; }
};

// Reasoning first, tool calls in what follows it.
class StagedParser : public ReplyParser {
 public:
  StagedParser(std::optional<ReasoningSplitter> reasoning, std::unique_ptr<ReplyParser> rest)
      : reasoning_(std::move(reasoning)), rest_(std::move(rest)) {}

  ReplyPart push(std::string_view text) override {
    return reasoning_ ? pass(reasoning_->push(text)) : rest_->push(text);
  }
  ReplyPart finish() override {
    ReplyPart out;
    if (reasoning_) out = pass(reasoning_->finish());
    out.append(rest_->finish());
    return out;
  }

 private:
  ReplyPart pass(ReplyPart split) {
    ReplyPart out = rest_->push(split.content);
    out.reasoning = std::move(split.reasoning);
    return out;
  }

  std::optional<ReasoningSplitter> reasoning_;
  std::unique_ptr<ReplyParser> rest_;
};

template <class Rows>
auto find_row(const Rows& rows, std::string_view name) {
  return std::find_if(rows.begin(), rows.end(), [&](const auto& row) {
    return name == row.name || std::find(row.aliases.begin(), row.aliases.end(), name) != row.aliases.end();
  });
}

template <class Rows>
std::string names_of(const Rows& rows) {
  std::string out;
  for (const auto& row : rows) out += (out.empty() ? "" : ", ") + std::string(row.name);
  return out;
}

}  // namespace

void ReplyPart::append(ReplyPart more) {
  reasoning += more.reasoning;
  content += more.content;
  std::move(more.calls.begin(), more.calls.end(), std::back_inserter(calls));
}

std::span<const ToolParserRow> tool_parsers() {
  static const std::vector<ToolParserRow> rows = {
      {"deepseek",
       "DeepSeek V3, V3.1, R1",
       {"<｜tool▁calls▁begin｜>"},
       make<deepseek>,
       {"deepseek_v3", "deepseek_v31"}},
      {"kimi_k2", "Kimi K2", {"<|tool_calls_section_begin|>"}, make<kimi>},
      {"lfm2", "LFM2", {"<|tool_list_start|>"}, make<lfm2>},
      {"mistral", "Mistral, Mixtral, Ministral", {"[TOOL_CALLS]"}, make<mistral>},
      {"qwen3_coder",
       "Qwen3-Coder, Nemotron 3",
       {"<tool_call>", "<function=", "<parameter="},
       make<qwen3_coder>,
       {"qwen3_xml", "nemotron_v3"}},
      {"seed_oss", "Seed-OSS", {"<seed:tool_call>"}, make<seed_oss>},
      {"functionary", "Functionary 3.1", {"<function="}, make<functionary>},
      {"granite", "Granite", {"<|tool_call|>"}, make<granite>},
      {"granite4", "Granite 4", {"<|start_of_role|>", "<tool_call>"}, make<granite4>},
      {"hermes", "Hermes 2 Pro, Qwen 2.5, Qwen 3, QwQ", {"<tool_call>"}, make<hermes>, {"qwen2_5", "qwen3"}},
      {"pythonic",
       "Llama 4, Llama 3.2 pythonic, ToolACE",
       {"[func_name1("},
       make<pythonic>,
       {"llama4_pythonic"}},
      {"llama3_json", "Llama 3.1, 3.2, 3.3", {"\"parameters\":"}, make<llama3_json>, {"llama4_json"}},
  };
  return rows;
}

std::span<const ReasoningRow> reasoning_formats() {
  static const std::vector<ReasoningRow> rows = {
      {"think",
       "DeepSeek R1, Qwen 3, QwQ, GLM, Nemotron",
       "<think>",
       "</think>",
       {"deepseek_r1", "deepseek_v3", "qwen3", "glm45", "nemotron_v3"}},
      {"seed", "Seed-OSS", "<seed:think>", "</seed:think>", {"seed_oss"}},
      {"mistral", "Magistral, Ministral reasoning", "[THINK]", "[/THINK]"},
      {"granite", "Granite 3.2 and later", "Here is my thought process:", "Here is my response:"},
  };
  return rows;
}

std::string_view detect_tool_parser(std::string_view chat_template) {
  for (const ToolParserRow& row : tool_parsers()) {
    const auto present = [&](const char* hint) { return chat_template.find(hint) != std::string_view::npos; };
    if (std::all_of(row.hints.begin(), row.hints.end(), present)) return row.name;
  }
  return {};
}

std::string_view detect_reasoning(std::string_view chat_template) {
  for (const ReasoningRow& row : reasoning_formats()) {
    if (chat_template.find(row.close) != std::string_view::npos) return row.name;
  }
  return {};
}

Result<std::unique_ptr<ReplyParser>> make_reply_parser(const ReplyParserOptions& options) {
  std::optional<ReasoningSplitter> reasoning;
  if (!options.reasoning.empty()) {
    const ReasoningRow* row = find_reasoning(options.reasoning);
    if (row == nullptr) {
      return errorf(ErrorCode::kInvalidArgument, "reasoning format: expected one of {}, got '{}'",
                    names_of(reasoning_formats()), options.reasoning);
    }
    reasoning.emplace(row->open, row->close, options.starts_in_reasoning);
  }
  std::unique_ptr<ReplyParser> rest = std::make_unique<PlainParser>();
  if (!options.tools.empty()) {
    const auto rows = tool_parsers();
    const auto row = find_row(rows, options.tools);
    if (row == rows.end()) {
      return errorf(ErrorCode::kInvalidArgument, "tool call parser: expected one of {}, got '{}'",
                    names_of(rows), options.tools);
    }
    rest = row->make();
  }
  return std::make_unique<StagedParser>(std::move(reasoning), std::move(rest));
}

const ReasoningRow* find_reasoning(std::string_view name) {
  const auto rows = reasoning_formats();
  const auto row = find_row(rows, name);
  return row == rows.end() ? nullptr : &*row;
}

bool prompt_opens_reasoning(std::string_view prompt, std::string_view reasoning) {
  const ReasoningRow* row = find_reasoning(reasoning);
  if (row == nullptr) return false;
  while (!prompt.empty() && is_space_only(prompt.substr(prompt.size() - 1))) prompt.remove_suffix(1);
  return prompt.ends_with(row->open);
}

ReplyPart parse_reply(ReplyParser& parser, std::string_view text) {
  ReplyPart out = parser.push(text);
  out.append(parser.finish());
  return out;
}

}  // namespace penstock
