#include "base/cpu_limit.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace penstock {
namespace {

namespace fs = std::filesystem;

// quota / period, or 0 for none.
double share_of(double quota, double period) { return quota > 0 && period > 0 ? quota / period : 0; }

double share_v2(const fs::path& folder) {
  std::ifstream file(folder / "cpu.max");
  std::string quota;
  double period = 0;
  return file >> quota >> period && quota != "max" ? share_of(std::atof(quota.c_str()), period) : 0;
}

double share_v1(const fs::path& folder) {
  std::ifstream quota_file(folder / "cpu.cfs_quota_us"), period_file(folder / "cpu.cfs_period_us");
  double quota = 0, period = 0;  // a quota of -1: none
  return quota_file >> quota && period_file >> period ? share_of(quota, period) : 0;
}

// Where a line "id:controllers:path" of version 1 that has the CPU controller, or of version 2, is mounted;
// "" = it is about something else.
fs::path hierarchy(const fs::path& mount, std::string_view controllers) {
  if (controllers.empty()) return mount;
  for (size_t at = 0; at <= controllers.size();) {
    const size_t end = std::min(controllers.find(',', at), controllers.size());
    if (controllers.substr(at, end - at) == "cpu") {
      std::error_code error;
      const fs::path joint = mount / controllers;  // "cpu,cpuacct"
      return fs::exists(joint, error) ? joint : mount / "cpu";
    }
    at = end + 1;
  }
  return {};
}

}  // namespace

int cgroup_cpus(const fs::path& mount, std::string_view groups) {
  double least = 0;
  const auto limit = [&](double share) {
    if (share > 0 && (least == 0 || share < least)) least = share;
  };
  const auto limit_by = [&](const fs::path& folder) { limit(std::max(share_v2(folder), share_v1(folder))); };
  limit_by(mount);
  limit_by(mount / "cpu");
  while (!groups.empty()) {
    const size_t end = std::min(groups.find('\n'), groups.size());
    const std::string_view line = groups.substr(0, end);
    groups.remove_prefix(std::min(end + 1, groups.size()));
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const fs::path root = hierarchy(mount, line.substr(first + 1, second - first - 1));
    if (root.empty()) continue;
    fs::path folder = root;
    limit_by(folder);
    for (const fs::path& part : fs::path(line.substr(second + 1)).relative_path()) {
      if (part == "..") break;  // outside the namespace
      limit_by(folder /= part);
    }
  }
  return least > 0 ? std::max(1, static_cast<int>(least + 0.5)) : 0;
}

}  // namespace penstock
