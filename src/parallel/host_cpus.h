// Which of this host's CPUs ranks and engines compute on: each its own, beside the memory that it reads.
#pragma once
#include <sched.h>

#include <filesystem>
#include <span>
#include <vector>

namespace penstock {

struct HostCpu {
  int node = 0;  // of memory (NUMA)
  int core = 0;  // the first of the CPUs that share it
  int cpu = 0;
  auto operator<=>(const HostCpu&) const = default;
};

// Neighbours share a node, and within it a core. sysfs: where the kernel tells of CPUs; what it does not tell is one node, and a core
// for each.
std::vector<HostCpu> in_order_of_nodes(std::span<const int> cpus,
                                       const std::filesystem::path& sysfs = "/sys/devices/system/cpu");
// Those that this process may use.
std::vector<HostCpu> host_cpus();

int n_nodes(std::span<const HostCpu> cpus);  // at least 1

// Share `index` of `count`: whole nodes where they can be dealt out evenly, else whole cores where there are enough of them. Empty
// where there are fewer CPUs than shares.
std::vector<HostCpu> share_of_cpus(std::span<const HostCpu> in_order, int index, int count);

// Rank r's share of the CPUs that this process may use.
std::vector<int> cpus_of_rank(int rank, int n_ranks);

// As long as one lives the calling thread, and what it starts, stay on these CPUs: what it touches first lies beside them. None: anywhere.
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
