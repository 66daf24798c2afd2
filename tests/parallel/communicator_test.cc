// Ranks as threads where they behave, as processes where they die.
#include "parallel/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include "base/half.h"
#include "parallel/rank_run.h"
#include "support/rank_numbers.h"

namespace penstock {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;

constexpr size_t kSmallBuffer = 4096;  // messages of a few thousand floats take several turns

struct Descriptor {
  explicit Descriptor(int descriptor) : fd(descriptor) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(fd); }
  const int fd;
};

CommunicatorConfig config_of(int rank, int size, int segment) {
  CommunicatorConfig config;
  config.rank = rank;
  config.size = size;
  config.segment = segment;
  return config;
}

std::unique_ptr<Communicator> join(const CommunicatorConfig& config) {
  auto communicator = make_communicator("shm", config);
  EXPECT_TRUE(communicator) << communicator.error().message;
  return communicator ? std::move(*communicator) : nullptr;
}

// Calls `work` as each of n ranks, in a thread of its own, and waits for all.
void as_ranks(int n, const std::function<void(Communicator&)>& work,
              size_t buffer_bytes = kSmallBuffer) {
  const auto fd = make_shm_segment(n, buffer_bytes);
  ASSERT_TRUE(fd) << fd.error().message;
  const Descriptor segment{*fd};
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < n; ++rank)
    threads.emplace_back([rank, n, file = segment.fd, &work] {
      if (const auto communicator = join(config_of(rank, n, file))) work(*communicator);
    });
}

// --- What every communicator does, as one of its ranks

void sums_in_the_order_of_the_ranks(Communicator& ranks) {
  for (const size_t n : {size_t{0}, size_t{1}, size_t{7}, size_t{1024}, size_t{1025}, size_t{5000},
                         size_t{100'003}, size_t{900'001}}) {
    std::vector<float> expected = numbers_of_rank(0, n);
    for (int r = 1; r < ranks.size(); ++r) {
      const std::vector<float> part = numbers_of_rank(r, n);
      for (size_t i = 0; i < n; ++i) expected[i] += part[i];
    }
    std::vector<float> x = numbers_of_rank(ranks.rank(), n);
    ASSERT_TRUE(ranks.all_reduce(x));
    EXPECT_EQ(x, expected) << n << " floats, rank " << ranks.rank();
  }
}

float rounded(float x) { return to_float(to_bfloat16(x)); }

// Sums of rounded shares, and of how large these are together.
std::pair<std::vector<float>, std::vector<float>> rounded_sums(int n_ranks, size_t n) {
  std::vector<float> sums(n), sizes(n);
  for (int r = 0; r < n_ranks; ++r) {
    const std::vector<float> part = numbers_of_rank(r, n);
    for (size_t i = 0; i < n; ++i) sums[i] += rounded(part[i]), sizes[i] += std::abs(part[i]);
  }
  return {sums, sizes};
}

