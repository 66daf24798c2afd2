#include "base/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "base/cgroup.h"

namespace penstock {
namespace {

constexpr const char* kGroupsFolder = "/sys/fs/cgroup";

// Returns the value of "key: N kB" in /proc/meminfo in bytes; a large number if it is missing.
int64_t meminfo(const char* wanted) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    int64_t kib = 0;
    if (words >> key >> kib && key == wanted) return kib * 1024;
  }
  return int64_t{1} << 40;
}

// Returns the bytes of a mapping whose pages were never touched.
int64_t untouched_bytes(const void* begin, size_t bytes) {
  constexpr size_t kAtOnce = size_t{1} << 20;  // pages
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t n_pages = (bytes + page - 1) / page;
  std::vector<unsigned char> there(std::min(n_pages, kAtOnce));
  int64_t untouched = 0;
  for (size_t first = 0; first < n_pages; first += kAtOnce) {
    const size_t n = std::min(kAtOnce, n_pages - first);
    char* at = static_cast<char*>(const_cast<void*>(begin)) + first * page;
    if (mincore(at, n * page, there.data()) != 0) return static_cast<int64_t>(bytes);
    untouched += std::count_if(there.begin(), there.begin() + static_cast<ptrdiff_t>(n),
                               [](unsigned char flags) { return (flags & 1) == 0; });
  }
  return untouched * static_cast<int64_t>(page);
}

struct Ledger {
  std::mutex mutex;
  std::map<const void*, size_t> promised;  // mappings by start address
};

Ledger& ledger() {
  static Ledger the_process;
  return the_process;
}

}  // namespace

int64_t resident_memory() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t total_memory() {
  const auto limit = cgroup_memory_limit(kGroupsFolder, own_cgroups());
  const int64_t machine = meminfo("MemTotal:");
  return limit ? std::min(machine, *limit) : machine;
}

int64_t available_memory() {
  const auto granted = cgroup_memory(kGroupsFolder, own_cgroups());
  const int64_t machine = meminfo("MemAvailable:");
  return std::max<int64_t>(0,
                           (granted ? std::min(machine, *granted) : machine) - promised_memory());
}

int64_t promised_memory() {
  const std::lock_guard lock(ledger().mutex);
  int64_t sum = 0;
  for (const auto& [begin, bytes] : ledger().promised) sum += untouched_bytes(begin, bytes);
  return sum;
}

PromisedMemory::PromisedMemory(const void* begin, size_t bytes) : begin_(begin) {
  const std::lock_guard lock(ledger().mutex);
  ledger().promised[begin] = bytes;
}

PromisedMemory::~PromisedMemory() {
  if (begin_ == nullptr) return;
  const std::lock_guard lock(ledger().mutex);
  ledger().promised.erase(begin_);
}

}  // namespace penstock
