#include "engine/requests/inbox.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace penstock {
namespace {

std::unique_ptr<RequestState> request_with(size_t n_prompt) {
  auto state = std::make_unique<RequestState>();
  state->request.prompt.resize(n_prompt);
  return state;
}

TEST(Inbox, GivesWhatCameInItsOrder) {
  Inbox inbox(10, 0);
  const RequestId first = inbox.submit(request_with(3)).value();
  const RequestId second = inbox.submit(request_with(1)).value();
  inbox.cancel({first, 2, FinishReason::kAbort});
  inbox.reset_prefix_cache();
  Inbox::Content content;
  inbox.take(content);
  ASSERT_EQ(content.requests.size(), 2u);
  EXPECT_EQ(content.requests[0]->id, first);
  EXPECT_EQ(content.requests[1]->id, second);
  ASSERT_EQ(content.cancels.size(), 1u);
  EXPECT_EQ(content.cancels[0].index, 2);
  EXPECT_TRUE(content.reset_prefix_cache);
  Inbox::Content nothing;
  inbox.take(nothing);
  EXPECT_TRUE(nothing.requests.empty() && nothing.cancels.empty() && !nothing.reset_prefix_cache);
}

TEST(Inbox, RefusesRequestsUntilOthersHaveLeft) {
  Inbox inbox(2, 0);
  ASSERT_TRUE(inbox.submit(request_with(1)));
  ASSERT_TRUE(inbox.submit(request_with(1)));
  EXPECT_EQ(inbox.submit(request_with(1)).error().code, ErrorCode::kResourceExhausted);
  Inbox::Content content;
  inbox.take(content);
  EXPECT_FALSE(inbox.submit(request_with(1)));  // they were taken, but do not run
  inbox.leave(*content.requests[0]);
  inbox.leave(*content.requests[0]);  // counts once
  EXPECT_TRUE(inbox.submit(request_with(1)));
  EXPECT_FALSE(inbox.submit(request_with(1)));
  EXPECT_EQ(inbox.n_rejected(), 3);
}

TEST(Inbox, CountsPromptTokensButTakesOneRequestOfAnyLength) {
  Inbox inbox(10, 8);
  ASSERT_TRUE(inbox.submit(request_with(20)));
  EXPECT_EQ(inbox.submit(request_with(1)).error().code, ErrorCode::kResourceExhausted);
  Inbox::Content content;
  inbox.take(content);
  inbox.leave(*content.requests[0]);
  EXPECT_TRUE(inbox.submit(request_with(5)));
  EXPECT_TRUE(inbox.submit(request_with(3)));
  EXPECT_FALSE(inbox.submit(request_with(1)));
}

TEST(Inbox, DoesWorkAtOnceWhileNobodyServesIt) {
  Inbox inbox(1, 0);
  int n = 0;
  EXPECT_TRUE(inbox.between_steps([&] { ++n; }));
  inbox.close();
  EXPECT_TRUE(inbox.between_steps([&] { ++n; }));  // saving a session after stop()
  EXPECT_EQ(n, 2);
}

TEST(Inbox, HandsWorkToWhoServesIt) {
  Inbox inbox(1, 0);
  inbox.open();
  std::thread::id done_by;
  std::thread server([&] {
    while (inbox.wait(Clock::time_point::max())) inbox.run_jobs();
    inbox.unserved();
  });
  const std::thread::id serving = server.get_id();
  EXPECT_TRUE(inbox.between_steps([&] { done_by = std::this_thread::get_id(); }));
  EXPECT_EQ(done_by, serving);
  const Status failed = inbox.between_steps([] { throw std::bad_alloc(); });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kResourceExhausted);
  inbox.close();
  server.join();
}

TEST(Inbox, WakesWhoWaitsAndTellsWhenItIsClosed) {
  Inbox inbox(1, 0);
  inbox.open();
  EXPECT_TRUE(inbox.wait(Clock::time_point::min()));
  EXPECT_TRUE(inbox.wait(Clock::now() + std::chrono::milliseconds(1)));  // nothing comes
  std::thread caller([&] { ASSERT_TRUE(inbox.submit(request_with(1))); });
  EXPECT_TRUE(inbox.wait(Clock::time_point::max()));
  caller.join();
  inbox.close();
  EXPECT_FALSE(inbox.wait(Clock::time_point::max()));
  EXPECT_EQ(inbox.submit(request_with(1)).error().code, ErrorCode::kCancelled);
  EXPECT_EQ(inbox.between_steps([] {}).error().code, ErrorCode::kCancelled);
}

TEST(Inbox, TakesRequestsFromManyThreads) {
  Inbox inbox(1000, 0);
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int k = 0; k < 100; ++k) EXPECT_TRUE(inbox.submit(request_with(1)));
    });
  }
  std::vector<uint64_t> ids;
  Inbox::Content content;
  while (ids.size() < 400) {
    inbox.take(content);
    for (const auto& state : content.requests) ids.push_back(static_cast<uint64_t>(state->id));
    content.requests.clear();
  }
  for (std::thread& caller : callers) caller.join();
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(ids[i], i + 1);
}

}  // namespace
}  // namespace penstock
