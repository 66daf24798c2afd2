// The requests that have begun, from their start to the end of their last sequence: what happens to sequences as tokens
// come, requests are cancelled or memory runs out, and what their sinks hear of it.
//
// Engine thread only.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/compute/engine_clock.h"
#include "engine/requests/adapter_pool.h"
#include "engine/requests/inbox.h"
#include "engine/requests/metrics_recorder.h"
#include "engine/requests/outbox.h"
#include "engine/requests/request_state.h"
#include "engine/schedule/scheduler.h"
#include "sampling/sampler.h"

namespace penstock {

class Requests {
 public:
  // What a sequence's life touches.
  struct Around {
    const EngineInfo& info;
    const EngineClock& clock;
    uint64_t seed = 0;
    Scheduler& scheduler;
    Inbox& inbox;
    AdapterPool& adapters;
    MetricsRecorder& metrics;
    // Called for each sequence that ends or is preempted: nobody drafts for it any more. Empty: there is no drafter.
    std::function<void(SeqId)> stop_drafting;
  };
  explicit Requests(Around around) : around_(std::move(around)) {}

  // --- Coming and going ----------------------------------------------------------------------------------------
  // Begins a request, or tells its sink that there is no memory for it. One whose adapter finds no place waits, and all behind
  // it that have an adapter: first come, first served.
  void start(std::unique_ptr<RequestState> state);
  // Begins those that waited for their adapter, as far as there is a place now.
  void start_waiting();
  bool some_wait() const { return !waiting_.empty(); }
  void cancel(const Inbox::Cancel& cancel);
  void expire_deadlines();
  void end_all(FinishReason reason, const Error& error);
  // Ends all sequences of a request because memory ran out. Allocates nothing.
  void fail(RequestState& state);
  void fail(RequestState& state, const Error& error);
  // Tells every sink what is new. Requests without open sequences are forgotten, and their sinks: those that steps under
  // way may know, after as many more calls, between which one of them ends.
  // Returns whether every sink had the memory for it.
  bool deliver(int n_under_way = 0);

  // --- Steps ---------------------------------------------------------------------------------------------------
  // What a plan says about who begins to run and who has to wait again.
  void note_plan(const Plan& plan, double time);
  // A sequence that goes on from the first one's prompt begins.
  void join(Running& child, const Running& first);
  // The next token of a sequence, which may end it.
  void accept(Running& sequence, const SampleResult& drawn, std::span<const TokenLogprob> alternatives,
              double time);
  void end(Running& sequence, FinishReason reason) { end(sequence, reason, TokenEvent()); }
  // With its last event.
  void end(Running& sequence, FinishReason reason, TokenEvent event);
  void push(RequestState& state, const TokenEvent& event) { outbox_.push(state, event); }
  // Whether the token ends the sequence; which stop token it was goes into the event.
  static bool is_end(const Running& sequence, TokenId token, TokenEvent& event);
  // No step under way will tell a token any more. Allocates nothing.
  void drop_tokens_ahead();

 private:
  void begin(std::unique_ptr<RequestState>& state);  // throws std::bad_alloc and leaves it where it was
  void begin_or_refuse(std::unique_ptr<RequestState> state);
  void refuse(RequestState& state);
  bool take_adapter(RequestState& state);
  void begin_without_adapter(size_t waiting);
  void end_request(RequestState& state, int index, FinishReason reason, const Error& error);  // index -1: all

  const Around around_;
  Outbox outbox_;
  std::unordered_map<uint64_t, std::unique_ptr<RequestState>> running_;
  std::deque<std::unique_ptr<RequestState>> waiting_;  // for a place for their adapter
  struct Ended {
    std::unique_ptr<RequestState> state;
    int n_calls;  // of deliver() that it outlives
  };
  std::vector<Ended> ended_;
  uint64_t next_sequence_ = 1;
  int n_with_deadline_ = 0;
};

}  // namespace penstock
