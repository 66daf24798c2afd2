// Which CPUs ranks and engines get on machines that are not there.
#include "parallel/host_cpus.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "formats/temp_dir.h"

namespace penstock {
namespace {

// The kernel's files of a machine whose cores have two CPUs, c and c + n_cores, and lie on nodes by
// turns or one node after the other.
class Machine {
 public:
  Machine(int n_cores, int n_nodes) : n_cores_(n_cores) {
    for (int cpu = 0; cpu < 2 * n_cores; ++cpu) {
      const int core = cpu % n_cores;
      const auto folder = dir_.path() / ("cpu" + std::to_string(cpu));
      std::filesystem::create_directories(folder / "topology");
      std::filesystem::create_directories(folder / ("node" + std::to_string(core % n_nodes)));
      std::ofstream(folder / "topology" / "thread_siblings_list")
          << core << ',' << core + n_cores << '\n';
    }
  }
  std::vector<HostCpu> cpus() const {
    std::vector<int> all;
    for (int cpu = 0; cpu < 2 * n_cores_; ++cpu) all.push_back(cpu);
    return in_order_of_nodes(all, dir_.path());
  }

 private:
  const TempDir dir_;
  const int n_cores_;
};

std::vector<int> numbers(const std::vector<HostCpu>& cpus) {
  std::vector<int> numbers;
  for (const HostCpu& cpu : cpus) numbers.push_back(cpu.cpu);
  return numbers;
}

TEST(HostCpus, AThreadStaysOnItsCpusForAWhile) {
  const std::vector<HostCpu> before = host_cpus();
  const int last = before.back().cpu;
  {
    const OnCpus here({last});
    EXPECT_EQ(numbers(host_cpus()), std::vector<int>{last});
    const OnCpus anywhere({});
    EXPECT_EQ(numbers(host_cpus()), std::vector<int>{last});
  }
  EXPECT_EQ(host_cpus(), before);
}

TEST(HostCpus, ANodeForEach) {
  const Machine machine(8, 2);
  const auto cpus = machine.cpus();
  EXPECT_EQ(n_nodes(cpus), 2);
  EXPECT_EQ(numbers(share_of_cpus(cpus, 0, 2)), (std::vector{0, 8, 2, 10, 4, 12, 6, 14}));
  EXPECT_EQ(numbers(share_of_cpus(cpus, 1, 2)), (std::vector{1, 9, 3, 11, 5, 13, 7, 15}));
  EXPECT_EQ(numbers(share_of_cpus(cpus, 2, 4)), (std::vector{1, 9, 3, 11}));
}

// Two that compute do not share a core while there are enough.
TEST(HostCpus, CoresAreNotCut) {
  const Machine machine(6, 1);
  const auto cpus = machine.cpus();
  EXPECT_EQ(numbers(share_of_cpus(cpus, 0, 4)), (std::vector{0, 6, 1, 7}));
  EXPECT_EQ(numbers(share_of_cpus(cpus, 3, 4)), (std::vector{5, 11}));
  EXPECT_EQ(numbers(share_of_cpus(cpus, 0, 12)), (std::vector{0}));
}

TEST(HostCpus, EveryCpuIsSomebodys) {
  for (const int nodes : {1, 2, 3}) {
    const Machine machine(7, nodes);
    const auto cpus = machine.cpus();
    for (int count = 1; count <= 14; ++count) {
      std::set<int> all;
      size_t n = 0;
      for (int i = 0; i < count; ++i) {
        const auto own = numbers(share_of_cpus(cpus, i, count));
        EXPECT_FALSE(own.empty()) << nodes << ' ' << i << ' ' << count;
        all.insert(own.begin(), own.end());
        n += own.size();
      }
      EXPECT_EQ(n, 14u) << nodes << ' ' << count;
      EXPECT_EQ(all.size(), 14u);
    }
    EXPECT_TRUE(share_of_cpus(cpus, 0, 15).empty());
  }
}

TEST(HostCpus, WhatTheKernelDoesNotTell) {
  const TempDir nothing;
  const auto cpus = in_order_of_nodes(std::vector{3, 1, 2}, nothing.path());
  EXPECT_EQ(numbers(cpus), (std::vector{1, 2, 3}));
  EXPECT_EQ(n_nodes(cpus), 1);
}

}  // namespace
}  // namespace penstock
