// The grammar of tool calls: what a description of how calls are written (call_format.h) allows for given tools.
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
    kStrict,      // obey the schema, or it is an error
    kBestEffort,  // obey it where it can be enforced
    kFree,        // any JSON object
  };
  const nlohmann::ordered_json* function;  // OpenAI's {name, parameters, …}
  Arguments arguments;
  std::string where;  // of the tool, for messages: "tools[2]"
};

// Formats of structural tags. Errors: kInvalidArgument, kUnsupported (a strict tool's schema; a name that such calls cannot
// have).
//
// All the calls of a reply, one at least, with what stands around them. one: exactly one.
Result<nlohmann::ordered_json> calls_grammar(const CallWriting& writing,
                                             const std::vector<CallableTool>& tools, bool one);
// One of "name" + writing.name_end + arguments + writing.call_end.
Result<nlohmann::ordered_json> named_calls_grammar(const CallWriting& writing,
                                                   const std::vector<CallableTool>& tools);

}  // namespace penstock
