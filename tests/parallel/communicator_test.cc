// Ranks as threads where they behave, as processes where they die.
#include "parallel/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

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
void as_ranks(int n, const std::function<void(Communicator&)>& work, size_t buffer_bytes = kSmallBuffer) {
  const auto fd = make_shm_segment(n, buffer_bytes);
  ASSERT_TRUE(fd) << fd.error().message;
  const Descriptor segment{*fd};
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < n; ++rank)
    threads.emplace_back([rank, n, file = segment.fd, &work] {
      if (const auto communicator = join(config_of(rank, n, file))) work(*communicator);
    });
}

std::vector<float> values_of(int rank, size_t n) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

class ShmCommunicator : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ShmCommunicator, testing::Values(1, 2, 3, 5),
                         testing::PrintToStringParamName());

TEST_P(ShmCommunicator, SumsInTheOrderOfTheRanks) {
  const int n_ranks = GetParam();
  as_ranks(n_ranks, [&](Communicator& ranks) {
    for (const size_t n : {size_t{0}, size_t{1}, size_t{7}, size_t{1024}, size_t{1025}, size_t{5000}}) {
      std::vector<float> expected = values_of(0, n);
      for (int r = 1; r < n_ranks; ++r) {
        const std::vector<float> part = values_of(r, n);
        for (size_t i = 0; i < n; ++i) expected[i] += part[i];
      }
      std::vector<float> x = values_of(ranks.rank(), n);
      ASSERT_TRUE(ranks.all_reduce(x));
      EXPECT_EQ(x, expected) << n << " floats, rank " << ranks.rank();
    }
  });
}

TEST_P(ShmCommunicator, GathersPartsOfUnequalSizes) {
  const int n_ranks = GetParam();
  const auto size_of = [](int rank) { return static_cast<size_t>(rank == 1 ? 0 : 1500 * rank + 3); };
  as_ranks(n_ranks, [&](Communicator& ranks) {
    std::vector<std::vector<float>> rows;
    for (int r = 0; r < n_ranks; ++r)
      rows.push_back(r == ranks.rank() ? values_of(r, size_of(r)) : std::vector<float>(size_of(r)));
    const std::vector<std::span<float>> parts(rows.begin(), rows.end());
    ASSERT_TRUE(ranks.all_gather(parts));
    for (int r = 0; r < n_ranks; ++r) EXPECT_EQ(rows[static_cast<size_t>(r)], values_of(r, size_of(r)));
  });
}

TEST_P(ShmCommunicator, BroadcastsFromEveryRoot) {
  const int n_ranks = GetParam();
  as_ranks(n_ranks, [&](Communicator& ranks) {
    for (int root = 0; root < n_ranks; ++root) {
      std::vector<std::byte> x(10'001, static_cast<std::byte>(ranks.rank()));
      ASSERT_TRUE(ranks.broadcast(x, root));
      EXPECT_EQ(x, std::vector<std::byte>(10'001, static_cast<std::byte>(root)));
    }
  });
}

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

TEST_P(ShmCommunicator, OperationsInAnyOrderKeepApart) {
  const int n_ranks = GetParam();
  as_ranks(n_ranks, [&](Communicator& ranks) {
    std::mt19937 random(42);  // the same on every rank
    for (int i = 0; i < 300; ++i) {
      const size_t n = random() % 3000;
      if (random() % 2 == 0) {
        std::vector<float> x(n, 1.0f + static_cast<float>(ranks.rank()));
        ASSERT_TRUE(ranks.all_reduce(x));
        EXPECT_EQ(x, std::vector<float>(n, static_cast<float>(n_ranks * (n_ranks + 1) / 2)));
      } else {
        const int root = static_cast<int>(random() % static_cast<unsigned>(n_ranks));
        std::vector<std::byte> x(n, static_cast<std::byte>(ranks.rank() + i));
        ASSERT_TRUE(ranks.broadcast(x, root));
        EXPECT_EQ(x, std::vector<std::byte>(n, static_cast<std::byte>(root + i)));
      }
    }
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
      ranks.fail("the disk is full");
    } else {
      const Status status = ranks.barrier();
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().message, "the disk is full");
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
  std::vector<std::span<float>> parts = {x};
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
  EXPECT_THAT(message("shm", config_of(2, 2, -1)), HasSubstr("rank 2 of 2: expected a rank from 0 to 1"));
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
