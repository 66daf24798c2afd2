// Requests whose outputs one caller follows: events of the engine become text, pieces and whole outputs.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "frontend/session.h"

namespace penstock {

// News of one sequence: text that is ready, or its end. What it refers to is valid during the call that brings it.
struct CompletionUpdate {
  RequestId request{};
  const CompletionOutput* output = nullptr;  // of the sequence, so far; its text is there at its end only
  std::string_view text;                     // new and ready
  size_t first_new = 0;                      // token_ids and logprobs of `output` from here on are new
  bool finished = false;                     // the last news of this sequence
  RequestOutput* done = nullptr;  // with the last news of the last sequence: the whole, to be taken

  std::span<const TokenId> new_tokens() const { return std::span(output->token_ids).subspan(first_new); }
};

// submit(), cancel() and n_open() may be called from any thread, poll() from one at a time.
class Completions {
 public:
  // The session outlives this.
  explicit Completions(Session& session) : session_(session) {}
  ~Completions() { cancel_all(); }
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;

  // params: those that the request was made with. keep_markers: as SequenceText has it. Errors: Engine::submit's.
  Result<RequestId> submit(Request request, std::shared_ptr<const SamplingParams> params,
                           bool keep_markers = false);
  // Waits for news at most this long; calls on_update for each, in order.
  void poll(std::chrono::milliseconds timeout, const std::function<void(const CompletionUpdate&)>& on_update);

  // Ends a request, or one sequence of it; poll() still brings the end.
  void cancel(RequestId request) { session_.engine().cancel(request); }
  void cancel(RequestId request, int index, FinishReason reason) {
    session_.engine().cancel(request, index, reason);
  }
  void cancel_all();
  size_t n_open() const;

 private:
  struct Open {
    std::shared_ptr<const SamplingParams> params;  // which the builder refers to
    OutputBuilder builder;
    std::vector<size_t> n_told;  // [n] tokens of each sequence that updates have brought
  };
  // Null when the request has ended.
  Open* find(RequestId request);
  void handle(const OwnedEvent& event, const std::function<void(const CompletionUpdate&)>& on_update);

  Session& session_;
  std::shared_ptr<EventQueue> queue_ = std::make_shared<EventQueue>();
  mutable std::mutex mutex_;  // of open_: its elements are poll()'s
  std::unordered_map<uint64_t, Open> open_;
  std::vector<OwnedEvent> events_;
};

}  // namespace penstock
