#include "hub/download/shared_blobs.h"

#include <algorithm>
#include <sstream>
#include <string>

#include "base/ascii.h"
#include "base/regular_file.h"
#include "hub/download/file_lock.h"
#include "hub/model_name.h"
#include "hub/small_json.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxListBytes = size_t{16} << 20;
constexpr const char* kMarker =
    // file that marks the folder as a store of shared blobs; contains the layout's version
    ".huggingface-shared-blobs";
constexpr const char* kLayout = "1\n";

// Returns the target of the link if it is an entry of the cache's store; else "".
fs::path store_entry(const fs::path& cache, const fs::path& link) {
  std::error_code error;
  const fs::path target = fs::read_symlink(link, error);
  if (error) return {};
  const fs::path entry =
      (target.is_absolute() ? target : link.parent_path() / target).lexically_normal();
  const std::string hash = entry.filename().string();
  const bool is_hash = hash.size() == 64 && std::ranges::all_of(hash, is_ascii_hex_digit);
  if (!is_hash || entry != (cache / "blobs" / hash.substr(0, 2) / hash).lexically_normal())
    return {};
  return entry;
}

fs::path with_suffix(fs::path path, const char* suffix) {
  path += suffix;
  return path;
}

// Whether the list names a link that still points to the entry.
bool has_links(const fs::path& cache, const fs::path& entry, const std::string& list) {
  std::istringstream lines(list);
  for (std::string line; std::getline(lines, line);) {
    if (check_repo_path(line, "") && store_entry(cache, cache / line) == entry) return true;
  }
  return false;
}

}  // namespace

int64_t remove_shared_blob(const fs::path& cache, const fs::path& blob) {
  std::error_code error;
  const fs::path entry = store_entry(cache, blob);
  fs::remove(blob, error);
  if (entry.empty() || read_regular_file(cache / "blobs" / kMarker, 64).value_or("") != kLayout)
    return 0;
  const auto lock = FileLock::try_lock(with_suffix(entry, ".lock"));
  if (!lock || !*lock) return 0;
  const fs::path list = with_suffix(entry, ".refs");
  const auto links = read_regular_file(list, kMaxListBytes);
  if (!links || has_links(cache, entry, *links) ||
      !fs::is_regular_file(fs::symlink_status(entry, error)))
    return 0;
  const auto size = static_cast<int64_t>(fs::file_size(entry, error));
  if (error || !fs::remove(entry, error)) return 0;
  fs::remove(list, error);
  return size;
}

}  // namespace penstock
