// How long a stream waits for its next news.
#include "server/api/event_channel.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>

namespace penstock {
namespace {

using std::chrono::milliseconds;

class EventChannelTest : public ::testing::Test {
 protected:
  // One token of the request, `after` milliseconds from now.
  void news_in(int after, FinishReason finish = FinishReason::kNone) {
    auto timer = std::make_shared<net::steady_timer>(context_, milliseconds(after));
    timer->async_wait([timer, finish, sink = channel_](const boost::system::error_code&) {
      const TokenEvent event{.index = 0, .token = 7, .finish = finish};
      sink->on_tokens(RequestId{1}, {&event, 1});
    });
  }

  // Runs pass() once for each timeout, one after the other; the milliseconds that each took.
  std::vector<double> waits(std::vector<int> timeouts) {
    std::vector<double> taken;
    const EventChannel::Take take = [&](std::vector<OwnedEvent>& news) {
      n_news_ += static_cast<int>(news.size());
      ++n_takes_;
      return more_;
    };
    const auto stream = [&]() -> net::awaitable<void> {
      for (const int timeout : timeouts) {
        const auto begun = Clock::now();
        co_await channel_->pass(take, milliseconds(timeout));
        taken.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begun).count());
      }
      channel_->close();
    };
    net::co_spawn(context_, stream, net::detached);
    context_.run();
    return taken;
  }

  // Well below 1: a timer may be early by rounding. A busy machine may be late by any time: no
  // upper bounds but against a wait that never ends.
  static constexpr double kEarly = 0.98;

  net::io_context context_;
  std::shared_ptr<EventChannel> channel_ = std::make_shared<EventChannel>(context_.get_executor());
  int n_news_ = 0, n_takes_ = 0;
  bool more_ = true;
};

TEST_F(EventChannelTest, EndsWhenNothingHasComeForTheTimeout) {
  const std::vector<double> taken = waits({60});
  EXPECT_GE(taken.at(0), 60 * kEarly);
  EXPECT_EQ(n_news_, 0);
}

// The time is that without news, not that of the whole stream.
TEST_F(EventChannelTest, NewsMoveTheDeadline) {
  for (const int after : {50, 100, 150}) news_in(after);
  const std::vector<double> taken = waits({100});
  EXPECT_EQ(n_news_, 3);
  EXPECT_GE(taken.at(0), 250 * kEarly);
}

TEST_F(EventChannelTest, GathersNewsUntilASequenceEnds) {
  channel_->gather();
  more_ = false;  // the wait ends with the first that it hears of
  for (const int after : {10, 20, 30}) news_in(after);
  news_in(40, FinishReason::kLength);
  const std::vector<double> taken = waits({60000});
  EXPECT_EQ(n_news_, 4);
  EXPECT_EQ(n_takes_, 1);
  EXPECT_LT(taken.at(0), 30000);
}

TEST_F(EventChannelTest, DoesNotGatherWithoutEnd) {
  channel_->gather();
  more_ = false;
  for (int i = 0; i < 300; ++i) news_in(10);
  waits({60000});
  EXPECT_GE(n_news_, 256);
}

// The timer of a longer wait is still running when a shorter one begins, and the other way round.
TEST_F(EventChannelTest, EveryWaitHasItsOwnTimeout) {
  more_ = false;  // the first wait ends with the news
  news_in(10);
  const std::vector<double> taken = waits({60000, 50, 120});
  EXPECT_EQ(n_news_, 1);
  EXPECT_LT(taken.at(0), 30000);
  EXPECT_GE(taken.at(1), 50 * kEarly);
  EXPECT_LT(taken.at(1), 30000) << "waited for the timer of the wait before";
  EXPECT_GE(taken.at(2), 120 * kEarly);
}

TEST_F(EventChannelTest, AWaitOutlivesTheShorterTimerOfTheOneBefore) {
  more_ = false;
  news_in(10);
  const std::vector<double> taken = waits({80, 200});
  EXPECT_GE(taken.at(1), 200 * kEarly) << "ended by the timer of the wait before";
}

}  // namespace
}  // namespace penstock
