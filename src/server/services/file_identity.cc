#include "server/services/file_identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

namespace penstock {
namespace {

namespace fs = std::filesystem;

std::string identity_of_file(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) return {};
  const auto changed = fs::last_write_time(path, error);
  return fmt::format("{} {} {};", path.filename().string(), size,
                     error ? 0 : changed.time_since_epoch().count());
}

}  // namespace

std::string shard_stem(const std::string& stem) {
  const size_t of = stem.rfind("-of-");
  return of == std::string::npos || of < 6 ? stem : stem.substr(0, of - 5);
}

std::string identity_of_files(const std::string& path) {
  std::error_code error;
  const fs::path model = path;
  const bool whole = fs::is_directory(path, error);
  const std::string stem = shard_stem(model.stem().string());
  if (!whole && stem == model.stem()) return identity_of_file(path);
  std::vector<std::string> files;
  if (whole) {  // weights may lie in folders of it
    for (fs::recursive_directory_iterator file(model, error), end; !error && file != end;
         file.increment(error))
      files.push_back(identity_of_file(file->path()));
  } else {
    for (fs::directory_iterator file(fs::absolute(model, error).parent_path(), error), end;
         !error && file != end; file.increment(error)) {
      if (shard_stem(file->path().stem().string()) == stem)
        files.push_back(identity_of_file(file->path()));
    }
  }
  std::ranges::sort(files);
  std::string all;
  for (const std::string& one : files) all += one;
  return all;
}

}  // namespace penstock
