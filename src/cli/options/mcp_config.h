// The MCP servers of `penstock --config FILE serve`: a section [mcp.NAME] for each.
#pragma once
#include <CLI/CLI.hpp>
#include <vector>

#include "base/result.h"
#include "server/mcp/mcp_config.h"

namespace penstock {

// Reads
//   [mcp.files]
//   command = "mcp-files"            # or url = "https://…", with [mcp.files.headers]
//   args = ["--root", "/srv"]
//   allowed_tools = ["read_file"]    # without: all
//   keys = ["key_…"]                 # ids of API keys; without: all
//   require_approval = "never"       # or "always"; without: as requests say
//   timeout = 30                     # seconds
//   max_result_bytes = 64KiB
//   [mcp.files.env]                  # name = value each; ${NAME} is a variable of this process
//   [mcp.files.approval]             # always = [names], never = [names]: of these tools
// Errors: kInvalidArgument, with section, field, expected and given value.
Result<std::vector<McpServerConfig>> read_mcp_config(const std::vector<CLI::ConfigItem>& sections);

}  // namespace penstock
