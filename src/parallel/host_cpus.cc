#include "parallel/host_cpus.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>

#include "base/result.h"
#include "base/thread_pool.h"
#include "parallel/shard.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

int node_of_cpu(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    int node = 0;
    if (name.starts_with("node") &&
        std::from_chars(name.data() + 4, name.data() + name.size(), node).ec == std::errc())
      return node;
  }
  return 0;
}

// Returns the first CPU of the core, from a list such as "0,64" or "0-1".
int core_of_cpu(const fs::path& folder, int cpu) {
  int first = cpu;
  std::ifstream(folder / "topology" / "thread_siblings_list") >> first;
  return first;
}

int first_of_node(std::span<const HostCpu> cpus, int n_before) {
  size_t at = 0;
  for (; n_before > 0 && at < cpus.size(); --n_before) {
    const int node = cpus[at].node;
    while (at < cpus.size() && cpus[at].node == node) ++at;
  }
  return static_cast<int>(at);
}

int smallest_node(std::span<const HostCpu> cpus) {
  auto least = static_cast<int>(cpus.size());
  for (int node = 0; node < n_nodes(cpus); ++node)
    least = std::min(least, first_of_node(cpus, node + 1) - first_of_node(cpus, node));
  return least;
}

// Returns the number of CPUs of every core; 1 if cores differ.
int cpus_per_core(std::span<const HostCpu> cpus) {
  int n_cores = 0;
  for (size_t i = 0; i < cpus.size(); ++i)
    n_cores += i == 0 || cpus[i].core != cpus[i - 1].core || cpus[i].node != cpus[i - 1].node;
  const auto n = static_cast<int>(cpus.size());
  if (n_cores == 0 || n % n_cores != 0) return 1;
  const int each = n / n_cores;
  for (int i = 0; i < n; ++i) {
    if (cpus[static_cast<size_t>(i)].core != cpus[static_cast<size_t>(i - i % each)].core) return 1;
  }
  return each;
}

}  // namespace

std::vector<HostCpu> in_order_of_nodes(std::span<const int> cpus, const fs::path& sysfs) {
  std::vector<HostCpu> found;
  for (const int cpu : cpus) {
    const fs::path folder = sysfs / fmt::format("cpu{}", cpu);
    found.push_back({node_of_cpu(folder), core_of_cpu(folder, cpu), cpu});
  }
  std::ranges::sort(found);
  return found;
}

std::vector<HostCpu> host_cpus() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
  }
  return in_order_of_nodes(cpus);
}

int n_nodes(std::span<const HostCpu> cpus) {
  int n = 1;
  for (size_t i = 1; i < cpus.size(); ++i) n += cpus[i].node != cpus[i - 1].node;
  return n;
}

std::vector<HostCpu> share_of_cpus(std::span<const HostCpu> in_order, int index, int count) {
  if (static_cast<int>(in_order.size()) < count) return {};
  const int nodes = n_nodes(in_order), per_node = count / nodes;
  if (nodes > 1 && count % nodes == 0 && smallest_node(in_order) >= per_node) {
    const int node = index / per_node;
    const int first = first_of_node(in_order, node), end = first_of_node(in_order, node + 1);
    const auto own = in_order.subspan(static_cast<size_t>(first), static_cast<size_t>(end - first));
    return share_of_cpus(own, index % per_node, per_node);
  }
  const auto n = static_cast<int>(in_order.size());
  const int each = cpus_per_core(in_order);
  const Shard::Range own = Shard{index, count}.range(n, n / each >= count ? each : 1);
  const auto part =
      in_order.subspan(static_cast<size_t>(own.first), static_cast<size_t>(own.count));
  return {part.begin(), part.end()};
}

OnCpus::OnCpus(const std::vector<int>& cpus)
    : is_moved_(!cpus.empty() && sched_getaffinity(0, sizeof before_, &before_) == 0) {
  if (is_moved_) stay_on_cpus(cpus);
}

OnCpus::~OnCpus() {
  if (is_moved_) sched_setaffinity(0, sizeof before_, &before_);
}

std::vector<int> cpus_of_rank(int rank, int n_ranks) {
  std::vector<int> cpus;
  for (const HostCpu& cpu : share_of_cpus(host_cpus(), rank, n_ranks)) cpus.push_back(cpu.cpu);
  return cpus;
}

}  // namespace penstock
