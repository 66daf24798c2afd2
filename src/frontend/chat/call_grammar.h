// Makes grammars of tool calls from the description of a call format (call_format.h) and the tools.
#pragma once
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "frontend/chat/call_format.h"

namespace penstock {

// A tool that may be called.
struct CallableTool {
  enum class Arguments : uint8_t {
    kStrict,      // the schema is enforced; a schema that cannot be is an error
    kBestEffort,  // the schema is enforced where this is possible
    kFree,        // any JSON object
  };
  // OpenAI's {name, parameters, …}. With a `grammar` {syntax: "lark" or "regex", definition} there
  // is one argument, the string `input`, which obeys it whatever `arguments` says.
  const nlohmann::ordered_json* function;
  Arguments arguments;
  // place of the tool in the request, for error messages: "tools[2]"
  std::string where;
};

// Both functions return formats of structural tags. Errors: kInvalidArgument; kUnsupported, when
// the schema of a strict tool cannot be enforced or the format cannot write a tool's name.
//
// Returns the grammar of all calls of a reply with the texts around them: at least one call, or
// exactly one if `one`. opened: the mark that the prompt ends with, which the first call continues;
// empty: none.
Result<nlohmann::ordered_json> calls_grammar(const CallWriting& writing,
                                             const std::vector<CallableTool>& tools, bool one,
                                             std::string_view opened = {});
// Returns the grammar of a single call without its begin mark: name + writing.name_end + arguments
// + writing.call_end.
Result<nlohmann::ordered_json> named_calls_grammar(const CallWriting& writing,
                                                   const std::vector<CallableTool>& tools);

}  // namespace penstock
