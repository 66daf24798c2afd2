#include "server/http/turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <new>
#include <thread>

#include "server/http/turn_threads.h"

namespace penstock {
namespace {

// Something for which memory runs out when it is kept.
struct Costly {
  explicit Costly(int of, bool fails = false) : number(of), fails_to_move(fails) {}
  Costly(Costly&& from)
      : number(from.number), fails_to_move(from.fails_to_move) {  // NOLINT: it throws
    if (fails_to_move) throw std::bad_alloc();
  }
  int number;
  bool fails_to_move;
};

TEST(Turns, OneOfEachAskerAfterTheOther) {
  Turns<int> turns;
  for (const int number : {10, 11, 12}) turns.add("one", number);
  turns.add("two", 20);
  turns.add("three", 30);
  turns.add("two", 21);
  for (const int expected : {10, 20, 30, 11, 21, 12}) EXPECT_EQ(turns.take(), expected);
  EXPECT_TRUE(turns.empty());
}

TEST(Turns, AnAskerMayBePassedOver) {
  Turns<int> turns;
  for (const int number : {10, 11}) turns.add("one", number);
  for (const int number : {20, 21}) turns.add("two", number);
  const auto not_one = [](const std::string& asker) { return asker != "one"; };
  EXPECT_EQ(turns.take_if(not_one), 20);
  EXPECT_EQ(turns.take(), 10);
  EXPECT_EQ(turns.take_if(not_one), 21);
  EXPECT_EQ(turns.take_if(not_one), std::nullopt);
  EXPECT_EQ(turns.take(), 11);
  EXPECT_TRUE(turns.empty());
}

TEST(Turns, WhatCannotBeKeptChangesNothing) {
  for (const bool known : {false, true}) {
    Turns<Costly> turns;
    turns.add("one", Costly(1));
    if (known) turns.add("two", Costly(2));
    EXPECT_THROW(turns.add("two", Costly(3, true)), std::bad_alloc);
    EXPECT_EQ(turns.size_of("two"), known ? 1U : 0U);
    EXPECT_EQ(turns.take().number, 1);
    if (known) {
      EXPECT_EQ(turns.take().number, 2);
    }
    EXPECT_TRUE(turns.empty());
    turns.add("two", Costly(4));
    EXPECT_EQ(turns.take().number, 4);
  }
}

TEST(TurnThreads, SomeOfThemWorkForOneAsker) {
  constexpr int kMost = 2;
  TurnThreads threads(kMost + 1, kMost);
  net::io_context context;
  std::atomic<int> n_running{0}, most{0}, n_left{6};
  std::atomic<int> left_at_other{0};
  const auto of_one = [&] {
    most = std::max<int>(most, ++n_running);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    --n_running, --n_left;
  };
  const auto of_other = [&] { left_at_other = n_left.load(); };
  for (int i = n_left; i > 0; --i)
    net::co_spawn(context, threads.run("one", of_one), net::detached);
  net::co_spawn(context, threads.run("other", of_other), net::detached);
  context.run();
  EXPECT_EQ(n_left, 0);
  EXPECT_EQ(most, kMost);
  EXPECT_GE(left_at_other, 4);
}

// Two askers with more work than they may have done at a time leave threads for a third.
TEST(TurnThreads, SomeAreLeftForAskersThatHaveNone) {
  constexpr size_t kThreads = 8, kMost = 4;
  TurnThreads threads(kThreads, kMost, kThreads / 2);
  net::io_context context;
  std::atomic<bool> third_has_run{false};
  std::atomic<int> n_running{0}, most_running{0}, n_in_vain{0};
  const auto hold = [&] {
    most_running = std::max<int>(most_running, ++n_running);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (!third_has_run && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!third_has_run) ++n_in_vain;
    --n_running;
  };
  for (const char* asker : {"one", "two"}) {
    for (size_t i = 0; i < kThreads; ++i)
      net::co_spawn(context, threads.run(asker, hold), net::detached);
  }
  const auto third = [&] {  // when the others have all that they get
    for (int i = 0; i < 2000 && n_running < 6; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    third_has_run = true;
  };
  net::co_spawn(context, threads.run("three", third), net::detached);
  context.run();
  EXPECT_EQ(n_in_vain, 0);
  EXPECT_EQ(most_running, 6);  // each has one, and four further ones between them
}

}  // namespace
}  // namespace penstock
