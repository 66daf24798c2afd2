// The folders that LoRA adapters may come from while the server runs: a request names a path, the
// operator where it may lie.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace penstock {

class AdapterFolders {
 public:
  // Errors: kNotFound, a folder that is none.
  static Result<AdapterFolders> open(const std::vector<std::string>& folders);

  // The real path of an adapter: `path` as it is or below one of the folders, where it and what is
  // in it lie in one of them whatever links and ".." lead there. nullopt: none of them, or none
  // whose existence the asker may know of. Errors: kNotFound, it would be in a folder and is not
  // there.
  Result<std::optional<std::filesystem::path>> find(const std::string& path) const;
  bool empty() const { return folders_.empty(); }

 private:
  bool holds(const std::filesystem::path& real) const;
  bool holds_entries(const std::filesystem::path& real) const;

  std::vector<std::filesystem::path> folders_;  // without links
};

}  // namespace penstock
