#include "cli/bench/bench_round.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "cli/console/terminal.h"
#include "ops/ops.h"

namespace penstock {
namespace {

// Counts the tokens of one round's requests and keeps their statistics. Thread-safe. Only the end
// of a request wakes the waiting thread: waking it at every token would take a CPU from the engine.
class Round {
 public:
  explicit Round(int n_requests) : n_requests_(n_requests) {}

  void note(int request, std::span<const TokenEvent> events, bool first) {
    const std::scoped_lock lock(mutex_);
    if (request == 0 && n_begun_ == n_requests_ && n_done_ == 0) {
      const auto now = Clock::now();
      if (begun_ == Clock::time_point{}) begun_ = now, n_before_ = n_tokens_;
      together_ = {n_tokens_ - n_before_, std::chrono::duration<double>(now - begun_).count()};
    }
    n_begun_ += first;
    for (const TokenEvent& event : events) {
      n_tokens_ += event.token != kNoToken;
      if (event.finish == FinishReason::kNone) continue;
      if (event.stats != nullptr) stats_.push_back(*event.stats);
      if (event.error != nullptr) error_ = *event.error;
      ++n_done_;
      done_.notify_all();
    }
  }

  Result<RoundReport> wait() {
    std::unique_lock lock(mutex_);
    while (n_done_ < n_requests_ && !interrupted())
      done_.wait_for(lock, std::chrono::milliseconds(100));
    if (interrupted()) return make_error(ErrorCode::kCancelled, "interrupted");
    if (error_) return tl::unexpected(*error_);
    return RoundReport{stats_, together_};
  }

 private:
  using Clock = std::chrono::steady_clock;
  const int n_requests_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<RequestStats> stats_;
  std::optional<Error> error_;
  int n_begun_ = 0, n_done_ = 0;
  // tokens of all requests: by now; when the last one had begun
  int64_t n_tokens_ = 0, n_before_ = 0;
  Clock::time_point begun_;
  RoundReport::Together together_;
};

// Passes the events of one request to the round. Time is taken at tokens of the first request only,
// so that whole steps are counted.
class RoundSink : public EventSink {
 public:
  RoundSink(std::shared_ptr<Round> round, int request)
      : round_(std::move(round)), request_(request) {}
  void on_tokens(RequestId, std::span<const TokenEvent> events) override {
    round_->note(request_, events, std::exchange(first_, false));
  }

 private:
  const std::shared_ptr<Round> round_;
  const int request_;
  bool first_ = true;
};

}  // namespace

Request decode_request(std::vector<TokenId> prompt, int n_decode) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.max_tokens = n_decode;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  return request;
}

Result<RoundReport> run_round(Engine& engine, std::vector<Request> requests) {
  const auto n = static_cast<int>(requests.size());
  const auto round = std::make_shared<Round>(n);
  for (int i = 0; i < n; ++i) {
    RETURN_IF_ERROR(engine.submit(std::move(requests[static_cast<size_t>(i)]),
                                  std::make_shared<RoundSink>(round, i)));
  }
  return round->wait();
}

Result<std::vector<RequestStats>> run_requests(Engine& engine, std::vector<Request> requests) {
  ASSIGN_OR_RETURN(RoundReport report, run_round(engine, std::move(requests)));
  return std::move(report.stats);
}

Status settle(Engine& engine) {
  // Weights of an expert are packed lazily, in the first step that chooses it. For a mixture of
  // experts the prompt therefore has many different tokens.
  const EngineInfo& info = engine.info();
  const int n_tokens = info.n_experts > 0
                           ? std::clamp(info.max_model_len - 1, 1, std::min(256, info.vocab_size))
                           : 1;
  for (int step = 0; step < kPackingSteps; ++step) {
    std::vector<TokenId> prompt;
    for (int i = 0; i < n_tokens; ++i)
      prompt.push_back(
          static_cast<TokenId>((step + int64_t{i} * info.vocab_size / n_tokens) % info.vocab_size));
    ASSIGN_OR_RETURN(const auto stats,
                     run_requests(engine, {decode_request(std::move(prompt), 1)}));
  }
  return {};
}

}  // namespace penstock
