#include "cli/planning/machine_check.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/arena.h"
#include "base/memory.h"
#include "base/thread_pool.h"
#include "cli/console/terminal.h"
#include "hub/settings.h"
#include "ops/device_limits.h"
#include "ops/ops.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

// Returns the first line of a file without the line's end; "" if the file cannot be read.
std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != line.npos) return line.substr(colon + 2);
  }
  return "unknown";
}

Finding processor() {
  const int allowed = available_cpus();
  const long there = sysconf(_SC_NPROCESSORS_ONLN);
  Finding found{"processor", fmt::format("{}, {} of {} CPUs", processor_name(), allowed, there),
                ""};
  if (allowed < there) {
    found.advice =
        "the affinity mask or a control group withholds CPUs: taskset, or the container's --cpus";
  }
  return found;
}

// Returns the governor's finding; an empty topic if the system tells none.
Finding governor() {
  const std::string name = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  Finding found{name.empty() ? "" : "frequency", "governor " + name, ""};
  if (name == "powersave" || name == "conservative")
    found.advice = "cpupower frequency-set -g performance, for an even pace of tokens";
  return found;
}

Finding memory() {
  const int64_t total = total_memory(), available = available_memory();
  Finding found{"memory",
                fmt::format("{}, {} free", format_bytes(static_cast<double>(total)),
                            format_bytes(static_cast<double>(available))),
                ""};
  if (available < total / 4)
    found.advice = "other processes hold most of it: end them, or choose a smaller model";
  return found;
}

Finding huge_pages() {
  const std::string modes = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  const size_t open = modes.find('['), close = modes.find(']');
  const std::string mode = open != modes.npos && close != modes.npos
                               ? modes.substr(open + 1, close - open - 1)
                               : "unknown";
  Finding found{"huge pages", fmt::format("transparent, {}", mode), ""};
  if (mode != "always" && mode != "madvise") {
    found.advice = fmt::format(
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled: weights then lie in pages of "
        "{}, which are read faster",
        format_bytes(static_cast<double>(kHugePage)));
  }
  return found;
}

Finding numa_nodes() {
  std::error_code error;
  int nodes = 0;
  for (fs::directory_iterator entry("/sys/devices/system/node", error), end; entry != end && !error;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    nodes += name.starts_with("node") && name.find_first_not_of("0123456789", 4) == name.npos;
  }
  Finding found{nodes > 1 ? "NUMA" : "", fmt::format("{} nodes", nodes), ""};
  if (nodes > 1) {
    found.advice = fmt::format(
        "--tensor-parallel-size {}: a rank for each node reads its own memory "
        "(docs/guide/gpus-and-ranks.md)",
        nodes);
  }
  return found;
}

Finding gpu() {
  const auto ops = make_ops("cuda", {.n_threads = 1});
  if (!ops) return {"GPU", "none is used: " + ops.error().message, ""};
  const MemoryState memory = (*ops)->memory();
  return {"GPU",
          fmt::format("{}, {} of {} free", (*ops)->name(),
                      format_bytes(static_cast<double>(memory.free)),
                      format_bytes(static_cast<double>(memory.total))),
          ""};
}

Finding open_files() {
  constexpr rlim_t kWanted = 4096;  // connections of a busy server, and its files
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto text = [](rlim_t n) { return n == RLIM_INFINITY ? "any number" : std::to_string(n); };
  Finding found{"open files",
                fmt::format("{}, at most {}", text(limit.rlim_cur), text(limit.rlim_max)), ""};
  if (limit.rlim_max < kWanted) {
    found.advice = fmt::format(
        "a server holds one for each connection: ulimit -n {}, or LimitNOFILE= of its unit",
        kWanted);
  }
  return found;
}

// Returns the finding about limits of the address space; an empty topic if there is none.
Finding address_space() {
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  if (limit.rlim_cur != RLIM_INFINITY) {
    return {"address space", format_bytes(static_cast<double>(limit.rlim_cur)),
            "model files are mapped whole, which this limit counts: ulimit -v unlimited"};
  }
  if (first_line("/proc/sys/vm/overcommit_memory") == "2") {
    return {"address space", "strict accounting (vm.overcommit_memory = 2)",
            "reserved memory counts as used: sysctl vm.overcommit_memory=0"};
  }
  return {};
}

Finding downloads() {
  const auto settings = hub_settings();
  if (!settings) return {"downloads", settings.error().message, "correct this variable"};
  std::error_code error;
  fs::path folder = fs::absolute(settings->cache, error);
  while (!fs::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  const fs::space_info space = fs::space(folder, error);
  Finding found{"downloads",
                fmt::format("{}, {} free", settings->cache.string(),
                            format_bytes(error ? 0.0 : static_cast<double>(space.available))),
                ""};
  if (access(folder.c_str(), W_OK) != 0)
    found.advice = folder.string() + " cannot be written: HF_HUB_CACHE names another folder";
  return found;
}

}  // namespace

MachineCheck check_machine() {
  MachineCheck check;
  check.memory = available_memory();
  check.findings = {processor(), governor()};
  if (const auto ops = make_ops("cpu", {}); ops) {
    const MachineLimits limits = (*ops)->limits(0);
    check.read_bytes_per_second = limits.read_bytes_per_second;
    check.findings.push_back(
        {"kernels",
         fmt::format("{}: {:.0f} GB/s read, {:.0f} Gop/s {}, {:.0f} Gop/s {}", (*ops)->name(),
                     limits.read_bytes_per_second / 1e9, limits.floats.operations_per_second / 1e9,
                     limits.floats.unit, limits.integers.operations_per_second / 1e9,
                     limits.integers.unit),
         ""});
  } else {
    check.findings.push_back({"kernels", ops.error().message, "correct PENSTOCK_ISA"});
  }
  for (Finding found :
       {memory(), huge_pages(), numa_nodes(), gpu(), open_files(), address_space(), downloads()}) {
    check.findings.push_back(std::move(found));
  }
  std::erase_if(check.findings, [](const Finding& found) { return found.topic.empty(); });
  return check;
}

}  // namespace penstock
