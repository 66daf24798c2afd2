// The tools of a request: those shown to the model, and the form in which their calls are returned.
//
// Functions are shown unchanged. A custom tool is shown as a function with one string parameter,
// `input`; a function of a namespace under a name composed of both names. Tools that only the API's
// owner can run (web search, code interpreter, …) are left out with a warning.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "frontend/chat/reply_grammar.h"

namespace penstock {

enum class ToolApi : uint8_t { kChat, kResponses, kMessages };

// The form in which calls of a shown function are returned, if it is not a plain function of that
// name.
struct CallForm {
  std::string name;             // the tool's name in the request
  std::string name_space = {};  // the tool's namespace; "": none
  bool custom = false;          // a custom tool: its call is a text
};
using CallForms = std::map<std::string, CallForm, std::less<>>;  // by the shown name
// Returns null for a plain function.
const CallForm* form_of(const CallForms& forms, std::string_view shown);

struct AskedTools {
  // in the form of chat completions; null: the body has no `tools`
  nlohmann::ordered_json functions = nullptr;
  ToolChoice choice;
  CallForms forms;
  std::vector<std::string> warnings;  // about the tools that are left out
};

// Moves `tools` out of a checked body and reads `tool_choice`. Errors: kInvalidArgument (a tool
// lacks a field that its type needs, two tools have the same shown name, or the chosen tool is left
// out).
Result<AskedTools> take_tools(nlohmann::ordered_json& body, ToolApi api);

// Returns the name under which the model sees a tool; name_space: "" if it has none.
std::string shown_name(const std::string& name_space, const std::string& name);
// Returns the arguments of a call of a custom tool as the model sees them: {"input": …}.
nlohmann::ordered_json custom_arguments(std::string input);

}  // namespace penstock
