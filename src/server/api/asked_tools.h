// The tools of a request: which of them the model is shown, and in which form their calls go back.
//
// Functions are shown as they are. A custom tool is shown as a function of one string, `input`, and
// the functions of a namespace under the namespace's name and their own. A tool that only the
// API's owner can run (web search, code interpreter, …) is left out with a warning.
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

// The form in which calls of a shown function go back, where it is not a plain function of its
// name.
struct CallForm {
  std::string name;             // of the tool in the request
  std::string name_space = {};  // that the tool is in; "": none
  bool custom = false;          // the call is its text
};
using CallForms = std::map<std::string, CallForm, std::less<>>;  // by the name that is shown
// Returns null for a plain function.
const CallForm* form_of(const CallForms& forms, std::string_view shown);

struct AskedTools {
  // chat completions' functions; null: no field `tools`
  nlohmann::ordered_json functions = nullptr;
  ToolChoice choice;
  CallForms forms;
  std::vector<std::string> warnings;  // of the tools that are left out
};

// Takes `tools` out of a checked body and reads `tool_choice`. Errors: kInvalidArgument (a tool
// that lacks what its type needs, two that are shown under one name, a choice of a tool that is
// left out).
Result<AskedTools> take_tools(nlohmann::ordered_json& body, ToolApi api);

// The name under which the model sees a tool of a namespace ("": none).
std::string shown_name(const std::string& name_space, const std::string& name);
// The arguments of a shown custom tool.
nlohmann::ordered_json custom_arguments(std::string input);

}  // namespace penstock
