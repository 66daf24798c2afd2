// Meant to be run under the tsan preset as well.
#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <numeric>
#include <string>
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
    for (const auto& [n_items, grain] :
         {std::pair{0, 1}, {1, 1}, {5, 8}, {64, 1}, {1000, 8}, {1003, 16}}) {
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

// Every part is done once per region also when workers come late to all of them: 16 workers on
// fewer CPUs, regions that take no time.
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

int n_threads_of_process() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("Threads:")) return std::stoi(line.substr(8));
  }
  return -1;
}

TEST(ThreadPool, ADestroyedPoolLeavesNoThread) {
  const int before = n_threads_of_process();
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(4);
    if (i % 2 == 0) pool.run([](int, int) {});
  }
  // Joined threads are counted until the kernel has cleared them away.
  for (int wait = 0; n_threads_of_process() > before && wait < 1000; ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_LE(n_threads_of_process(), before);
}

// A joined thread is counted until the kernel has cleared it away, so the number may fall at any
// time: only what other pools would add is told apart from that.
TEST(ThreadPool, PoolsOfOneSizeShareTheirWorkers) {
  ThreadPool a(5);
  const int with_one = n_threads_of_process();
  EXPECT_GE(with_one, 5);
  ThreadPool b(5), c(5), d(5), e(5);
  EXPECT_LE(n_threads_of_process(), with_one);
  std::vector<int> counts(5, 0);
  for (ThreadPool* pool : {&a, &b, &c, &d, &e})
    pool->run([&](int worker, int) { ++counts[worker]; });
  EXPECT_EQ(counts, std::vector<int>(5, 5));
}

// Who has CPUs of his own waits for nobody else: a region of each runs while the other's does.
TEST(ThreadPool, PoolsOnCpusOfTheirOwnRunSideBySide) {
  const int cpu = sched_getcpu();
  const auto caller = std::this_thread::get_id();
  ThreadPool own(2, {cpu}), others(2);
  std::atomic<bool> inside{false}, was_inside{false}, stayed{true};
  std::thread other([&] {
    while (!inside) std::this_thread::yield();
    others.run([&](int worker, int) {
      if (worker == 0) was_inside = true;
    });
  });
  own.run([&](int worker, int) {
    if (worker != 0) {  // perhaps by the caller, in the place of one that has not begun
      stayed = stayed && (std::this_thread::get_id() == caller || sched_getcpu() == cpu);
      return;
    }
    inside = true;
    while (!was_inside) std::this_thread::yield();  // for ever, if they took turns
  });
  other.join();
  EXPECT_TRUE(was_inside);
  EXPECT_TRUE(stayed);
}

// Engines on threads of their own: every region is whole, and all get on.
TEST(ThreadPool, OwnersTakeTurns) {
  constexpr int kOwners = 3, kSteps = 200, kRegions = 20;
  std::atomic<int> n_inside{0};
  std::vector<std::thread> owners;
  std::vector<int64_t> sums(kOwners);
  for (int owner = 0; owner < kOwners; ++owner) {
    owners.emplace_back([&, owner] {
      ThreadPool pool(owner == 2 ? 3 : 2);
      std::vector<int64_t> parts(3, 0);  // plain memory
      for (int step = 0; step < kSteps; ++step) {
        pool.give_way();
        for (int i = 0; i < kRegions; ++i) {
          pool.run([&](int worker, int) {
            if (worker == 0) {
              EXPECT_EQ(n_inside.fetch_add(1), 0);
            }
            ++parts[worker];
            if (worker == 0) n_inside.fetch_sub(1);
          });
        }
      }
      sums[owner] = parts[0] + parts[1] + parts[2];
    });
  }
  for (std::thread& owner : owners) owner.join();
  EXPECT_EQ(sums[0], 2 * kSteps * kRegions);
  EXPECT_EQ(sums[1], 2 * kSteps * kRegions);
  EXPECT_EQ(sums[2], 3 * kSteps * kRegions);
}

// One that always has something to compute does not keep another one from it.
TEST(ThreadPool, WhoGivesWayLetsOthersIn) {
  std::atomic<bool> stop{false};
  std::atomic<int64_t> n_greedy{0};
  std::thread greedy([&] {
    ThreadPool pool(2);
    while (!stop) {
      pool.give_way();
      for (int i = 0; i < 50; ++i) pool.run([](int, int) {});
      ++n_greedy;
    }
  });
  while (n_greedy < 10) std::this_thread::yield();
  ThreadPool pool(2);
  const int64_t before = n_greedy;
  for (int i = 0; i < 100; ++i) pool.run([](int, int) {});
  EXPECT_LT(n_greedy - before, 100 * 50);
  stop = true;
  greedy.join();
}

