// Messages from rank to rank, and operations of groups of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "parallel/communicator.h"

namespace penstock {
namespace {

using testing::HasSubstr;

constexpr size_t kBuffer = 4096;  // an inbox of 16 KiB

void as_message_ranks(int n, const std::function<void(Communicator&)>& work) {
  const auto fd = make_shm_segment(n, kBuffer);
  ASSERT_TRUE(fd) << fd.error().message;
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < n; ++rank) {
      threads.emplace_back([rank, n, file = *fd, &work] {
        CommunicatorConfig config;
        config.rank = rank, config.size = n, config.segment = file;
        const auto ranks = make_communicator("shm", config);
        ASSERT_TRUE(ranks) << ranks.error().message;
        work(**ranks);
      });
    }
  }
  close(*fd);
}

std::vector<std::byte> message_of(int from, int number, size_t n) {
  std::vector<std::byte> message(n);
  std::mt19937 random(static_cast<unsigned>(1000 * from + number));
  for (std::byte& byte : message) byte = static_cast<std::byte>(random());
  return message;
}

// Of every length up to several times what an inbox holds.
size_t length_of(int number) {
  constexpr size_t kLengths[] = {0, 1, 15, 16, 17, 4000, 16'368, 16'384, 70'000, 3, 200'000};
  return kLengths[static_cast<size_t>(number) % std::size(kLengths)];
}

TEST(Messages, ComeInOrderFromEveryRankToEveryOther) {
  constexpr int kRanks = 4, kMessages = 40;
  as_message_ranks(kRanks, [&](Communicator& ranks) {
    std::vector<std::byte> message;
    // All write to all before anybody reads: whoever waits for room makes room.
    for (int i = 0; i < kMessages; ++i) {
      for (int other = 0; other < kRanks; ++other) {
        if (other != ranks.rank()) {
          ASSERT_TRUE(ranks.send_to(message_of(ranks.rank(), i, length_of(i)), other));
        }
      }
    }
    for (int other = kRanks - 1; other >= 0; --other) {
      for (int i = 0; i < kMessages && other != ranks.rank(); ++i) {
        ASSERT_TRUE(ranks.receive_from(other, message));
        EXPECT_EQ(message, message_of(other, i, length_of(i))) << i << " from " << other;
      }
    }
    ASSERT_TRUE(ranks.barrier());
  });
}

TEST(Messages, SenderGoesOn) {
  as_message_ranks(2, [](Communicator& ranks) {
    if (ranks.rank() == 0) {
      for (int i = 0; i < 3; ++i) ASSERT_TRUE(ranks.send_to(message_of(0, i, 1000), 1));
      ASSERT_TRUE(ranks.barrier());  // before the other has taken any
    } else {
      std::vector<std::byte> message;
      ASSERT_TRUE(ranks.barrier());
      for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(ranks.receive_from(0, message));
        EXPECT_EQ(message, message_of(0, i, 1000));
      }
    }
  });
}

TEST(Messages, AreNotWaitedForWhenTheRunHasFailed) {
  as_message_ranks(3, [](Communicator& ranks) {
    std::vector<std::byte> message(100'000);
    if (ranks.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return ranks.fail("the disk is full");
    }
    // One waits for a message, the other for room: rank 2 reads nothing.
    const Status status =
        ranks.rank() == 0 ? ranks.receive_from(1, message) : ranks.send_to(message, 2);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().message, "the disk is full");
  });
}

TEST(Messages, WhoHasEndedIsMissed) {
  as_message_ranks(2, [](Communicator& ranks) {
    if (ranks.rank() == 1) return;
    std::vector<std::byte> message;
    const Status status = ranks.receive_from(1, message);
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr("has ended"));
  });
}

TEST(Groups, TakeTheirOwnSums) {
  constexpr int kRanks = 6, kGroup = 3;
  as_message_ranks(kRanks, [&](Communicator& ranks) {
    ASSERT_TRUE(ranks.barrier());
    ASSERT_TRUE(ranks.form_groups(kGroup));
    const int first = ranks.rank() / kGroup * kGroup, place = ranks.rank() % kGroup;
    EXPECT_EQ(ranks.shard().rank, place);
    EXPECT_EQ(ranks.shard().n_ranks, kGroup);
    // One group does more than the other, which does not wait for it.
    for (int i = 0; i < (first == 0 ? 300 : 20); ++i) {
      const auto one = [&](int rank) { return 0.1f * static_cast<float>(rank + i); };
      std::vector<float> x(2000, one(ranks.rank()));
      ASSERT_TRUE(ranks.all_reduce(x));
      const float sum = one(first) + one(first + 1) + one(first + 2);
      EXPECT_EQ(x, std::vector<float>(2000, sum));
      std::vector<float> rows(kGroup, 0.0f);
      rows[static_cast<size_t>(place)] = one(ranks.rank());
      std::vector<PartRows> parts;
      for (float& value : rows) parts.emplace_back(std::span(&value, 1));
      ASSERT_TRUE(ranks.all_gather(parts));
      EXPECT_EQ(rows, (std::vector<float>{one(first), one(first + 1), one(first + 2)}));
      std::vector<std::byte> y(10, static_cast<std::byte>(ranks.rank()));
      ASSERT_TRUE(ranks.broadcast(y, 2));
      EXPECT_EQ(y[0], static_cast<std::byte>(first + 2));
    }
    // Messages still go to any rank.
    std::vector<std::byte> message = message_of(ranks.rank(), 0, 50);
    ASSERT_TRUE(ranks.send_to(message, (ranks.rank() + kGroup) % kRanks));
    ASSERT_TRUE(ranks.receive_from((ranks.rank() + kGroup) % kRanks, message));
    EXPECT_EQ(message, message_of((ranks.rank() + kGroup) % kRanks, 0, 50));
  });
}

}  // namespace
}  // namespace penstock
