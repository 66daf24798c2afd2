// What a whole reply is held to: reasoning, then text, an answer of a form, or calls, in one grammar.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "frontend/chat/reply_parser.h"
#include "penstock/structured_outputs.h"

namespace penstock {

// Which tools a reply may and must call.
struct ToolChoice {
  enum class Kind : uint8_t {
    kAuto,      // as the model likes
    kNone,      // none
    kRequired,  // one at least, and nothing else is said
    kNamed,     // exactly one call, of the first of the names
  };
  Kind kind = Kind::kAuto;
  std::vector<std::string> names = {};  // only these may be called; empty: every tool
};

struct ReplyRules {
  const nlohmann::ordered_json* tools = nullptr;  // OpenAI's list, shown to the model; null: none
  ToolChoice choice;
  bool one_call = false;
  std::optional<StructuredOutputs> answer;  // what a reply that is no call must look like; nullopt: any text
};

// How the model writes replies, and to what it replies.
struct ReplyContext {
  const ToolParserRow* calls = nullptr;  // null: not known
  const ReasoningRow* reasoning = nullptr;
  std::string_view chat_template, prompt;
};

// nullopt: anything. Reasoning is free. An answer's own flags hold for the JSON of calls too. Errors: kInvalidArgument,
// kUnsupported; messages name the field.
Result<std::optional<StructuredOutputs>> reply_constraint(ReplyRules rules, const ReplyContext& context);

}  // namespace penstock
