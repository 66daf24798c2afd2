// The list of reasoning formats, and the parsers of whole replies.
#include <algorithm>
#include <utility>

#include "frontend/chat/harmony.h"
#include "frontend/chat/marked_parser.h"
#include "frontend/chat/reasoning.h"
#include "frontend/chat/reply_parser.h"

namespace penstock {
namespace {

// Treats everything as text.
class PlainParser : public ReplyParser {
 public:
  ReplyPart push(std::string_view text) override { return {"", std::string(text), {}}; }
  ReplyPart finish(bool) override { return {}; }
};

// Removes marks with the white space around them, at most kMostUndecided bytes before a mark.
class MarkFilter {
 public:
  explicit MarkFilter(std::vector<std::string> marks) : marks_(std::move(marks)) {}

  std::string push(std::string_view text, bool at_end, bool cut) {
    if (marks_.empty()) return std::string(text);
    buffer_ += text;
    std::string out;
    for (;;) {
      if (behind_mark_) buffer_.erase(0, skip_space(buffer_));
      behind_mark_ = behind_mark_ && buffer_.empty();
      const auto [at, mark] = first_mark(buffer_, marks_);
      if (at == std::string::npos) break;
      out += without_end_space(std::string_view(buffer_).substr(0, at));
      buffer_.erase(0, at + marks_[mark].size());
      behind_mark_ = true;
    }
    if (cut) buffer_.resize(buffer_.size() - begun_mark(buffer_, marks_));
    // White space may precede a mark.
    size_t n = buffer_.size() - (at_end ? 0 : held_back(buffer_, marks_));
    if (!at_end) n = without_end_space(std::string_view(buffer_).substr(0, n)).size();
    out.append(buffer_, 0, n);
    buffer_.erase(0, n);
    return out;
  }

 private:
  static std::string_view without_end_space(std::string_view text) {
    const size_t least = text.size() - std::min(text.size(), kMostUndecided);
    while (text.size() > least && is_space_only(text.substr(text.size() - 1)))
      text.remove_suffix(1);
    return text;
  }

  std::vector<std::string> marks_;
  std::string buffer_;
  bool behind_mark_ = false;
};

// Parses reasoning first, then calls and an answer, from which its marks are removed.
class StagedParser : public ReplyParser {
 public:
  // opened: ReplyParserOptions::opened; it is continued by a reply without thoughts.
  StagedParser(std::optional<ReasoningSplitter> reasoning, std::vector<std::string> answer_marks,
               std::unique_ptr<ReplyParser> rest, const ReplyParserOptions& options)
      : reasoning_(std::move(reasoning)),
        answer_(std::move(answer_marks)),
        rest_(std::move(rest)),
        opened_(options.opened),
        calls_only_(options.calls_only) {
    if (!reasoning_) rest_->push(std::exchange(opened_, {}));
  }

  ReplyPart push(std::string_view text) override {
    ReplyPart out = reasoning_ ? pass(reasoning_->push(text)) : rest_->push(text);
    return with_answer(std::move(out), false);
  }
  ReplyPart finish(bool cut) override {
    ReplyPart out = reasoning_ ? pass(reasoning_->finish(cut)) : ReplyPart();
    out.append(rest_->finish(cut));
    return with_answer(std::move(out), true, cut);
  }

 private:
  ReplyPart pass(ReplyPart split) {
    if (!split.content.empty()) {
      const std::string opened = std::exchange(opened_, {});
      if (!reasoning_->found()) rest_->push(opened);
    }
    ReplyPart out = rest_->push(split.content);
    out.reasoning = std::move(split.reasoning);
    return out;
  }
  ReplyPart with_answer(ReplyPart out, bool at_end, bool cut = false) {
    if (calls_only_)
      out.content.clear();
    else if (reasoning_)
      out.content = answer_.push(out.content, at_end, cut);
    return out;
  }

