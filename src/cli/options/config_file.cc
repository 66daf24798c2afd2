#include "cli/options/config_file.h"

#include <algorithm>
#include <iterator>
#include <sstream>

namespace penstock {

// Accepts comments behind section headers, which CLI11 does not.
std::vector<CLI::ConfigItem> ConfigFile::from_config(std::istream& input) const {
  std::string text;
  for (std::string line; std::getline(input, line); text += line + '\n') {
    const std::string before = CLI::detail::trim_copy(line.substr(0, line.find('#')));
    if (before.starts_with('[') && before.ends_with(']')) line = before;
  }
  std::istringstream lines(text);
  auto items = ConfigBase::from_config(lines);
  const auto [mcp, end] = std::ranges::stable_partition(
      items, [](const auto& item) { return item.parents.empty() || item.parents[0] != "mcp"; });
  mcp_.assign(std::make_move_iterator(mcp), std::make_move_iterator(end));
  items.erase(mcp, end);
  return items;
}

std::vector<CLI::ConfigItem> mcp_sections(const CLI::App& command) {
  const CLI::App* const program = command.get_parent();
  if (program == nullptr) return {};
  const auto file = std::dynamic_pointer_cast<ConfigFile>(program->get_config_formatter());
  return file == nullptr ? std::vector<CLI::ConfigItem>() : file->mcp();
}

}  // namespace penstock
