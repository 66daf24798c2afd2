#include "base/cgroup.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "base/locale_free.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

// Returns quota / period, or 0 for no quota.
double share_of(double quota, double period) {
  return quota > 0 && period > 0 ? quota / period : 0;
}

double share_v2(const fs::path& folder) {
  std::ifstream file(folder / "cpu.max");
  std::string quota;
  double period = 0;
  return file >> quota >> period && quota != "max"
             ? share_of(locale_free_strtod(quota.c_str(), nullptr), period)
             : 0;
}

double share_v1(const fs::path& folder) {
  std::ifstream quota_file(folder / "cpu.cfs_quota_us"), period_file(folder / "cpu.cfs_period_us");
  double quota = 0, period = 0;  // a quota of -1 means none
  return quota_file >> quota && period_file >> period ? share_of(quota, period) : 0;
}

// Returns the number in the file; nothing for "max", other text, and missing files.
std::optional<int64_t> bytes_in(const fs::path& path) {
  std::ifstream file(path);
  int64_t bytes = 0;
  return file >> bytes && bytes >= 0 ? std::optional(bytes) : std::nullopt;
}

// Returns the page cache of files, without tmpfs. Version 1's plain counts exclude child groups.
int64_t cached_files(const fs::path& folder) {
  std::ifstream file(folder / "memory.stat");
  int64_t own = 0, total = 0;
  std::string key;
  for (int64_t bytes = 0; file >> key >> bytes;) {
    if (key == "active_file" || key == "inactive_file") own += bytes;
    if (key == "total_active_file" || key == "total_inactive_file") total += bytes;
  }
  return std::max(own, total);
}

std::optional<int64_t> memory_limit(const fs::path& folder) {
  std::optional<int64_t> limit;
  for (const char* name : {"memory.max", "memory.high", "memory.limit_in_bytes"}) {
    const auto bytes = bytes_in(folder / name);
    if (bytes && (!limit || *bytes < *limit)) limit = bytes;
  }
  return limit;
}

std::optional<int64_t> memory_left(const fs::path& folder) {
  const std::optional<int64_t> limit = memory_limit(folder);
  auto used = bytes_in(folder / "memory.current");
  if (!used) used = bytes_in(folder / "memory.usage_in_bytes");
  if (!limit || !used) return std::nullopt;
  const int64_t kept = std::max<int64_t>(0, *used - cached_files(folder));
  return std::max<int64_t>(0, *limit - kept);
}

// Returns the mount point of a line "id:controllers:path" that has the controller (version 1) or is
// of version 2; "": neither.
fs::path hierarchy(const fs::path& mount, std::string_view controllers,
                   std::string_view controller) {
  if (controllers.empty()) return mount;
  for (size_t at = 0; at <= controllers.size();) {
    const size_t end = std::min(controllers.find(',', at), controllers.size());
    if (controllers.substr(at, end - at) == controller) {
      std::error_code error;
      const fs::path joint = mount / controllers;  // "cpu,cpuacct"
      return fs::exists(joint, error) ? joint : mount / controller;
    }
    at = end + 1;
  }
  return {};
}

// Returns the folders of this process's groups of a controller and of all their ancestors.
std::vector<fs::path> group_folders(const fs::path& mount, std::string_view groups,
                                    std::string_view controller) {
  std::vector<fs::path> folders = {mount, mount / controller};
  while (!groups.empty()) {
    const size_t end = std::min(groups.find('\n'), groups.size());
    const std::string_view line = groups.substr(0, end);
    groups.remove_prefix(std::min(end + 1, groups.size()));
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    fs::path folder = hierarchy(mount, line.substr(first + 1, second - first - 1), controller);
    if (folder.empty()) continue;
    folders.push_back(folder);
    for (const fs::path& part : fs::path(line.substr(second + 1)).relative_path()) {
      if (part == "..") break;  // outside the namespace
      folders.push_back(folder /= part);
    }
  }
  return folders;
}

// Returns the least value over the groups of memory; nothing if none has one.
std::optional<int64_t> least_of(const fs::path& mount, std::string_view groups,
                                std::optional<int64_t> (*value_of)(const fs::path&)) {
  std::optional<int64_t> least;
  for (const fs::path& folder : group_folders(mount, groups, "memory")) {
    const auto value = value_of(folder);
    if (value && (!least || *value < *least)) least = value;
  }
  return least;
}

}  // namespace

int cgroup_cpus(const fs::path& mount, std::string_view groups) {
  double least = 0;
  for (const fs::path& folder : group_folders(mount, groups, "cpu")) {
    const double share = std::max(share_v2(folder), share_v1(folder));
    if (share > 0 && (least == 0 || share < least)) least = share;
  }
  return least > 0 ? std::max(1, static_cast<int>(least + 0.5)) : 0;
}

std::optional<int64_t> cgroup_memory(const fs::path& mount, std::string_view groups) {
  return least_of(mount, groups, memory_left);
}

std::optional<int64_t> cgroup_memory_limit(const fs::path& mount, std::string_view groups) {
  return least_of(mount, groups, memory_limit);
}

std::string own_cgroups() {
  std::ifstream file("/proc/self/cgroup");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace penstock
