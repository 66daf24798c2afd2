// Conversations: what a message, a tool and a call of one are, and what LLM::chat takes and gives.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/types.h"

namespace penstock {

struct ToolCall {
  std::string name;       // of the function
  std::string arguments;  // a JSON object
  std::string id = {};    // what the tool's answer names it by
  bool operator==(const ToolCall&) const = default;
};

// One message, in OpenAI's terms. What is empty is not given to the chat template, content excepted.
struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool", or what else the template knows
  std::string content;
  std::string reasoning = {};             // of an assistant: what it thought before it spoke
  std::vector<ToolCall> tool_calls = {};  // of an assistant
  std::string tool_call_id = {};          // of a tool: the call that this message answers
  std::string name = {};                  // of the speaker or the function
  bool operator==(const ChatMessage&) const = default;
};

// What one more piece of a reply brought: reasoning, content or calls. The pieces add up to CompletionOutput::message.
struct ChatDelta {
  int index = 0;                        // [0, n) of SamplingParams
  std::string_view reasoning, content;  // whole UTF-8; valid during the call
  std::span<const ToolCall>
      tool_calls;  // each whole, in the piece that brought its last character; valid likewise
  FinishReason finish = FinishReason::kNone;
};

struct ChatOptions {
  bool add_generation_prompt = true;    // the template begins the reply
  bool continue_final_message = false;  // the prompt ends inside the last message; excludes the one above
  std::string chat_template;            // its text (Jinja2); empty = the model's
  std::string
      tools_json;  // OpenAI's list of tools as JSON: [{"type": "function", "function": {…}}], or empty
  std::string template_kwargs_json;  // a JSON object with further template variables, or empty
  bool parallel_tool_calls = true;   // false: the reply ends after its first call
  // "auto": as the model likes; "none"; "required": calls only, one at least; or the name of a tool: one call of it.
  // Calls of tools with "strict": true always obey their schemas. SamplingParams::structured_outputs is what a reply that is
  // no call must look like, behind its reasoning.
  std::string tool_choice = "auto";
  std::vector<std::string> allowed_tools;  // only these may be called; empty = every tool
  // How replies are taken apart: a name that `penstock serve --help` lists, "auto" (found by the chat template) or
  // "none" (it stays text). Calls are looked for when there are tools.
  std::string tool_call_parser = "auto";
  std::string reasoning_parser = "auto";
  // Called for every piece in order, on the calling thread. Returning false cancels all that is still running.
  std::function<bool(const ChatDelta&)> on_delta;
};

}  // namespace penstock
