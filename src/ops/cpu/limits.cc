// Limits of the CPU backend, measured with its threads in samples of a few milliseconds. Other work
// on the machine rarely disturbs all samples: callers take many, between their measurements, and
// keep the best (better()).
#include "ops/cpu/limits.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/arena.h"
#include "kernels/kernel_table.h"
#include "kernels/probe_kernels.h"
#include "kernels/tile_unpacking.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/thread_limits.h"

namespace penstock {
namespace {

constexpr int kRounds = 3;
constexpr double kUnitSeconds = 1e-3;            // of a round of a unit
constexpr size_t kReadUnit = 8192;               // what every order of reading takes a multiple of
constexpr size_t kReadPiece = size_t{24} << 20;  // of a thread and round
// the same out of a small buffer, which is read several times
constexpr size_t kLeastRead = size_t{4} << 20;

template <class F>
double least_seconds(int rounds, F&& round) {
  double least = 1e9;
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    round();
    least = std::min(
        least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return std::max(least, 1e-9);
}

// Returns operations per second of n_threads threads, 1 or all.
double sample_unit(ThreadPool& pool, const ComputeProbe& probe, int n_threads) {
  volatile float result = 0;
  int64_t iterations = 1000;
  const double warm_up = least_seconds(3, [&] { result = probe.run(iterations); });
  iterations =
      std::clamp<int64_t>(static_cast<int64_t>(kUnitSeconds / warm_up * 1000), 1000, 1'000'000'000);
  const double seconds = least_seconds(kRounds, [&] {
    if (n_threads == 1) {
      result = probe.run(iterations);
    } else {
      pool.run([&](int, int) { result = probe.run(iterations); });
    }
  });
  return probe.operations_per_iteration * static_cast<double>(iterations) * n_threads / seconds;
}

constexpr size_t kMostRead = size_t{512} << 20;

}  // namespace

bool ReadSampler::prepare(ThreadPool& pool, size_t bytes) {
  const auto n = static_cast<size_t>(pool.size());
  const size_t part = std::max<size_t>(bytes / n / kReadUnit, 1) * kReadUnit;
  if (buffer_ && part == part_) return true;
  const size_t total = (part * n + kHugePage - 1) / kHugePage * kHugePage;
  buffer_.reset(static_cast<char*>(std::aligned_alloc(kHugePage, total)));
  part_ = part, next_ = 0;
  if (!buffer_) return false;
  madvise(buffer_.get(), total, MADV_HUGEPAGE);
  pool.run([&](int worker, int) { std::memset(buffer_.get() + worker * part, worker + 1, part); });
  return true;
}

double ReadSampler::sample(ThreadPool& pool, const KernelTable& kernels, int n_threads) {
  const size_t piece = std::min(part_, kReadPiece),
               n_times = std::max<size_t>(1, kLeastRead / piece);
  volatile uint64_t sink = 0;
  double least = 1e9;
  const auto read_piece = [&](ReadProbe read, int worker) {
    for (size_t n = 0; n < n_times; ++n)
      sink = sink + read(buffer_.get() + worker * part_ + next_, piece);
  };
  for (const ReadProbe read : read_probes(kernels)) {
    for (int round = 0; round < kRounds; ++round) {
      // Another piece every time: what was read the last time may be in a cache.
      next_ = next_ + 2 * piece <= part_ ? next_ + piece : 0;
      least = std::min(least, least_seconds(1, [&] {
                         if (n_threads == 1) return read_piece(read, 0);
                         pool.run([&](int worker, int) { read_piece(read, worker); });
                       }));
    }
  }
  return static_cast<double>(n_times * piece) * n_threads / least;
}

std::vector<ThreadLimit> sample_threads(int n_threads, int n_samples) {
  const auto selected = select_kernels();
  if (!selected) return {};
  const KernelTable& kernels = **selected;
  ThreadPool pool(n_threads);
  ReadSampler reads;
  std::vector<ThreadLimit> limits;
  const auto probes = compute_probes(kernels);
  for (const ComputeProbe& probe : probes) limits.push_back({probe.name});
  const bool can_read = reads.prepare(pool, kMostRead);
  if (can_read) limits.push_back({"read"});
  for (int n = 0; n < n_samples; ++n) {
    for (size_t i = 0; i < probes.size(); ++i) {
      limits[i].all = std::max(limits[i].all, sample_unit(pool, probes[i], pool.size()));
      limits[i].one = std::max(limits[i].one, sample_unit(pool, probes[i], 1));
    }
    if (!can_read) continue;
    limits.back().all = std::max(limits.back().all, reads.sample(pool, kernels, pool.size()));
    limits.back().one = std::max(limits.back().one, reads.sample(pool, kernels, 1));
  }
  return limits;
}

UnpackingRates sample_unpacking() {
  const auto kernels = select_kernels();
  if (!kernels || !has_both_unpackings(**kernels)) return {};
  const TileUnpacking measured = measure_unpacking(*(*kernels)->tiles);
  const auto chosen = tile_unpacking(**kernels);
  if (!chosen) return {};
  return {chosen->time == UnpackTime::kBetween ? "between" : "before", measured.before,
          measured.between};
}

MachineLimits CpuOps::limits(int64_t read_bytes) {
  MachineLimits limits;
  const size_t bytes =
      read_bytes > 0 ? std::min(static_cast<size_t>(read_bytes), kMostRead) : kMostRead;
  if (reads_.prepare(pool_, bytes))
    limits.read_bytes_per_second = reads_.sample(pool_, kernels_, pool_.size());
  for (const ComputeProbe& probe : compute_probes(kernels_)) {
    const ComputeLimit limit{probe.name, sample_unit(pool_, probe, pool_.size())};
    if (probe.operand == ComputeProbe::Operand::kFloats)
      limits.floats = faster(limits.floats, limit);
    limits.integers = faster(limits.integers, limit);
  }
  return limits;
}

}  // namespace penstock
