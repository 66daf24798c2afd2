// Follows the outputs of one caller's requests: turns the engine's events into pieces of text and
// whole outputs.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "frontend/session.h"

namespace penstock {

// An update of one sequence: new text, or its end. Pointers and views are valid only during the
// callback.
struct CompletionUpdate {
  RequestId request{};
  // output of the sequence so far; its text is set only at the end
  const CompletionOutput* output = nullptr;
  std::string_view text;  // new text
  // index of the first new element of output->token_ids and logprobs
  size_t first_new = 0;
  bool finished = false;  // last update of this sequence
  // in the last update of the last sequence: the whole output, which may be moved from; else null
  RequestOutput* done = nullptr;

  std::span<const TokenId> new_tokens() const {
    return std::span(output->token_ids).subspan(first_new);
  }
};

// submit(), cancel() and n_open() may be called from any thread, poll() from one at a time.
class Completions {
 public:
  // REQUIRES: the session outlives this object.
  explicit Completions(Session& session) : session_(session) {}
  ~Completions() { cancel_all(); }
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;

  // params: the parameters that the request was made with. keep_markers: see SequenceText. Errors:
  // those of Engine::submit.
  Result<RequestId> submit(Request request, std::shared_ptr<const SamplingParams> params,
                           bool keep_markers = false);
  // Waits at most `timeout` for updates; calls on_update for each, in order.
  void poll(std::chrono::milliseconds timeout,
            const std::function<void(const CompletionUpdate&)>& on_update);

  // Ends a request, or one of its sequences; poll() still delivers the final update.
  void cancel(RequestId request) { session_.engine().cancel(request); }
  void cancel(RequestId request, int index, FinishReason reason) {
    session_.engine().cancel(request, index, reason);
  }
  void cancel_all();
  size_t n_open() const;

 private:
  struct Open {
    std::shared_ptr<const SamplingParams> params;  // kept alive for the builder
    OutputBuilder builder;
    // [n]: number of tokens of each sequence that updates have delivered
    std::vector<size_t> n_told;
  };
  // Returns null when the request has ended.
  Open* find(RequestId request);
  void handle(const OwnedEvent& event,
              const std::function<void(const CompletionUpdate&)>& on_update);

  Session& session_;
  std::shared_ptr<EventQueue> queue_ = std::make_shared<EventQueue>();
  mutable std::mutex mutex_;  // guards open_; its elements belong to poll()
  std::unordered_map<uint64_t, Open> open_;
  std::vector<OwnedEvent> events_;
};

}  // namespace penstock