TEST(ThreadPool, OneTurnLetsNobodyInBetweenItsRegions) {
  std::atomic<bool> stop{false};
  std::atomic<int64_t> n_others{0};
  std::thread other([&] {
    ThreadPool pool(2);
    while (!stop) pool.run([&](int worker, int) { n_others += worker == 0 ? 1 : 0; });
  });
  while (n_others < 10) std::this_thread::yield();
  ThreadPool pool(2);
  for (int step = 0; step < 50; ++step) {
    const OneTurn one_turn;
    pool.run([](int, int) {});
    const int64_t before = n_others;
    for (int i = 0; i < 20; ++i) {
      pool.run([](int, int) {});
      pool.give_way();
    }
    ASSERT_EQ(n_others, before);
  }
  const int64_t before = n_others;
  while (n_others == before) std::this_thread::yield();  // the turn was given back
  stop = true;
  other.join();
}

// Who has less behind it and rests is not waited for, as it would be for three milliseconds.
TEST(ThreadPool, NobodyWaitsForWhoRests) {
  using Clock = std::chrono::steady_clock;
  const auto compute = [](ThreadPool& pool, double milliseconds) {
    pool.run([=](int, int) {
      const auto end = Clock::now() + std::chrono::duration<double, std::milli>(milliseconds);
      while (Clock::now() < end) {
      }
    });
  };
  std::atomic<int> turn{0};  // even: the other's
  constexpr int kRounds = 20;
  std::thread other([&] {
    ThreadPool pool(2);
    for (int i = 0; i < kRounds; ++i) {
      while (turn != 2 * i) std::this_thread::yield();
      pool.give_way();
      compute(pool, 0.01);
      rest_from_turns();
      ++turn;
    }
  });
  ThreadPool pool(2);
  double least = 1e9;
  for (int i = 0; i < kRounds; ++i) {
    while (turn != 2 * i + 1) std::this_thread::yield();
    compute(pool, 1.2);
    const auto start = Clock::now();
    pool.give_way();
    least =
        std::min(least, std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    ++turn;
  }
  other.join();
  EXPECT_LT(least, 0.5);
}

// Two threads that always have something to compute, in steps of different length: how much more
// the first one gets.
double ratio_of_shares(double weight, double other_weight) {
  std::atomic<bool> stop{false};
  const auto compute = [&](int n_regions, double own_weight, int64_t& n_done) {
    ThreadPool pool(2);
    while (!stop) {
      pool.give_way(own_weight);
      for (int i = 0; i < n_regions; ++i) {
        pool.run([](int, int) {
          const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
          while (std::chrono::steady_clock::now() < end) {
          }
        });
      }
      n_done += n_regions;
    }
  };
  int64_t n_long = 0, n_short = 0;
  std::thread short_steps([&] { compute(4, other_weight, n_short); });
  std::thread long_steps([&] { compute(200, weight, n_long); });
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  stop = true;
  short_steps.join(), long_steps.join();
  return static_cast<double>(n_long) / static_cast<double>(n_short);
}

// In turns it would be 50. Other programs take their part too, so the bounds are wide:
// bench/several_models.py measures.
TEST(ThreadPool, LongStepsGetNoMoreThanShortOnes) {
  const double ratio = ratio_of_shares(1, 1);
  EXPECT_GT(ratio, 0.1);
  EXPECT_LT(ratio, 25);
}

TEST(ThreadPool, SharesGoByWeight) {
  const double ratio = ratio_of_shares(8, 1);
  EXPECT_GT(ratio, 1.5);
  EXPECT_LT(ratio, 40);
}

TEST(ThreadPool, ARegionInsideARegionRunsOnItsCaller) {
  ThreadPool pool(3), other(2);
  std::atomic<int> n{0};
  pool.run([&](int, int) {
    const std::thread::id caller = std::this_thread::get_id();
    other.run([&](int, int n_workers) {
      EXPECT_EQ(n_workers, 2);
      EXPECT_EQ(std::this_thread::get_id(), caller);
      ++n;
    });
  });
  EXPECT_EQ(n, 6);
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
