#include "engine/schedule/waiting_queue.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

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
  Sequence first = sequence_of(1, Priority::kNormal, 0),
           second = sequence_of(2, Priority::kNormal, 1),
           third = sequence_of(3, Priority::kNormal, 2);
  for (Sequence* one : {&first, &second, &third}) queue.add(*one);
  queue.take(second);
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
  skip[queue.queue_of(low)] = 1;
  EXPECT_EQ(queue.best(*priority, 501, skip), &late);
}

// Takes out all that wait, and names them by their orders.
std::vector<uint64_t> take_all(WaitingQueue& queue, const char* policy_name) {
  const auto policy = make_policy(policy_name, {.ageing_seconds = 1e9}).value();
  std::vector<uint64_t> orders;
  while (Sequence* next = queue.best(*policy, 0, kNone)) {
    orders.push_back(next->arrival_order);
    queue.take(*next);
  }
  return orders;
}

struct TurnsCase {
  std::vector<uint64_t> tenants;  // of sequences 1, 2, …
  std::vector<uint64_t> expected;
};

TEST(WaitingQueue, TenantsTakeTurns) {
  for (const TurnsCase& one :
       {TurnsCase{{0, 0, 0, 0}, {1, 2, 3, 4}}, TurnsCase{{7, 7, 7, 7}, {1, 2, 3, 4}},
        TurnsCase{{7, 7, 7, 7, 8}, {1, 5, 2, 3, 4}},
        TurnsCase{{7, 7, 7, 8, 8, 9, 0}, {1, 4, 6, 7, 2, 5, 3}}}) {
    WaitingQueue queue;
    std::vector<Sequence> all;
    for (size_t i = 0; i < one.tenants.size(); ++i) {
      all.push_back(sequence_of(i + 1, Priority::kNormal, 0));
      all.back().tenant = one.tenants[i];
    }
    for (Sequence& sequence : all) queue.add(sequence);
    EXPECT_EQ(take_all(queue, "continuous"), one.expected);
  }
}

// However many another one has there, and however long it goes on.
TEST(WaitingQueue, WhoeverComesToAManyTenantsQueueWaitsForOneOfThem) {
  WaitingQueue queue;
  const auto policy = make_policy("continuous", {}).value();
  std::deque<Sequence> all;
  const auto add = [&](uint64_t tenant) {
    all.push_back(sequence_of(all.size() + 1, Priority::kNormal, 0));
    all.back().tenant = tenant;
    queue.add(all.back());
    return &all.back();
  };
  const auto next = [&] {
    Sequence* one = queue.best(*policy, 0, kNone);
    queue.take(*one);
    return one;
  };
  for (int i = 0; i < 1000; ++i) add(7);
  for (int i = 0; i < 100; ++i) {
    const Sequence* other = add(8);
    EXPECT_EQ(next()->tenant, 7U);
    EXPECT_EQ(next(), other);
    add(7);
  }
}

TEST(WaitingQueue, PrioritiesStandAboveTurns) {
  Sequence low = sequence_of(1, Priority::kLow, 0), own = sequence_of(2, Priority::kHigh, 0),
           again = sequence_of(3, Priority::kHigh, 0);
  own.tenant = again.tenant = 7;
  for (const bool by_priority : {true, false}) {
    WaitingQueue queue(by_priority);
    for (Sequence* one : {&low, &own, &again}) {
      one->turn = 0;
      queue.add(*one);
    }
    EXPECT_EQ(take_all(queue, by_priority ? "priority" : "continuous"),
              by_priority ? (std::vector<uint64_t>{2, 3, 1}) : (std::vector<uint64_t>{1, 2, 3}));
  }
}

// Each sequence of a request is a turn of its tenant.
TEST(WaitingQueue, SequencesOfOneRequestAreTurnsEach) {
  WaitingQueue queue;
  std::vector<Sequence> all;
  for (uint64_t i = 1; i <= 5; ++i) all.push_back(sequence_of(i, Priority::kNormal, 0));
  all[0].tenant = all[1].tenant = all[2].tenant = all[3].tenant = 7;
  all[0].n_turns = all[1].n_turns = all[2].n_turns = 3;
  queue.add(all[0]);
  queue.add(all[3]);
  for (const size_t i : {size_t{1}, size_t{2}}) {
    all[i].turn = all[0].turn + i;
    queue.add(all[i]);
  }
  all[4].tenant = 8;
  queue.add(all[4]);
  Sequence last = sequence_of(6, Priority::kNormal, 0);
  last.tenant = 7;
  queue.add(last);
  EXPECT_EQ(last.turn, all[3].turn + 1);
  EXPECT_EQ(take_all(queue, "continuous"), (std::vector<uint64_t>{1, 5, 2, 3, 4, 6}));
}

// Sequences that begin later than their request keep their places before the tenant's other
// requests.
TEST(WaitingQueue, SequencesThatComeLaterComeBeforeLaterRequests) {
  WaitingQueue queue;
  Sequence parent = sequence_of(1, Priority::kNormal, 0),
           child = sequence_of(2, Priority::kNormal, 0),
           request = sequence_of(3, Priority::kNormal, 0);
  parent.n_turns = 2;
  queue.add(parent);
  queue.take(parent);
  queue.add(request);
  child.turn = parent.turn + 1;
  queue.add(child);
  EXPECT_EQ(take_all(queue, "continuous"), (std::vector<uint64_t>{2, 3}));
}

// A sequence that is taken before others of its tenant does not put them in front of everybody who
// comes.
TEST(WaitingQueue, WhoIsLeftOutDoesNotKeepOtherTenantsWaiting) {
  WaitingQueue queue;
  std::vector<Sequence> all;
  for (uint64_t i = 1; i <= 6; ++i) all.push_back(sequence_of(i, Priority::kNormal, 0));
  for (size_t i = 0; i < 5; ++i) {
    all[i].tenant = 7;
    queue.add(all[i]);
  }
  queue.take(all[0]);
  queue.take(all[4]);
  all[5].tenant = 8;
  queue.add(all[5]);
  EXPECT_EQ(take_all(queue, "continuous"), (std::vector<uint64_t>{2, 6, 3, 4}));
}

TEST(WaitingQueue, WhatIsCancelledGivesItsTurnsBack) {
  WaitingQueue queue;
  std::vector<Sequence> all;
  for (uint64_t i = 1; i <= 5; ++i) all.push_back(sequence_of(i, Priority::kNormal, 0));
  for (size_t i = 0; i < 4; ++i) {
    all[i].tenant = i < 3 ? 7 : 8;
    queue.add(all[i]);
  }
  for (size_t i = 0; i < 3; ++i) queue.remove(all[i]);
  all[4].tenant = 7;
  queue.add(all[4]);
  EXPECT_EQ(all[4].turn, all[3].turn);
}

TEST(WaitingQueue, NamesOneInTheBackgroundOnlyWhereThereIsNoOther) {
  WaitingQueue queue;
  Sequence behind = sequence_of(1, Priority::kBackground, 0),
           low = sequence_of(2, Priority::kLow, 1000);
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
  const QueueState state = queue.state(*policy, 4);
  EXPECT_EQ(state.n_waiting, 2);
  EXPECT_DOUBLE_EQ(state.oldest_wait, 3);
  EXPECT_EQ(state.n_waiting_tokens, a.n_tokens() + b.n_tokens());
}

}  // namespace
}  // namespace penstock
