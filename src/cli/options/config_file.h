// The file of `penstock --config`: options of commands, and sections that are no command's.
#pragma once
#include <CLI/CLI.hpp>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

// Sections whose names begin with "mcp." are kept apart: CLI11 would refuse them.
class ConfigFile : public CLI::ConfigTOML {
 public:
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override;
  // What the file says in [mcp.NAME] and [mcp.NAME.PART]: parents are {"mcp", NAME} and {"mcp",
  // NAME, PART}.
  const std::vector<CLI::ConfigItem>& mcp() const { return mcp_; }

 private:
  mutable std::vector<CLI::ConfigItem> mcp_;
};

// Those of the file that the program of a command has read.
std::vector<CLI::ConfigItem> mcp_sections(const CLI::App& command);

}  // namespace penstock