// The bits do not depend on the way, and the exact sum is within 2^-7 of the shares' sizes.
void sums_in_bf16(Communicator& ranks) {
  for (const size_t n :
       {size_t{1}, size_t{33}, size_t{2048}, size_t{2049}, size_t{9000}, size_t{150'001}}) {
    std::vector<float> x = numbers_of_rank(ranks.rank(), n), exact = x;
    const int64_t before = ranks.use().bytes;
    ASSERT_TRUE(ranks.all_reduce(x, WireType::kBf16));
    EXPECT_EQ(ranks.use().bytes - before, static_cast<int64_t>(2 * n));
    ASSERT_TRUE(ranks.all_reduce(exact));
    const auto [sums, sizes] = rounded_sums(ranks.size(), n);
    for (size_t i = 0; i < n; ++i) {
      ASSERT_EQ(x[i], rounded(sums[i])) << i << " of " << n;
      ASSERT_LE(std::abs(x[i] - exact[i]), sizes[i] / 127) << i << " of " << n;
    }
  }
}

void sums_parts(Communicator& ranks) {
  for (const WireType wire : {WireType::kF32, WireType::kBf16}) {
    for (const size_t n :
         {size_t{0}, size_t{1}, size_t{7}, size_t{1024}, size_t{2600}, size_t{100'003}}) {
      std::vector<float> whole = numbers_of_rank(ranks.rank(), n), x = whole;
      ASSERT_TRUE(ranks.reduce_scatter(x, wire));
      ASSERT_TRUE(ranks.all_reduce(whole));
      const auto sums = wire == WireType::kF32 ? whole : rounded_sums(ranks.size(), n).first;
      const Shard::Range own = ranks.shard().range(static_cast<int>(n));
      for (int i = own.first; i < own.first + own.count; ++i)
        ASSERT_EQ(x[static_cast<size_t>(i)], sums[static_cast<size_t>(i)]) << i << " of " << n;
    }
  }
}

void gathers_parts_of_unequal_sizes(Communicator& ranks) {
  const auto size_of = [](int rank) {
    return static_cast<size_t>(rank == 1 ? 0 : 1500 * rank + 3);
  };
  std::vector<std::vector<float>> rows;
  for (int r = 0; r < ranks.size(); ++r)
    rows.push_back(r == ranks.rank() ? numbers_of_rank(r, size_of(r))
                                     : std::vector<float>(size_of(r)));
  const std::vector<PartRows> parts(rows.begin(), rows.end());
  ASSERT_TRUE(ranks.all_gather(parts));
  for (int r = 0; r < ranks.size(); ++r)
    EXPECT_EQ(rows[static_cast<size_t>(r)], numbers_of_rank(r, size_of(r)));
}

// Columns of a matrix, which take several turns; what is behind its columns stays.
void gathers_rows(Communicator& ranks) {
  constexpr size_t kRows = 9, kColumns = 1203, kStride = kColumns + 5;
  const std::vector<float> whole = numbers_of_rank(0, kRows * kStride);
  const Shard shard = ranks.shard();
  const auto columns_of = [&](int rank) { return Shard{rank, shard.n_ranks}.range(kColumns); };
  std::vector<float> x = whole;
  std::vector<PartRows> parts;
  for (int r = 0; r < shard.n_ranks; ++r) {
    const auto first = static_cast<size_t>(columns_of(r).first),
               n = static_cast<size_t>(columns_of(r).count);
    parts.emplace_back(x.data() + first, n, kRows, kStride);
    if (r == shard.rank) continue;
    for (size_t row = 0; row < kRows; ++row)
      std::fill_n(x.data() + row * kStride + first, n, -1.0f);
  }
  ASSERT_TRUE(ranks.all_gather(parts));
  EXPECT_EQ(x, whole);
}

void broadcasts_from_every_root(Communicator& ranks) {
  for (int root = 0; root < ranks.size(); ++root) {
    std::vector<std::byte> x(10'001, static_cast<std::byte>(ranks.rank()));
    ASSERT_TRUE(ranks.broadcast(x, root));
    EXPECT_EQ(x, std::vector<std::byte>(10'001, static_cast<std::byte>(root)));
  }
}

void keeps_operations_in_any_order_apart(Communicator& ranks) {
  std::mt19937 random(42);  // the same on every rank
  const auto n_ranks = static_cast<unsigned>(ranks.size());
  for (int i = 0; i < 300; ++i) {
    const size_t n = random() % 3000;
    const auto kind = random() % 3;
    if (kind < 2) {
      std::vector<float> x(n, 1.0f + static_cast<float>(ranks.rank()));
      ASSERT_TRUE(ranks.all_reduce(x, kind == 0 ? WireType::kF32 : WireType::kBf16));
      EXPECT_EQ(x, std::vector<float>(n, static_cast<float>(n_ranks * (n_ranks + 1) / 2)));
    } else {
      const int root = static_cast<int>(random() % n_ranks);
      std::vector<std::byte> x(n, static_cast<std::byte>(ranks.rank() + i));
      ASSERT_TRUE(ranks.broadcast(x, root));
      EXPECT_EQ(x, std::vector<std::byte>(n, static_cast<std::byte>(root + i)));
    }
  }
}

void rank_0_hears_what_each_has_done(Communicator& ranks) {
  std::vector<float> x(100);
  ASSERT_TRUE(ranks.all_reduce(x));
  const CommunicatorUse own = ranks.use();
  EXPECT_GE(own.bytes, 400);
  EXPECT_GT(own.memory_bytes, 1 << 20);
  {
    const Communicator::Uncounted idle(ranks);
    ASSERT_TRUE(ranks.barrier());
    EXPECT_EQ(ranks.use().calls, own.calls);
    EXPECT_EQ(ranks.use().seconds, own.seconds);
  }
  const auto all_heard = [&] {
    const auto uses = ranks.uses();
    return uses.size() == static_cast<size_t>(ranks.size()) &&
           std::ranges::all_of(uses, [](const auto& use) {
             return use.calls >= 1 && use.bytes >= 400 && use.seconds > 0 &&
                    use.memory_bytes > 1 << 20;
           });
  };
  if (ranks.rank() == 0) {
    const auto give_up = steady_clock::now() + std::chrono::seconds(30);
    while (!all_heard() && steady_clock::now() < give_up)
      std::this_thread::sleep_for(milliseconds(5));
    EXPECT_TRUE(all_heard());
  }
  ASSERT_TRUE(ranks.barrier());
}

struct Conformance {
  const char* name;
  void (*check)(Communicator& ranks);
};
constexpr Conformance kConformance[] = {
    {"SumsInTheOrderOfTheRanks", sums_in_the_order_of_the_ranks},
    {"SumsInBf16", sums_in_bf16},
    {"SumsParts", sums_parts},
    {"GathersPartsOfUnequalSizes", gathers_parts_of_unequal_sizes},
    {"GathersRows", gathers_rows},
    {"BroadcastsFromEveryRoot", broadcasts_from_every_root},
    {"KeepsOperationsInAnyOrderApart", keeps_operations_in_any_order_apart},
    {"Rank0HearsWhatEachHasDone", rank_0_hears_what_each_has_done},
};

class ShmConformance : public testing::TestWithParam<std::tuple<Conformance, int>> {};
INSTANTIATE_TEST_SUITE_P(Shm, ShmConformance,
                         testing::Combine(testing::ValuesIn(kConformance),
                                          testing::Values(1, 2, 3, 5)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param).name,
                                              std::get<1>(info.param));
                         });

TEST_P(ShmConformance, Holds) { as_ranks(std::get<1>(GetParam()), std::get<0>(GetParam()).check); }

// As long as no more than one rank is needed.
TEST(Communicators, SelfConforms) {
  for (const Conformance& one : kConformance) {
    SCOPED_TRACE(one.name);
    one.check(*make_communicator("self", {}).value());
  }
}

// When mpirun has started this program (tests/e2e/mpi_e2e.py does).
TEST(Communicators, MpiConforms) {
  const auto place = mpi_place();
  if (!place) GTEST_SKIP() << "mpirun has not started this test";
  auto ranks = make_communicator("mpi", config_of(place->rank, place->size, -1));
  ASSERT_TRUE(ranks) << ranks.error().message;
  for (const Conformance& one : kConformance) {
    SCOPED_TRACE(one.name);
    one.check(**ranks);
  }
  EXPECT_TRUE((*ranks)->barrier());
}

class ShmCommunicator : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ShmCommunicator, testing::Values(1, 2, 3, 5),
                         testing::PrintToStringParamName());

TEST_P(ShmCommunicator, BarrierWaitsForAll) {
  const int n_ranks = GetParam();
  std::atomic<int> arrived = 0;
  as_ranks(n_ranks, [&](Communicator& ranks) {
    for (int round = 1; round <= 200; ++round) {
      ++arrived;
      ASSERT_TRUE(ranks.barrier());
      EXPECT_GE(arrived, round * n_ranks);
      ASSERT_TRUE(ranks.barrier());
    }
  });
}

TEST(Communicators, DifferentTypesOnTheWireEndTheRunForAll) {
  as_ranks(2, [](Communicator& ranks) {
    std::vector<float> x(ranks.rank() == 0 ? 8 : 16);
    const Status status = ranks.all_reduce(x, ranks.rank() == 0 ? WireType::kF32 : WireType::kBf16);
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr("all_reduce"));
  });
}

TEST(Communicators, DifferentCallsEndTheRunForAll) {
  as_ranks(3, [](Communicator& ranks) {
    std::vector<float> x(ranks.rank() == 2 ? 9 : 8);
    const Status status = ranks.all_reduce(x);
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr("all_reduce of 36 bytes"));
    EXPECT_THAT(status.error().message, HasSubstr("all_reduce of 32 bytes"));
    const Status later = ranks.barrier();
    ASSERT_FALSE(later);
    EXPECT_EQ(later.error().message, status.error().message);
  });
}

TEST(Communicators, FailReachesThoseWhoWait) {
  as_ranks(3, [](Communicator& ranks) {
    if (ranks.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(20));  // the others sleep by now
      ranks.fail("the disk is full", ErrorCode::kIo);
    } else {
      const Status status = ranks.barrier();
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().message, "the disk is full");
      EXPECT_EQ(status.error().code, ErrorCode::kIo);
    }
    EXPECT_FALSE(ranks.status());
  });
}

