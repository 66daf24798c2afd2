#include "engine/schedule/waiting_queue.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

Sequence sequence_of(uint64_t order, Priority priority, double arrival) {
  Sequence sequence;
  sequence.arrival_order = order;
  sequence.priority = priority;
  sequence.arrival = arrival;
  sequence.tokens.resize(order + 1);
  return sequence;
}

constexpr size_t kNone[WaitingQueue::kNumClasses] = {};

TEST(WaitingQueue, KeepsTheOrderOfArrivalWhoeverComesBack) {
  WaitingQueue queue;
  Sequence first = sequence_of(1, Priority::kNormal, 0), second = sequence_of(2, Priority::kNormal, 1),
           third = sequence_of(3, Priority::kNormal, 2);
  queue.add(first);
  queue.add(third);
  queue.add(second);  // was preempted
  const auto policy = make_policy("continuous", {}).value();
  for (Sequence* expected : {&first, &second, &third}) {
    ASSERT_EQ(queue.best(*policy, 3, kNone), expected);
    EXPECT_EQ(expected->state, SeqState::kWaiting);
    queue.remove(*expected);
  }
  EXPECT_EQ(queue.best(*policy, 3, kNone), nullptr);
  EXPECT_EQ(queue.size(), 0);
}

TEST(WaitingQueue, AsksThePolicyWhoIsFirst) {
  WaitingQueue queue;
  Sequence low = sequence_of(1, Priority::kLow, 0), high = sequence_of(2, Priority::kHigh, 5);
  queue.add(low);
  queue.add(high);
  const auto priority = make_policy("priority", {.ageing_seconds = 10}).value();
  EXPECT_EQ(queue.best(*priority, 6, kNone), &high);
  Sequence late = sequence_of(3, Priority::kHigh, 500);
  queue.remove(high);
  queue.add(late);
  EXPECT_EQ(queue.best(*priority, 501, kNone), &low);  // it has waited long enough
  size_t skip[WaitingQueue::kNumClasses] = {};
  skip[WaitingQueue::class_of(low)] = 1;
  EXPECT_EQ(queue.best(*priority, 501, skip), &late);
}

TEST(WaitingQueue, NamesOneInTheBackgroundOnlyWhereThereIsNoOther) {
  WaitingQueue queue;
  Sequence behind = sequence_of(1, Priority::kBackground, 0), low = sequence_of(2, Priority::kLow, 1000);
  queue.add(behind);
  queue.add(low);
  for (const char* const name : {"continuous", "priority"}) {
    const auto policy = make_policy(name, {.ageing_seconds = 1}).value();
    EXPECT_EQ(queue.best(*policy, 1000, kNone), &low) << name;
  }
  EXPECT_EQ(queue.n_background(), 1);
  queue.remove(low);
  const auto policy = make_policy("continuous", {}).value();
  EXPECT_EQ(queue.best(*policy, 1000, kNone), &behind);
}

TEST(WaitingQueue, TellsHowLongAndHowMuch) {
  WaitingQueue queue;
  Sequence a = sequence_of(1, Priority::kLow, 2), b = sequence_of(2, Priority::kHigh, 1);
  queue.add(a);
  queue.add(b);
  const auto policy = make_policy("dynamic", {.max_batch_tokens = 100}).value();
  ASSERT_TRUE(policy->wants_tokens());
  const QueueState state = queue.state(*policy, 4);
  EXPECT_EQ(state.n_waiting, 2);
  EXPECT_DOUBLE_EQ(state.oldest_wait, 3);
  EXPECT_EQ(state.n_waiting_tokens, a.n_tokens() + b.n_tokens());
}

}  // namespace
}  // namespace penstock
