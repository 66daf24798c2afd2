// The folders from which LoRA adapters may be loaded at run time, set by the operator.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace penstock {

class AdapterFolders {
 public:
  // Errors: kNotFound (a folder does not exist).
  static Result<AdapterFolders> open(const std::vector<std::string>& folders);

  // Resolves the path of an adapter, absolute or relative to one of the folders. The adapter and
  // its entries must lie in one of the folders after links and ".." are resolved. nullopt: it does
  // not, or its existence must not be revealed. Errors: kNotFound (it would be inside a folder but
  // does not exist).
  Result<std::optional<std::filesystem::path>> find(const std::string& path) const;
  bool empty() const { return folders_.empty(); }

 private:
  bool holds(const std::filesystem::path& real) const;
  bool holds_entries(const std::filesystem::path& real) const;

  std::vector<std::filesystem::path> folders_;  // without links
};

}  // namespace penstock
