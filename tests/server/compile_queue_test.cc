// Who compiles when.
#include "server/services/compile_queue.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <condition_variable>
#include <stdexcept>
#include <thread>

namespace penstock {
namespace {

class CompileQueues : public ::testing::Test {
 protected:
  // In the background; told() says when it was called.
  void start(const std::string& asker, const std::string& name, bool is_long = false) {
    start(asker, [this, name, is_long](CompileEffort& effort) {
      if (is_long && !effort.waits) {
        effort.ran_out = true;
        return;
      }
      note(name);
    });
  }
  void start(const std::string& asker, CompileQueue::Attempt attempt) {
    net::co_spawn(io_, queue_.run(asker, gone_, std::move(attempt)),
                  [this](const std::exception_ptr& thrown, const Status& status) {
                    ++n_back_;
                    n_thrown_ += thrown ? 1 : 0;
                    if (!thrown && !status) errors_.push_back(status.error());
                  });
  }
  // Holds the lane's thread until let_go().
  void hold(bool is_long) {
    start("holder", [this, is_long](CompileEffort& effort) {
      if (is_long && !effort.waits) {
        effort.ran_out = true;
        return;
      }
      std::unique_lock lock(mutex_);
      held_ = true;
      changed_.notify_all();
      changed_.wait(lock, [&] { return released_; });
    });
    io_.poll();
    for (bool held = false; !held;) {
      io_.poll();
      const std::unique_lock lock(mutex_);
      held = held_;
    }
  }
  void let_go() {
    const std::unique_lock lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }
  void note(const std::string& name) {
    const std::unique_lock lock(mutex_);
    order_ += name;
  }
  void until_back(int n) {
    while (n_back_ < n) {
      io_.restart();
      io_.run_one();
    }
  }

  net::io_context io_;
  std::atomic<bool> gone_ = false;
  CompileQueue queue_{1};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false, released_ = false;
  std::string order_;
  int n_back_ = 0, n_thrown_ = 0;
  std::vector<Error> errors_;
};

TEST_F(CompileQueues, AskersTakeTurns) {
  hold(false);
  for (const char* name : {"1", "2", "3"}) start("a", name);
  start("b", "4");
  start("c", "5");
  io_.poll();
  let_go();
  until_back(6);
  EXPECT_EQ(order_, "14523");
}

TEST_F(CompileQueues, QuickOnesPassLongOnes) {
  hold(true);
  start("a", "long", true);
  start("a", "quick");
  until_back(1);
  EXPECT_EQ(order_, "quick");
  let_go();
  until_back(3);
  EXPECT_EQ(order_, "quicklong");
}

TEST_F(CompileQueues, NobodyWaitsForMoreThanSomeLongOnes) {
  hold(true);
  for (size_t i = 0; i <= CompileQueue::kMostLong; ++i) start("a", ".", true);
  start("b", "b", true);
  until_back(1);
  ASSERT_EQ(errors_.size(), 1U);
  EXPECT_EQ(errors_.front().code, ErrorCode::kResourceExhausted);
  let_go();
  until_back(3 + static_cast<int>(CompileQueue::kMostLong));
  EXPECT_EQ(order_.size(), 1 + CompileQueue::kMostLong);
}

TEST_F(CompileQueues, WhatNobodyWantsIsNotBegun) {
  gone_ = true;
  start("a", "1");
  until_back(1);
  EXPECT_EQ(order_, "");
}

TEST_F(CompileQueues, WhatIsThrownComesBack) {
  start("a", [](CompileEffort&) { throw std::runtime_error("as it goes"); });
  until_back(1);
  EXPECT_EQ(n_thrown_, 1);
}

TEST_F(CompileQueues, QuickAttemptsHaveFewSteps) {
  std::vector<uint64_t> steps;
  start("a", [&](CompileEffort& effort) {
    steps.push_back(effort.max_steps);
    effort.ran_out = !effort.waits;
  });
  until_back(1);
  EXPECT_EQ(steps,
            (std::vector<uint64_t>{CompileQueue::kQuickSteps, grammar::CompileLimits().max_steps}));
}

}  // namespace
}  // namespace penstock
