// As many threads as the control groups and the affinity mask grant, and the memory that the groups
// leave.
#include "base/cgroup.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>
#include <thread>

#include "base/thread_pool.h"
#include "formats/temp_dir.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

class CgroupTest : public ::testing::Test {
 protected:
  void put(const std::string& path, const std::string& content) {
    fs::create_directories((dir_ / path).parent_path());
    std::ofstream(dir_ / path) << content;
  }
  int cpus(std::string_view groups = "0::/\n") const { return cgroup_cpus(dir_.path(), groups); }
  std::optional<int64_t> memory(std::string_view groups) const {
    return cgroup_memory(dir_.path(), groups);
  }
  std::optional<int64_t> memory_limit(std::string_view groups) const {
    return cgroup_memory_limit(dir_.path(), groups);
  }

  TempDir dir_;
};

TEST_F(CgroupTest, VersionTwo) {
  EXPECT_EQ(cpus(), 0);
  for (const auto& [text, expected] : std::initializer_list<std::pair<const char*, int>>{
           {"max 100000\n", 0},
           {"200000 100000\n", 2},
           {"150000 100000\n", 2},
           {"140000 100000\n", 1},
           {"20000 100000\n", 1},
           {"6400000 100000", 64},
           {"", 0},
           {"100000", 0},
           {"100000 0\n", 0},
           {"-1 100000\n", 0},
           {"many 100000\n", 0},
       }) {
    put("cpu.max", text);
    EXPECT_EQ(cpus(), expected) << text;
    EXPECT_EQ(cpus(""), expected) << text;
    EXPECT_EQ(cpus("garbage\n::\n0:\n\n"), expected) << text;
  }
}

// A quota of any group above counts, the least most.
TEST_F(CgroupTest, NestedGroups) {
  put("system.slice/penstock.service/cpu.max", "400000 100000\n");
  EXPECT_EQ(cpus("0::/system.slice/penstock.service\n"), 4);
  EXPECT_EQ(cpus("0::/system.slice\n"), 0);
  put("system.slice/cpu.max", "300000 100000\n");
  EXPECT_EQ(cpus("0::/system.slice/penstock.service\n"), 3);
  put("system.slice/cpu.max", "max 100000\n");
  EXPECT_EQ(cpus("0::/system.slice/penstock.service\n"), 4);
  put("cpu.max", "100000 100000\n");
  EXPECT_EQ(cpus("0::/system.slice/penstock.service\n"), 1);
  EXPECT_EQ(cpus("0::/../other\n"), 1);
}

TEST_F(CgroupTest, VersionOne) {
  const char* const groups = "5:devices:/docker/1\n4:cpu,cpuacct:/docker/1\n0::/\n";
  put("cpu/cpu.cfs_quota_us", "-1\n");
  put("cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpus(groups), 0);
  put("cpu/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(cpus(groups), 3);
  put("cpu,cpuacct/docker/1/cpu.cfs_quota_us", "200000\n");
  put("cpu,cpuacct/docker/1/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpus(groups), 2);
  EXPECT_EQ(cpus("1:cpuset:/docker/1\n"), 3);  // the CPU controller's groups alone
}

// A service under systemd's MemoryMax: the limit stands in its own group, the root has none.
TEST_F(CgroupTest, MemoryOfTheTightestGroup) {
  const char* const groups = "0::/system.slice/penstock.service\n";
  EXPECT_EQ(memory(groups), std::nullopt);
  put("system.slice/penstock.service/memory.max", "8000000\n");
  EXPECT_EQ(memory(groups), std::nullopt) << "what is in use is not known";
  put("system.slice/penstock.service/memory.current", "1000000\n");
  EXPECT_EQ(memory(groups), 7000000);
  EXPECT_EQ(memory("0::/\n"), std::nullopt);
  EXPECT_EQ(memory("0::/../other\n"), std::nullopt);
  put("system.slice/memory.max", "5000000\n");
  put("system.slice/memory.current", "4500000\n");
  EXPECT_EQ(memory(groups), 500000) << "shared with the slice's other services";
  put("system.slice/memory.max", "max\n");
  EXPECT_EQ(memory(groups), 7000000);
  put("system.slice/penstock.service/memory.high", "3000000\n");
  EXPECT_EQ(memory(groups), 2000000) << "above it the group is held back";
  put("system.slice/penstock.service/memory.current", "9000000\n");
  EXPECT_EQ(memory(groups), 0);
}

// The limit counts though nothing says how much of it is in use.
TEST_F(CgroupTest, LimitOfTheTightestGroup) {
  const char* const groups = "0::/system.slice/penstock.service\n";
  EXPECT_EQ(memory_limit(groups), std::nullopt);
  put("system.slice/penstock.service/memory.max", "8000000\n");
  EXPECT_EQ(memory_limit(groups), 8000000);
  EXPECT_EQ(memory_limit("0::/\n"), std::nullopt);
  put("system.slice/memory.max", "5000000\n");
  EXPECT_EQ(memory_limit(groups), 5000000);
  put("system.slice/penstock.service/memory.high", "3000000\n");
  EXPECT_EQ(memory_limit(groups), 3000000);
  put("memory/docker/1/memory.limit_in_bytes", "4000000\n");
  EXPECT_EQ(memory_limit("4:memory:/docker/1\n"), 4000000);
}

TEST_F(CgroupTest, MemoryWithoutCachedFiles) {
  put("memory.max", "8000000\n");
  put("memory.current", "6000000\n");
  put("memory.stat",
      "anon 1000000\nfile 5000000\nshmem 500000\ninactive_file 3000000\nactive_file 1500000\n");
  EXPECT_EQ(memory("0::/\n"), 6500000);
  put("memory.stat", "inactive_file 7000000\n");
  EXPECT_EQ(memory("0::/\n"), 8000000);
}

TEST_F(CgroupTest, MemoryOfVersionOne) {
  const char* const groups = "4:memory:/docker/1\n1:cpu,cpuacct:/docker/2\n0::/\n";
  put("memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("memory/memory.usage_in_bytes", "5000000\n");
  put("memory/docker/1/memory.limit_in_bytes", "4000000\n");
  put("memory/docker/1/memory.usage_in_bytes", "3000000\n");
  put("memory/docker/1/memory.stat",
      "inactive_file 10\ntotal_inactive_file 1000000\ntotal_active_file 500000\n");
  put("memory/docker/2/memory.limit_in_bytes", "10\n");
  put("memory/docker/2/memory.usage_in_bytes", "10\n");
  EXPECT_EQ(memory(groups), 2500000);
}

TEST(AvailableCpus, FollowsTheAffinityMask) {
  std::thread([] {  // whose mask alone is changed
    cpu_set_t all;
    ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    const int n = available_cpus();
    EXPECT_GE(n, 1);
    EXPECT_LE(n, CPU_COUNT(&all));
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &all)) continue;
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
      EXPECT_EQ(available_cpus(), 1);
      EXPECT_EQ(ThreadPool().size(), 1);
    }
  })
      .join();
}

}  // namespace
}  // namespace penstock
