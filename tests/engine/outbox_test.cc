#include "engine/requests/outbox.h"

#include <gtest/gtest.h>

#include <new>

#include "engine/collector.h"

namespace penstock {
namespace {

class CountingSink : public Collector {
 public:
  void on_tokens(RequestId id, std::span<const TokenEvent> events) override {
    ++n_calls;
    if (n_refusals > 0) {
      --n_refusals;
      throw std::bad_alloc();
    }
    Collector::on_tokens(id, events);
  }
  int n_calls = 0;
  int n_refusals = 0;  // calls from now on that run out of memory
};

const Error kNoMemory{ErrorCode::kResourceExhausted, "out of memory"};

struct Requested : RequestState {
  explicit Requested(int n) {
    this->n = n_open = n;
    kept = std::make_shared<CountingSink>();
    sink = kept;
  }
  std::shared_ptr<CountingSink> kept;
};

void deliver(Outbox& outbox, std::vector<RequestState*>* failed = nullptr,
             std::vector<RequestState*>* finished = nullptr) {
  outbox.deliver(
      kNoMemory,
      [&](RequestState& state) {
        if (failed != nullptr) failed->push_back(&state);
      },
      [&](RequestState& state) {
        if (finished != nullptr) finished->push_back(&state);
      });
}

TEST(Outbox, TellsEverySinkOnceWithItsAlternatives) {
  Outbox outbox;
  Requested a(2), b(1);
  outbox.make_room(a, 1);
  outbox.make_room(b, 2);
  const TokenLogprob top_a[] = {{7, -1.0f, 1}, {9, -2.0f, 2}}, top_b[] = {{5, -0.5f, 1}};
  outbox.push(a, {.index = 0, .token = 7, .alternatives = outbox.keep(top_a)});
  outbox.push(b, {.index = 0, .token = 5, .alternatives = outbox.keep(top_b)});
  outbox.push(a, {.index = 1, .token = 9, .alternatives = outbox.keep({})});
  deliver(outbox);
  EXPECT_EQ(a.kept->n_calls, 1);
  EXPECT_EQ(b.kept->n_calls, 1);
  auto& sequences = a.kept->result.sequences;
  EXPECT_EQ(sequences[0].tokens, std::vector<TokenId>{7});
  ASSERT_EQ(sequences[0].alternatives[0].size(), 2u);
  EXPECT_EQ(sequences[0].alternatives[0][1].token, 9);
  EXPECT_TRUE(sequences[1].alternatives[0].empty());
  EXPECT_EQ(b.kept->result.sequences[0].alternatives[0][0].logprob, -0.5f);
  deliver(outbox);  // nothing new
  EXPECT_EQ(a.kept->n_calls, 1);
}

TEST(Outbox, TellsWhoHasEnded) {
  Outbox outbox;
  Requested a(1), b(1);
  RequestStats stats;
  outbox.push(a, {.token = 1, .finish = FinishReason::kStop, .stats = &stats});
  outbox.push(b, {.token = 2});
  a.n_open = 0;
  std::vector<RequestState*> finished;
  deliver(outbox, nullptr, &finished);
  EXPECT_EQ(finished, std::vector<RequestState*>{&a});
  EXPECT_EQ(a.kept->result.sequences[0].finish, FinishReason::kStop);
}

TEST(Outbox, TellsOfTheEndOfARequestWhoseSinkHasNoMemory) {
  Outbox outbox;
  Requested a(1);
  outbox.make_room(a, 1);
  RequestStats stats;
  outbox.push(a, {.token = 1});
  a.kept->n_refusals = 1;
  std::vector<RequestState*> finished;
  int n_failed = 0;
  outbox.deliver(
      kNoMemory,
      [&](RequestState& state) {  // pushes the end, which is delivered by the same call
        ++n_failed;
        state.n_open = 0;
        outbox.push(state, {.finish = FinishReason::kError, .stats = &stats});
      },
      [&](RequestState& state) { finished.push_back(&state); });
  EXPECT_EQ(n_failed, 1);
  EXPECT_EQ(finished, std::vector<RequestState*>{&a});
  EXPECT_TRUE(a.kept->result.sequences[0].tokens.empty());
  EXPECT_EQ(a.kept->result.sequences[0].n_ends, 1);
}

// A sequence that ended in the very call in which the sink had no memory has no other end to come.
TEST(Outbox, TellsOfEndsOnceMoreThatASinkWithoutMemoryLost) {
  Outbox outbox;
  Requested a(3);
  a.kept->n_refusals = 1;
  outbox.make_room(a, 1);
  RequestStats stats;
  outbox.push(a, {.index = 0, .token = 1});
  outbox.push(a, {.index = 2, .token = 4, .finish = FinishReason::kStop, .stats = &stats});
  a.n_open = 2;
  std::vector<RequestState*> failed, finished;
  deliver(outbox, &failed, &finished);
  EXPECT_EQ(failed, std::vector<RequestState*>{&a});
  EXPECT_TRUE(finished.empty());
  EXPECT_EQ(a.kept->n_finished(), 1);
  const auto& ended = a.kept->result.sequences[2];
  EXPECT_EQ(ended.finish, FinishReason::kError);
  EXPECT_EQ(ended.error->code, ErrorCode::kResourceExhausted);
  EXPECT_TRUE(ended.tokens.empty());
}

// However many tokens came before them, ends need no memory, and no token makes way for them.
TEST(Outbox, TokensLeaveRoomForEnds) {
  for (size_t n_tokens = 0; n_tokens < 20; ++n_tokens) {
    Outbox outbox;
    Requested a(2);
    outbox.make_room(a, 1);
    RequestStats stats;
    for (size_t i = 0; i < n_tokens; ++i) outbox.push(a, {.token = 3});
    const size_t capacity = a.news.capacity();
    for (int i = 0; i < 2; ++i, --a.n_open)
      outbox.push(a, {.index = i, .finish = FinishReason::kError, .stats = &stats});
    EXPECT_EQ(a.news.capacity(), capacity);
    deliver(outbox);
    EXPECT_EQ(a.kept->n_finished(), 2);
    EXPECT_EQ(a.kept->result.sequences[0].tokens.size(), n_tokens);
  }
}

TEST(Outbox, SendsEndsOfWhatWasNeverStarted) {
  Requested a(3);
  Outbox::send_ends(a, 3, kNoMemory);
  EXPECT_EQ(a.kept->n_finished(), 3);
  EXPECT_EQ(a.kept->result.sequences[2].error->code, ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace penstock
