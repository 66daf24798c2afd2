// Conversations: messages, tool calls, and the options and deltas of LLM::chat.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/types.h"

namespace penstock {

struct ToolCall {
  std::string name;  // name of the function
  // a JSON object, its beginning (a reply that was cut), or what the model wrote
  std::string arguments;
  // ChatMessage::tool_call_id of the message that answers this call
  std::string id = {};
  bool operator==(const ToolCall&) const = default;
};

// A picture of a message, or a sound.
struct ChatImage {
  // bytes of a JPEG, PNG, WebP, GIF or BMP file; of a sound WAV, FLAC, Ogg or MP3
  std::shared_ptr<const std::string> file;
  std::string name = {};  // for messages of errors; "": its place in the messages
  bool is_sound = false;
  bool operator==(const ChatImage&) const = default;
};

// One message, in OpenAI's terms. Empty fields, except `content`, are not passed to the chat
// template.
struct ChatMessage {
  // "system", "user", "assistant", "tool", or what else the template knows
  std::string role;
  std::string content;
  // role "assistant": reasoning that precedes the content
  std::string reasoning = {};
  std::vector<ToolCall> tool_calls = {};  // role "assistant"
  // role "tool": id of the call that this message answers
  std::string tool_call_id = {};
  std::string name = {};               // name of the speaker or of the function
  std::vector<ChatImage> images = {};  // in front of the content; for models that see or hear
  bool operator==(const ChatMessage&) const = default;
};

// A new piece of a reply: reasoning, content or tool calls. All pieces together are
// CompletionOutput::message.
struct ChatDelta {
  int index = 0;                        // which of SamplingParams::n replies, [0, n)
  std::string_view reasoning, content;  // whole UTF-8; valid during the call
  // Complete calls: each comes with the piece that brought its last character. Valid during the
  // call.
  std::span<const ToolCall> tool_calls;
  FinishReason finish = FinishReason::kNone;
};

struct ChatOptions {
  // the template opens the assistant's reply at the end of the prompt
  bool add_generation_prompt = true;
  // the prompt ends inside the last message; excludes the field above
  bool continue_final_message = false;
  // text of a template (Jinja2); empty = the model's template
  std::string chat_template;
  // OpenAI's list of tools as JSON: [{"type": "function", "function": {…}}]; empty = no tools.
  std::string tools_json;
  // a JSON object with further template variables, or empty
  std::string template_kwargs_json;
  bool parallel_tool_calls = true;  // false: the reply ends after its first call
  // "auto": the model decides; "none": no calls; "required": at least one call and nothing else; or
  // the name of a tool: one call of that tool. Calls of tools with "strict": true always obey their
  // schemas. SamplingParams::structured_outputs constrains a reply that is not a call, after its
  // reasoning.
  std::string tool_choice = "auto";
  // only these may be called; empty = every tool
  std::vector<std::string> allowed_tools;
  // Format by which calls and reasoning are parsed out of replies: a name that `penstock serve
  // --help` lists, "auto" (detected from the chat template) or "none" (they stay in the text).
  // Calls are parsed only when there are tools.
  std::string tool_call_parser = "auto";
  std::string reasoning_parser = "auto";
  // Called for every piece in order, on the calling thread. Returning false cancels all that is
  // still running.
  std::function<bool(const ChatDelta&)> on_delta;
};

}  // namespace penstock
