#include "server/http/apart_threads.h"

#include <gmock/gmock.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <latch>

#include "base/work.h"
#include "server/http/unattended_exchange.h"

namespace penstock {
namespace {

constexpr size_t kSmall = 1, kLargeWork = size_t{32} << 20;

// A connections' thread, and what became of the work that was given from it.
class ApartThreadsTest : public testing::Test {
 protected:
  ~ApartThreadsTest() override {
    apart_.stop();
    guard_.reset();
    context_.stop();
    io_.join();
  }
  struct Call {
    Call(net::io_context& context, const std::string& peer)
        : exchange(context.get_executor(), {.peer = peer}) {}
    UnattendedExchange exchange;
    std::latch over{1};
    std::string outcome;  // "done", or why it ended; after over
    std::thread::id back_on;
  };
  std::shared_ptr<Call> start(size_t n_bytes, std::function<void()> work,
                              const std::string& peer = "one") {
    auto call = std::make_shared<Call>(context_, peer);
    net::co_spawn(context_, run(call, n_bytes, std::move(work)), net::detached);
    return call;
  }
  // Returns when the work has begun. To occupy several threads, start the largest work first: small
  // work may be taken by any thread, and large work only by the last one.
  std::shared_ptr<Call> start_and_wait(size_t n_bytes, const std::function<void()>& work) {
    const auto begun = std::make_shared<std::latch>(1);
    auto call = start(n_bytes, [begun, work] {
      begun->count_down();
      work();
    });
    begun->wait();
    return call;
  }
  void leave(const std::shared_ptr<Call>& call) {
    net::post(context_, [call] { call->exchange.leave(); });
  }

  net::io_context& context() { return context_; }

  ApartThreads apart_;

 private:
  net::awaitable<void> run(std::shared_ptr<Call> call, size_t n_bytes, std::function<void()> work) {
    try {
      co_await apart_.run(call->exchange, n_bytes, std::move(work));
      call->outcome = "done";
    } catch (const std::exception& error) {
      call->outcome = error.what();
    }
    call->back_on = std::this_thread::get_id();
    call->over.count_down();
  }

  net::io_context context_;
  net::executor_work_guard<net::io_context::executor_type> guard_ = net::make_work_guard(context_);

 protected:
  std::thread io_{[this] { context_.run(); }};
};

void until_cancelled() {
  for (;;) give_way();
}

TEST_F(ApartThreadsTest, WorksApartAndComesBack) {
  std::thread::id worked_on;
  const auto call = start(kSmall, [&] { worked_on = std::this_thread::get_id(); });
  call->over.wait();
  EXPECT_EQ(call->outcome, "done");
  EXPECT_EQ(call->back_on, io_.get_id());
  EXPECT_NE(worked_on, io_.get_id());
}

TEST_F(ApartThreadsTest, GivesOnWhatTheWorkThrows) {
  const auto call = start(kSmall, [] { throw std::runtime_error("no"); });
  call->over.wait();
  EXPECT_EQ(call->outcome, "no");
}

TEST_F(ApartThreadsTest, SmallWorkDoesNotWaitForLargeWork) {
  std::vector<std::shared_ptr<Call>> large;
  for (int i = 0; i < 5; ++i) large.push_back(start(kLargeWork, until_cancelled));
  const auto medium = start(ApartThreads::kMedium, until_cancelled);
  for (int i = 0; i < 20; ++i) {
    const auto small = start(kSmall, [] {});
    small->over.wait();
    EXPECT_EQ(small->outcome, "done");
  }
  large.push_back(medium);
  for (const auto& call : large) EXPECT_FALSE(call->over.try_wait());
  for (const auto& call : large) leave(call);
  for (const auto& call : large) {
    call->over.wait();
    EXPECT_EQ(call->outcome, "cancelled");
  }
}

// However much one client asks for: another one's work is next but for what is being done.
TEST_F(ApartThreadsTest, ClientsTakeTurns) {
  std::latch go_on(1);
  std::vector<std::shared_ptr<Call>> calls;
  // Every thread has something to do.
  for (const size_t size : {kLargeWork, ApartThreads::kMedium, kSmall}) {
    calls.push_back(start_and_wait(size, [&] { go_on.wait(); }));
  }
  std::atomic<int> n_done = 0;
  int n_before = -1;
  for (int i = 0; i < 100; ++i) calls.push_back(start(kSmall, [&] { ++n_done; }));
  calls.push_back(start(kSmall, [&] { n_before = n_done; }, "other"));
  std::latch queued(1);  // the calls above have been given
  net::post(context(), [&] { queued.count_down(); });
  queued.wait();
  go_on.count_down();
  for (const auto& call : calls) call->over.wait();
  EXPECT_EQ(n_done, 100);
  EXPECT_LE(n_before, 6);
}

// What waits behind one that left is not begun either when its client left.
TEST_F(ApartThreadsTest, WorkEndsWhenItsClientLeaves) {
  std::atomic<int> n_begun = 0;
  const auto first = start_and_wait(kLargeWork, until_cancelled);
  std::vector<std::shared_ptr<Call>> behind;
  for (int i = 0; i < 10; ++i) behind.push_back(start(kLargeWork, [&] { ++n_begun; }));
  for (const auto& call : behind) leave(call);
  leave(first);
  first->over.wait();
  EXPECT_EQ(first->outcome, "cancelled");
  for (const auto& call : behind) {
    call->over.wait();
    EXPECT_EQ(call->outcome, "cancelled");
  }
  EXPECT_EQ(n_begun, 0);
}

TEST_F(ApartThreadsTest, StopCancelsAndWaits) {
  std::vector<std::shared_ptr<Call>> calls;
  for (const size_t size : {kLargeWork, kSmall})
    calls.push_back(start_and_wait(size, until_cancelled));
  calls.push_back(start(kLargeWork, [] {}));
  apart_.stop();
  calls.push_back(start(kSmall, [] {}));
  for (const auto& call : calls) {
    call->over.wait();
    EXPECT_EQ(call->outcome, "cancelled");
  }
}

}  // namespace
}  // namespace penstock