TEST(Communicators, OneThatHasEndedIsMissed) {
  as_ranks(2, [](Communicator& ranks) {
    if (ranks.rank() == 1) return;
    const Status status = ranks.barrier();
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr("rank 1 of 2"));
    EXPECT_THAT(status.error().message, HasSubstr("has ended"));
  });
}

TEST(Communicators, OneThatNeverBeginsIsMissed) {
  const auto fd = make_shm_segment(2, kSmallBuffer);
  ASSERT_TRUE(fd);
  const Descriptor segment{*fd};
  CommunicatorConfig config = config_of(0, 2, segment.fd);
  config.join_timeout = milliseconds(200);
  const auto ranks = join(config);
  const Status status = ranks->barrier();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "rank 1 of 2 has not begun within 0.2 s");
}

// A child process that joins as rank 1 and sums with rank 0 until it ends by a signal.
void other_rank_gets(int signal) {
  const auto fd = make_shm_segment(2, kSmallBuffer);
  ASSERT_TRUE(fd);
  const Descriptor segment{*fd};
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto ranks = make_communicator("shm", config_of(1, 2, segment.fd));
    std::vector<float> x(100);
    while (ranks && (*ranks)->all_reduce(x)) {
    }
    _exit(0);
  }
  {
    CommunicatorConfig config = config_of(0, 2, segment.fd);
    config.timeout = milliseconds(1000);
    const auto ranks = join(config);
    std::vector<float> x(100);
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(ranks->all_reduce(x));
    kill(child, signal);
    const auto begin = steady_clock::now();
    Status status;
    while ((status = ranks->all_reduce(x))) {
    }
    EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(10));
    EXPECT_THAT(status.error().message, HasSubstr(fmt::format("rank 1 of 2 (process {})", child)));
    EXPECT_THAT(status.error().message, HasSubstr("no life for 1.0 s"));
  }
  kill(child, SIGCONT);  // one that was stopped learns of it and ends by itself
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_EQ(WIFSIGNALED(state), signal == SIGKILL);
}

