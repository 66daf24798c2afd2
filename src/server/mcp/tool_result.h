// Converts the result of an MCP tool to text for the model.
#pragma once
#include <string>

#include "server/mcp/json_rpc.h"

namespace penstock {

struct McpResult {
  std::string text;
  // the tool reports an error
  bool failed = false;
};

// Returns the texts of a tools/call result; each part that is not text (image, audio, file) becomes
// a line that describes it. Text beyond `most` bytes is cut at a character boundary, with a note.
McpResult read_tool_result(const McpJson& result, size_t most);

// Cuts a text to `most` bytes, including a last line that says how many bytes were left out.
std::string cut_text(std::string text, size_t most);

}  // namespace penstock
