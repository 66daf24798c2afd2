#include "server/services/adapter_folders.h"

#include <algorithm>

namespace penstock {

namespace fs = std::filesystem;

Result<AdapterFolders> AdapterFolders::open(const std::vector<std::string>& folders) {
  AdapterFolders result;
  for (const std::string& folder : folders) {
    std::error_code error;
    fs::path real = fs::canonical(folder, error);
    if (error || !fs::is_directory(real, error))
      return errorf(ErrorCode::kNotFound, "--lora-dir: expected a folder, got {}", folder);
    result.folders_.push_back(std::move(real));
  }
  return result;
}

bool AdapterFolders::holds(const fs::path& real) const {
  return std::ranges::any_of(folders_, [&](const fs::path& folder) {
    return std::ranges::mismatch(folder, real).in1 == folder.end();
  });
}

// Checks that links inside an adapter's folder do not lead out of the allowed folders.
bool AdapterFolders::holds_entries(const fs::path& real) const {
  std::error_code error;
  if (!fs::is_directory(real, error)) return true;
  for (fs::directory_iterator entry(real, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code broken;
    const fs::path target = fs::canonical(entry->path(), broken);
    if (!broken && !holds(target)) return false;
  }
  return !error;
}

Result<std::optional<fs::path>> AdapterFolders::find(const std::string& path) const {
  std::vector<fs::path> candidates = {path};
  if (!fs::path(path).is_absolute()) {
    for (const fs::path& folder : folders_) candidates.push_back(folder / path);
  }
  bool would_be_inside = false;
  for (const fs::path& candidate : candidates) {
    std::error_code error;
    const fs::path real = fs::weakly_canonical(candidate, error);
    if (error || !holds(real)) continue;
    would_be_inside = true;
    if (!fs::exists(real, error)) continue;
    if (!holds_entries(real)) return std::nullopt;
    return real;
  }
  if (!would_be_inside) return std::nullopt;
  return errorf(ErrorCode::kNotFound, "lora_path: {} is not there", path);
}

}  // namespace penstock
