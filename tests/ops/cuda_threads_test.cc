// Threads of the CUDA backend on the host.
#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "ops/ops.h"

#ifdef PENSTOCK_CUDA_EMULATION

namespace penstock {
namespace {

struct Worker {
  std::thread::id caller = std::this_thread::get_id();
  std::mutex mutex;
  bool seen = false;
  cpu_set_t cpus{};
};

// Where several engines have CPUs of their own, neither their host's part of a step nor the experts
// on the host take those of others.
TEST(CudaThreads, StayOnTheEnginesCpus) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &allowed)) ++cpu;
  const auto ops =
      make_ops("cuda_emulated", {.n_threads = 2, .cpus = std::vector<int>{cpu}}).value();
  for (Ops* own : {ops.get(), ops->host()}) {
    ASSERT_NE(own, nullptr);
    Worker worker;
    const auto note = [](void* ctx, int, int) {
      auto& one = *static_cast<Worker*>(ctx);
      if (std::this_thread::get_id() == one.caller) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));  // lets the other begin
        return;
      }
      const std::lock_guard lock(one.mutex);
      one.seen = sched_getaffinity(0, sizeof one.cpus, &one.cpus) == 0;
    };
    for (int i = 0; i < 1000 && !worker.seen; ++i) own->for_each(2, note, &worker);
    ASSERT_TRUE(worker.seen);
    EXPECT_EQ(CPU_COUNT(&worker.cpus), 1) << own->name();
    EXPECT_TRUE(CPU_ISSET(cpu, &worker.cpus)) << own->name();
  }
}

}  // namespace
}  // namespace penstock

#endif
