// THE list of reasoning formats, and the parsers of whole replies.
#include <algorithm>
#include <utility>

#include "frontend/chat/harmony.h"
#include "frontend/chat/marked_parser.h"
#include "frontend/chat/reasoning.h"
#include "frontend/chat/reply_parser.h"

namespace penstock {
namespace {

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

std::span<const ReasoningRow> reasoning_formats() {
  static const std::vector<ReasoningRow> rows = {
      {"think",
       "DeepSeek R1, Qwen 3, QwQ, GLM, Nemotron",
       "<think>",
       "</think>",
       {"deepseek_r1", "deepseek_v3", "qwen3", "glm45", "nemotron_v3"}},
      {"seed", "Seed-OSS", "<seed:think>", "</seed:think>", {"seed_oss"}},
      {"mistral", "Magistral, Ministral reasoning", "[THINK]", "[/THINK]"},
      {"cohere", "Command R7B, Command A", "<|START_THINKING|>", "<|END_THINKING|>", {"cohere_command"}},
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
    const ToolParserRow* row = find_tool_parser(options.tools);
    if (row == nullptr) {
      return errorf(ErrorCode::kInvalidArgument, "tool call parser: expected one of {}, got '{}'",
                    names_of(tool_parsers()), options.tools);
    }
    if (is_harmony(*row)) return make_harmony_parser();
    rest = std::make_unique<MarkedParser>(row->format, options.parameters);
  }
  return std::make_unique<StagedParser>(std::move(reasoning), std::move(rest));
}

const ToolParserRow* find_tool_parser(std::string_view name) {
  const auto rows = tool_parsers();
  const auto row = find_row(rows, name);
  return row == rows.end() ? nullptr : &*row;
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
