// The limits of the CPU backend, measured with its threads.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/arena.h"
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "kernels/probe_kernels.h"
#include "ops/cpu/cpu_ops.h"

namespace penstock {
namespace {

template <class F>
double median_seconds(int rounds, F&& round) {
  std::vector<double> seconds;
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    round();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + rounds / 2, seconds.end());
  return seconds[rounds / 2];
}

}  // namespace

MachineLimits CpuOps::limits() {
  ThreadPool& pool = pool_;
  const ProbeKernels& probe = probe_kernels(kernels_.name);
  MachineLimits limits;
  limits.n_threads = pool.size();
  limits.compute_unit = probe.compute_name;
  volatile uint64_t sink = 0;

  constexpr size_t kBytes = size_t{512} << 20;
  if (char* buffer = static_cast<char*>(std::aligned_alloc(kHugePage, kBytes)); buffer != nullptr) {
    madvise(buffer, kBytes, MADV_HUGEPAGE);
    const size_t part = kBytes / static_cast<size_t>(pool.size()) / 8192 * 8192;
    pool.run([&](int worker, int) { std::memset(buffer + worker * part, worker + 1, part); });
    const double seconds = median_seconds(5, [&] {
      pool.run([&](int worker, int) { sink = sink + probe.read(buffer + worker * part, part); });
    });
    limits.read_bytes_per_second = static_cast<double>(part) * pool.size() / seconds;
    std::free(buffer);
  }

  int64_t iterations = 1000;  // calibrated to about 20 ms a round
  volatile float result = 0;
  const double warm_up = median_seconds(3, [&] { result = probe.compute(iterations); });
  iterations =
      std::clamp<int64_t>(static_cast<int64_t>(0.02 / std::max(warm_up, 1e-9) * 1000), 1000, 1'000'000'000);
  const double seconds =
      median_seconds(5, [&] { pool.run([&](int, int) { result = probe.compute(iterations); }); });
  limits.flops_per_second =
      probe.flops_per_iteration * static_cast<double>(iterations) * pool.size() / seconds;
  return limits;
}

}  // namespace penstock