TEST(Communicators, AKilledProcessEndsTheRun) { other_rank_gets(SIGKILL); }
TEST(Communicators, AStoppedProcessEndsTheRun) { other_rank_gets(SIGSTOP); }

TEST(Communicators, SelfIsAlone) {
  auto self = make_communicator("self", {});
  ASSERT_TRUE(self);
  std::vector<float> x = {1, 2, 3};
  const std::vector<PartRows> parts = {std::span(x)};
  EXPECT_TRUE((*self)->all_reduce(x));
  EXPECT_TRUE((*self)->all_gather(parts));
  EXPECT_TRUE((*self)->broadcast(std::as_writable_bytes(std::span(x)), 0));
  EXPECT_TRUE((*self)->barrier());
  EXPECT_EQ(x, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ((*self)->shard().n_ranks, 1);
  (*self)->fail("over");
  (*self)->fail("and again");
  const Status status = (*self)->all_reduce(x);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "over");
}

TEST(Communicators, WrongConfigurationsAreNamed) {
  const auto message = [](std::string_view name, const CommunicatorConfig& config) {
    const auto communicator = make_communicator(name, config);
    return communicator ? std::string("none") : communicator.error().message;
  };
  EXPECT_THAT(message("carrier pigeon", {}), HasSubstr("expected one of self, shm"));
  EXPECT_THAT(message("self", config_of(1, 2, -1)), HasSubstr("expected 1 rank, got 2"));
  EXPECT_THAT(message("shm", config_of(2, 2, -1)),
              HasSubstr("rank 2 of 2: expected a rank from 0 to 1"));
  EXPECT_THAT(message("shm", config_of(0, 2, -1)), HasSubstr("file descriptor -1"));

  FILE* const file = tmpfile();
  ASSERT_NE(file, nullptr);
  EXPECT_THAT(message("shm", config_of(0, 2, fileno(file))), HasSubstr("too small"));
  ASSERT_EQ(ftruncate(fileno(file), 1 << 20), 0);
  EXPECT_THAT(message("shm", config_of(0, 2, fileno(file))), HasSubstr("another version's"));
  fclose(file);

  const auto fd = make_shm_segment(2, kSmallBuffer);
  ASSERT_TRUE(fd);
  const Descriptor segment{*fd};
  EXPECT_THAT(message("shm", config_of(0, 3, segment.fd)), HasSubstr("is for 2 ranks, not 3"));
  const auto first = join(config_of(0, 2, segment.fd));
  EXPECT_THAT(message("shm", config_of(0, 2, segment.fd)), HasSubstr("rank 0 of 2 is taken"));

  EXPECT_FALSE(make_shm_segment(0));
  EXPECT_FALSE(make_shm_segment(65));
  EXPECT_FALSE(make_shm_segment(2, 100));
  EXPECT_FALSE(make_shm_segment(2, size_t{1} << 40));
}

}  // namespace
}  // namespace penstock
