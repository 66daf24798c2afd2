// Meant to be run under the tsan preset as well.
#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

namespace penstock {
namespace {

TEST(ThreadPool, EveryWorkerRunsOncePerRegion) {
  for (const int n : {1, 2, 3, 8}) {
    ThreadPool pool(n);
    EXPECT_EQ(pool.size(), n);
    std::vector<int> counts(n, 0);  // plain memory: the pool must order it
    for (int round = 0; round < 500; ++round) {
      pool.run([&](int worker, int n_workers) {
        ASSERT_EQ(n_workers, n);
        ++counts[worker];
      });
      for (const int count : counts) ASSERT_EQ(count, round + 1);
    }
  }
}

TEST(ThreadPool, WorkersSeeWhatTheCallerWroteAndTheOtherWayRound) {
  ThreadPool pool(4);
  std::vector<int64_t> in(1000), out(1000);
  for (int round = 0; round < 200; ++round) {
    std::iota(in.begin(), in.end(), round);
    pool.for_ranges(1000, 10, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) out[i] = in[i] * 2;
    });
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(out[i], 2 * (i + round));
  }
}

TEST(ThreadPool, PiecesCoverEveryItemOnce) {
  for (const int n_threads : {1, 2, 3, 7}) {
    ThreadPool pool(n_threads);
    for (const auto& [n_items, grain] : {std::pair{0, 1}, {1, 1}, {5, 8}, {64, 1}, {1000, 8}, {1003, 16}}) {
      std::vector<int> counts(n_items, 0);  // plain memory: no item has two takers
      for (int round = 1; round <= 50; ++round) {
        pool.for_pieces(n_items, grain, [&, grain = grain](int64_t begin, int64_t end, int worker) {
          ASSERT_TRUE(worker >= 0 && worker < n_threads);
          ASSERT_EQ(begin % grain, 0);
          ASSERT_LT(begin, end);
          for (int64_t i = begin; i < end; ++i) ++counts[i];
        });
        for (const int count : counts) ASSERT_EQ(count, round);
      }
    }
  }
}

// A worker that is held up in its first piece leaves the rest of its range to the other.
TEST(ThreadPool, PiecesOfASlowWorkerAreTaken) {
  constexpr int64_t kItems = 256;
  ThreadPool pool(2);
  std::atomic<int64_t> elsewhere{0};
  int64_t held = 0;
  pool.for_pieces(kItems, 1, [&](int64_t begin, int64_t end, int) {
    if (begin != 0) {
      elsewhere += end - begin;
      return;
    }
    held = end;
    while (elsewhere < kItems - held) std::this_thread::yield();
  });
  EXPECT_LT(held, kItems / 2);
  EXPECT_EQ(held + elsewhere, kItems);
}

// Every part is done once per region also when workers come late to all of them: 16 workers on fewer CPUs,
// regions that take no time.
TEST(ThreadPool, LateWorkersMissRegionsThatTheCallerDid) {
  ThreadPool pool(16);
  std::vector<int64_t> counts(16, 0);
  for (int round = 1; round <= 20000; ++round) {
    pool.run([&](int worker, int) { ++counts[worker]; });
    if (round % 1000 != 0) continue;
    for (const int64_t count : counts) ASSERT_EQ(count, round);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // some park, some spin
  }
}

TEST(ThreadPool, ParkedWorkersWakeUp) {
  ThreadPool pool(3);
  for (int round = 0; round < 3; ++round) {
    int done[3] = {};
    pool.run([&](int worker, int) { done[worker] = 1; });
    EXPECT_EQ(done[0] + done[1] + done[2], 3);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }
}

TEST(ThreadPool, ADestroyedPoolLeavesNoThread) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(4);
    if (i % 2 == 0) pool.run([](int, int) {});
  }
}

TEST(ThreadPool, RangesCoverEverythingOnceInMultiplesOfTheGrain) {
  for (const int64_t n : {1, 2, 15, 16, 17, 100, 1001}) {
    for (const int64_t grain : {1, 4, 16}) {
      for (const int workers : {1, 2, 3, 7}) {
        int64_t at = 0;
        for (int w = 0; w < workers; ++w) {
          const auto [begin, end] = ThreadPool::range_of(n, grain, w, workers);
          if (begin >= end) continue;
          ASSERT_EQ(begin, at);
          ASSERT_EQ(begin % grain, 0);
          at = end;
        }
        ASSERT_EQ(at, n);
      }
    }
  }
}

TEST(AvailableCpus, IsPositiveAndNoMoreThanTheMachineHas) {
  EXPECT_GE(available_cpus(), 1);
  EXPECT_LE(available_cpus(), static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace penstock
