// The replies of gpt-oss: messages, each in a channel.
//
//   <|channel|>analysis<|message|>reasoning<|end|><|start|>assistant
//   <|channel|>commentary to=functions.name <|constrain|>json<|message|>{…}<|call|>
//   <|channel|>final<|message|>the answer<|return|>
//
// The prompt ended with <|start|>assistant. Channels carry reasoning, text and calls all at once,
// so that this row of the list has a parser and a grammar of its own.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "frontend/chat/reply_parser.h"

namespace penstock {

bool is_harmony(const ToolParserRow& row);
std::unique_ptr<ReplyParser> make_harmony_parser();

// The parts of a reply's grammar, as formats of structural tags.
struct HarmonyReply {
  // choices of "name <|constrain|>json<|message|>{…}"; null: no call
  const nlohmann::ordered_json* calls;
  // format of the final message; null: there is none
  const nlohmann::ordered_json* answer;
  bool with_preamble = false;  // text for the user is allowed before a call
};
nlohmann::ordered_json any_message_text();  // the grammar of any text inside one message
nlohmann::ordered_json harmony_grammar(const HarmonyReply& reply);

}  // namespace penstock
