#include "cli/console/machine.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace penstock {

int64_t machine_memory() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  int64_t kib = 0;
  meminfo >> key >> kib;
  int64_t limit = 0;  // stays 0 if the file contains "max"
  std::ifstream("/sys/fs/cgroup/memory.max") >> limit;
  return limit > 0 ? std::min(limit, kib * 1024) : kib * 1024;
}

}  // namespace penstock
