// What a tool has given, as text for the model.
#pragma once
#include <string>

#include "server/mcp/json_rpc.h"

namespace penstock {

struct McpResult {
  std::string text;
  // The tool itself says that it has failed.
  bool failed = false;
};

// The texts of a tools/call result; of parts that are no text (images, sounds, files) a line each
// that says what they are. What is longer than `most` bytes is cut between two characters, and the
// text says so.
McpResult read_tool_result(const McpJson& result, size_t most);

// At most so many bytes of a text, with a last line that says how many were left out.
std::string cut_text(std::string text, size_t most);

}  // namespace penstock
