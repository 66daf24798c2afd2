#include "hub/files_below.h"

#include <algorithm>

#include "base/regular_file.h"
#include "hub/model_name.h"
#include "hub/small_json.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxDepth = 8;
constexpr size_t kMaxFiles = 100'000;
constexpr size_t kMaxIndexBytes = size_t{64} << 20;

bool is_inside(const fs::path& path, const fs::path& folder) {
  const auto [end, unused] = std::ranges::mismatch(folder, path);
  return end == folder.end();
}

// Returns false for a link that leads outside of `inside`.
bool allowed(const fs::directory_entry& entry, const fs::path& inside) {
  std::error_code error;
  if (inside.empty() || !entry.is_symlink(error)) return true;
  const fs::path target = fs::canonical(entry.path(), error);
  return !error && is_inside(target, inside);
}

}  // namespace

FilesBelow files_below(const fs::path& folder, const fs::path& inside) {
  FilesBelow found;
  std::error_code error;
  const fs::path root = inside.empty() ? inside : fs::canonical(inside, error);
  auto walk = fs::recursive_directory_iterator(
      folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && walk != fs::recursive_directory_iterator(); walk.increment(error)) {
    if (found.files.size() >= kMaxFiles) break;
    if (walk.depth() >= kMaxDepth) walk.disable_recursion_pending();
    std::error_code ignored;
    if (!walk->is_regular_file(ignored)) continue;
    std::string path = walk->path().lexically_relative(folder).generic_string();
    if (!check_repo_path(path, "")) continue;
    if (!allowed(*walk, root)) {
      found.refused.push_back(std::move(path));
    } else {
      found.files.push_back(
          {.path = std::move(path), .size = static_cast<int64_t>(walk->file_size(ignored))});
    }
  }
  std::ranges::sort(found.files, {}, &RepoFile::path);
  return found;
}

ReadRepoFile read_below(fs::path folder) {
  return [folder = std::move(folder)](const std::string& path) {
    return read_regular_file(folder / path, kMaxIndexBytes);
  };
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  auto entry = fs::directory_iterator(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && entry != fs::directory_iterator() && names.size() < kMaxFiles;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace penstock
