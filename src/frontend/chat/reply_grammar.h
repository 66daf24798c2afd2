// Makes the grammar of a whole reply: reasoning, then text, a constrained answer, or calls.
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
    kAuto,      // text or calls
    kNone,      // no call
    kRequired,  // at least one call and no text
    kNamed,     // exactly one call of the first name
  };
  Kind kind = Kind::kAuto;
  // names of the tools that may be called; empty: all
  std::vector<std::string> names = {};
};

struct ReplyRules {
  // OpenAI's list of the tools that the model is shown; null: none
  const nlohmann::ordered_json* tools = nullptr;
  ToolChoice choice;
  bool one_call = false;
  // Constraint on a reply that is no call; nullopt: any text. Beside tools it may have options
  // only, which then apply to the calls.
  std::optional<StructuredOutputs> answer;
};

// The model's reply formats and the prompt.
struct ReplyContext {
  const ToolParserRow* calls = nullptr;  // the model's call format; null: not known
  const ReasoningRow* reasoning = nullptr;
  std::string_view chat_template, prompt;
};

// Returns the constraint on the whole reply; nullopt: none is needed. Reasoning is not constrained.
// The JSON flags of `rules.answer` apply to the JSON of calls too. Errors: kInvalidArgument,
// kUnsupported; messages name the field.
Result<std::optional<StructuredOutputs>> reply_constraint(ReplyRules rules,
                                                          const ReplyContext& context);

}  // namespace penstock
