// The running requests, from their start to the end of their last sequence: handles new tokens,
// cancellations, deadlines and lack of memory, and sends the events to the sinks.
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
#include "engine/requests/prompt_history.h"
#include "engine/requests/request_state.h"
#include "engine/schedule/scheduler.h"
#include "engine/schedule/tenant_turns.h"
#include "sampling/sampler.h"

namespace penstock {

class Requests {
 public:
  // The parts of the engine that requests use; all must outlive this.
  struct Parts {
    const EngineInfo& info;
    const EngineClock& clock;
    uint64_t seed = 0;
    int64_t history_tokens = 0;  // as for PromptHistory
    Scheduler& scheduler;
    Inbox& inbox;
    AdapterPool& adapters;
    // sequences with adapters that may have begun; those of further requests wait, by turns
    int most_adapted = 1 << 30;
    MetricsRecorder& metrics;
    // Called for each sequence that ends or is preempted, so that the drafter forgets it. Empty:
    // there is no drafter.
    std::function<void(SeqId)> stop_drafting;
    // Called for each sequence that has begun to wait, and for some that have not: may have blocks
    // loaded for it, until when it waits (Sequence::loading). Must not throw. Empty: nothing is
    // loaded.
    std::function<void(Sequence&)> begin_load;
    // Called for each sequence that ends: no block is loaded for it any more.
    std::function<void(Sequence&)> end_load;
    // Role prefill: requests end without a token when their prompts are computed.
    bool prompts_only = false;
    // Called when the prompt of a request was all that was asked for and is computed; true: the end
    // of its first sequence is held until release(). Must not throw. Empty: none is held.
    std::function<bool(Running&)> hold;
    // Called for a sequence that is released before its time.
    std::function<void(Running&)> end_hold;
  };
  explicit Requests(Parts parts) : parts_(std::move(parts)), history_(parts_.history_tokens) {}

  // --- Start and end
  // Begins a request, or ends it with an error when there is no memory for it. A request whose
  // adapter gets no slot waits, and so do all requests with an adapter that come behind it: tenants
  // take turns, and the requests of one keep their order. So that they do, few have begun at once.
  void start(std::unique_ptr<RequestState> state);
  // Begins requests that waited for an adapter slot, as many as get one now.
  void start_waiting();
  bool some_wait() const { return !waiting_.empty(); }
  void cancel(const Inbox::Cancel& cancel);
  void expire_deadlines();
  Clock::time_point next_deadline() const;  // of an open request; max(): there is none
  void end_all(FinishReason reason, const Error& error);
  // Ends all sequences of a request because memory ran out. Allocates nothing.
  void fail(RequestState& state);
  void fail(RequestState& state, const Error& error);
  // Delivers the events to the sinks. Requests without open sequences are released with their
  // sinks, after n_under_way further calls, since steps in flight may refer to them (one step ends
  // between two calls). Returns whether no sink ran out of memory.
  bool deliver(int n_under_way = 0);

  // --- Steps
  // Notes which sequences the plan admits and preempts.
  void note_plan(const Plan& plan, double time);
  // Begins another sequence of the request, which continues from the prompt that the first one has
  // computed.
  void join(Running& child, const Running& first);
  // Takes the next token of a sequence, which may end it.
  void accept(Running& sequence, const SampleResult& drawn,
              std::span<const TokenLogprob> alternatives, double time);
  void end(Running& sequence, FinishReason reason) { end(sequence, reason, TokenEvent()); }
  // Ends a sequence; `event` is its last event.
  void end(Running& sequence, FinishReason reason, TokenEvent event);
  // Sends the last event of a sequence that was held (Parts::hold).
  void release(Running& sequence);
  void push(RequestState& state, const TokenEvent& event) { outbox_.push(state, event); }
  // Whether the token ends the sequence; sets event.stop_token when it is a stop token.
  static bool is_end(const Running& sequence, TokenId token, TokenEvent& event);
  // Drops the stand-in tokens of all sequences, since no step in flight will draw them. Allocates
  // nothing.
  void drop_tokens_ahead();

 private:
  // throws std::bad_alloc and then leaves `state` unchanged
  void begin(std::unique_ptr<RequestState>& state);
  void begin_or_refuse(std::unique_ptr<RequestState> state);
  void refuse(RequestState& state);
  bool take_adapter(RequestState& state);
  void wait_for_adapter(std::unique_ptr<RequestState>& state);
  void begin_without_adapter(size_t waiting);
  void add(Sequence& sequence);
  void note_first(Running& sequence, double time);
  // Sends the last event of a sequence that has ended.
  void close(Running& sequence, const TokenEvent& event);
  // index -1: all
  void end_request(RequestState& state, int index, FinishReason reason, const Error& error);

  const Parts parts_;
  Outbox outbox_;
  PromptHistory history_;
  std::unordered_map<uint64_t, std::unique_ptr<RequestState>> running_;
  std::deque<std::unique_ptr<RequestState>> waiting_;  // for an adapter slot, by turns
  TenantTurns turns_;                                  // of those
  struct Ended {
    std::unique_ptr<RequestState> state;
    int n_calls;  // calls of deliver() until it is released
  };
  std::vector<Ended> ended_;
  uint64_t next_sequence_ = 1;
  int n_with_deadline_ = 0;
  int n_adapted_ = 0;  // open sequences of requests that have an adapter slot
};

}  // namespace penstock
