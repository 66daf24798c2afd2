// Division of this host's CPUs among ranks and engines: each gets its own, on the NUMA node of the
// memory that it reads.
#pragma once
#include <sched.h>

#include <filesystem>
#include <span>
#include <vector>

namespace penstock {

struct HostCpu {
  int node = 0;  // NUMA node
  // physical core: the first of the CPUs that share it
  int core = 0;
  int cpu = 0;
  auto operator<=>(const HostCpu&) const = default;
};

// Sorts CPUs by node, core and number. sysfs: folder that describes CPUs; a CPU that is not
// described counts as on node 0 with a core of its own.
std::vector<HostCpu> in_order_of_nodes(
    std::span<const int> cpus, const std::filesystem::path& sysfs = "/sys/devices/system/cpu");
// The CPUs that this process may use, sorted so.
std::vector<HostCpu> host_cpus();

int n_nodes(std::span<const HostCpu> cpus);  // at least 1

// Returns share `index` of `count`. Shares do not cross nodes when the nodes can be divided evenly,
// and consist of whole cores when there are enough of them. Empty when there are fewer CPUs than
// shares. in_order: sorted as by in_order_of_nodes().
std::vector<HostCpu> share_of_cpus(std::span<const HostCpu> in_order, int index, int count);

// Rank r's share of the CPUs that this process may use.
std::vector<int> cpus_of_rank(int rank, int n_ranks);

// Keeps the calling thread and the threads that it starts on these CPUs while it lives, so that
// memory that they touch first is on the CPUs' node. Does nothing for an empty list.
class OnCpus {
 public:
  explicit OnCpus(const std::vector<int>& cpus);
  ~OnCpus();
  OnCpus(const OnCpus&) = delete;

 private:
  cpu_set_t before_;
  const bool is_moved_;
};

}  // namespace penstock
