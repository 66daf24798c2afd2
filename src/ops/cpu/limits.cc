// The limits of the CPU backend, measured with its threads.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/arena.h"
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "kernels/probe_kernels.h"
#include "ops/cpu/cpu_ops.h"

namespace penstock {
namespace {

template <class F>
double least_seconds(int rounds, F&& round) {
  double least = 1e9;
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    round();
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return std::max(least, 1e-9);
}

double measure_reads(ThreadPool& pool, const KernelTable& kernels, size_t bytes) {
  const size_t part = std::max<size_t>(bytes / static_cast<size_t>(pool.size()) / 8192, 1) * 8192;
  const size_t total = (part * static_cast<size_t>(pool.size()) + kHugePage - 1) / kHugePage * kHugePage;
  const std::unique_ptr<char, decltype(&std::free)> buffer(
      static_cast<char*>(std::aligned_alloc(kHugePage, total)), &std::free);
  if (!buffer) return 0;
  madvise(buffer.get(), total, MADV_HUGEPAGE);
  pool.run([&](int worker, int) { std::memset(buffer.get() + worker * part, worker + 1, part); });
  // Of a small buffer several times, so that starting the workers is not what is measured.
  const size_t n_times = std::max<size_t>(1, (size_t{64} << 20) / (part * static_cast<size_t>(pool.size())));
  volatile uint64_t sink = 0;
  double least = 1e9;
  for (const ReadProbe read : read_probes(kernels)) {
    least = std::min(least, least_seconds(4, [&] {
                       pool.run([&](int worker, int) {
                         for (size_t n = 0; n < n_times; ++n)
                           sink = sink + read(buffer.get() + worker * part, part);
                       });
                     }));
  }
  return static_cast<double>(n_times * part) * pool.size() / least;
}

double measure_unit(ThreadPool& pool, const ComputeProbe& probe) {
  constexpr double kRound = 0.02;  // seconds
  volatile float result = 0;
  int64_t iterations = 1000;
  const double warm_up = least_seconds(3, [&] { result = probe.run(iterations); });
  iterations = std::clamp<int64_t>(static_cast<int64_t>(kRound / warm_up * 1000), 1000, 1'000'000'000);
  const double seconds =
      least_seconds(5, [&] { pool.run([&](int, int) { result = probe.run(iterations); }); });
  return probe.operations_per_iteration * static_cast<double>(iterations) * pool.size() / seconds;
}

}  // namespace

MachineLimits CpuOps::limits(int64_t read_bytes) {
  constexpr int64_t kMostBytes = int64_t{512} << 20;
  MachineLimits limits;
  limits.read_bytes_per_second = measure_reads(
      pool_, kernels_, static_cast<size_t>(read_bytes > 0 ? std::min(read_bytes, kMostBytes) : kMostBytes));
  for (const ComputeProbe& probe : compute_probes(kernels_)) {
    const ComputeLimit limit{probe.name, measure_unit(pool_, probe)};
    if (probe.operand == ComputeProbe::Operand::kFloats) limits.floats = faster(limits.floats, limit);
    limits.integers = faster(limits.integers, limit);
  }
  return limits;
}

}  // namespace penstock