  std::optional<ReasoningSplitter> reasoning_;
  MarkFilter answer_;
  std::unique_ptr<ReplyParser> rest_;
  std::string opened_;
  const bool calls_only_;
};

template <class Rows>
auto find_row(const Rows& rows, std::string_view name) {
  return std::find_if(rows.begin(), rows.end(), [&](const auto& row) {
    return name == row.name ||
           std::find(row.aliases.begin(), row.aliases.end(), name) != row.aliases.end();
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
  if (more.calls.empty()) return;
  auto first = more.calls.begin();
  if (more.continues) add_arguments((first++)->arguments);
  std::move(first, more.calls.end(), std::back_inserter(calls));
  open = more.open;
}

void ReplyPart::begin_call(std::string name, std::string id) {
  calls.push_back({std::move(name), {}, std::move(id)});
  open = true;
}

void ReplyPart::add_arguments(std::string_view text) {
  if (calls.empty()) {
    calls.emplace_back();
    continues = open = true;
  }
  calls.back().arguments += text;
}

void ReplyPart::end_call() {
  add_arguments({});
  open = false;
}

std::span<const ReasoningRow> reasoning_formats() {
  static const std::vector<ReasoningRow> rows = {
      {"hunyuan_a13b",
       "Hunyuan",
       "<think>",
       "</think>",
       {"hunyuan"},
       {"</think>", "<answer>"},
       {"<|extra_0|>"},
       {"<answer>", "</answer>"}},
      {"think_response",
       "ERNIE 4.5 Thinking, Granite 3.3",
       "<think>",
       "</think>",
       {"ernie45"},
       {"</think>", R"(<response>\n)"},
       {"<response></response>"},
       {"<response>", "</response>"}},
      {"apriel",
       "Apriel 1.5, 1.6",
       "Here are my reasoning steps:",
       "[BEGIN FINAL RESPONSE]",
       {},
       {},
       {},
       {"[END FINAL RESPONSE]"}},
      {"gemma4", "Gemma 4", "<|channel>thought", "<channel|>"},
      {"apertus", "Apertus", "<|inner_prefix|>", "<|inner_suffix|>"},
      {"kimi_k3",
       "Kimi K3",
       "<|open|>think<|sep|>",
       "<|close|>think<|sep|>",
       {},
       {"<|open|>", "<|close|>", "<|sep|>"}},
      {"inkling",
       "Inkling",
       "<|content_thinking|>",
       "<|end_message|>",
       {},
       {"<|content_thinking|>"}},
      {"hy_v3",
       "Hunyuan 3, 4",
       "<think:opensource>",
       "</think:opensource>",
       {"hy_v4"},
       {":opensource"}},
      {"longcat", "LongCat Flash", "<longcat_think>", "</longcat_think>"},
      {.name = "muse_glimmer",
       .models = "Muse Glimmer",
       .open = " to=self<|message|>",
       .close = "<|eom|>",
       .hints = {"to=self<|message|>"},
       .again = "<|start|>assistant to=self<|message|>"},
      {.name = "minimax_m3",
       .models = "MiniMax M3",
       .open = "<mm:think>",
       .close = "</mm:think>",
       .close_alone = true},
      {"think",
       "DeepSeek R1, Qwen 3, QwQ, GLM, Nemotron, MiMo, MiniMax M1",
       "<think>",
       "</think>",
       {"deepseek_r1", "deepseek_v3", "qwen3", "glm45", "nemotron_v3", "mimo", "minimax_m1"},
       {},
       // Templates of MiMo and MiniMax M1 do not show that the models reason.
       {"You are MiMo", "<beginning_of_sentence>"}},
      {"seed", "Seed-OSS", "<seed:think>", "</seed:think>", {"seed_oss"}},
      {"mistral", "Magistral, Ministral reasoning", "[THINK]", "[/THINK]"},
      {"cohere",
       "Command R7B, Command A",
       "<|START_THINKING|>",
       "<|END_THINKING|>",
       {"cohere_command"}},
      {"minicpm3", "MiniCPM 3", "<|thought_start|>", "<|thought_end|>"},
      {"exaone", "EXAONE Deep", "<thought>", "</thought>"},
      {"granite", "Granite 3.2 and later", "Here is my thought process:", "Here is my response:"},
  };
  return rows;
}

std::string_view detect_tool_parser(std::string_view chat_template) {
  const auto present = [&](const char* hint) {
    return chat_template.find(hint) != std::string_view::npos;
  };
  for (const ToolParserRow& row : tool_parsers()) {
    if (std::ranges::all_of(row.hints, present) || std::ranges::any_of(row.other_hints, present))
      return row.name;
  }
  return {};
}

std::string_view detect_reasoning(std::string_view chat_template) {
  const auto present = [&](const char* hint) {
    return chat_template.find(hint) != std::string_view::npos;
  };
  for (const ReasoningRow& row : reasoning_formats()) {
    const bool shown =
        row.hints.empty() ? present(row.close) : std::ranges::all_of(row.hints, present);
    if (shown || std::ranges::any_of(row.other_hints, present)) return row.name;
  }
  return {};
}

Result<std::unique_ptr<ReplyParser>> make_reply_parser(const ReplyParserOptions& options) {
  const ToolParserRow* tools = options.tools.empty() ? nullptr : find_tool_parser(options.tools);
  if (tools == nullptr && !options.tools.empty()) {
    return errorf(ErrorCode::kInvalidArgument, "tool call parser: expected one of {}, got '{}'",
                  names_of(tool_parsers()), options.tools);
  }
  const ReasoningRow* row = options.reasoning.empty() ? nullptr : find_reasoning(options.reasoning);
  if (row == nullptr && !options.reasoning.empty()) {
    return errorf(ErrorCode::kInvalidArgument, "reasoning format: expected one of {}, got '{}'",
                  names_of(reasoning_formats()), options.reasoning);
  }
  if (tools != nullptr && is_harmony(*tools)) return make_harmony_parser();
  std::unique_ptr<ReplyParser> rest = std::make_unique<PlainParser>();
  if (tools != nullptr)
    rest = std::make_unique<MarkedParser>(tools->format, options.parameters,
                                          options.constrained_answer);
  std::optional<ReasoningSplitter> reasoning;
  std::vector<std::string> answer_marks;
  if (row != nullptr) {
    reasoning.emplace(*row, options.starts_in_reasoning,
                      tools != nullptr ? tools->format.open : std::vector<std::string>());
    answer_marks.assign(row->answer_marks.begin(), row->answer_marks.end());
  }
  return std::make_unique<StagedParser>(std::move(reasoning), std::move(answer_marks),
                                        std::move(rest), options);
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
  while (!prompt.empty() && is_space_only(prompt.substr(prompt.size() - 1)))
    prompt.remove_suffix(1);
  return prompt.ends_with(row->open);
}

std::string_view prompt_opens_call(std::string_view prompt, const CallFormat& format) {
  for (const std::string& mark : format.open) {
    if (format.in_prompt && prompt.ends_with(mark)) return mark;
  }
  return {};
}

}  // namespace penstock
