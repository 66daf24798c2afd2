#include "cli/bench/bench_round.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "cli/terminal.h"
#include "ops/ops.h"

namespace penstock {
namespace {

// Counts the requests of one round and keeps the stats of each. Who waits is woken by ends only: it would take a CPU from those who compute
// at every token.
class RoundSink : public EventSink {
 public:
  void on_tokens(RequestId, std::span<const TokenEvent> events) override {
    for (const TokenEvent& event : events) {
      if (event.finish == FinishReason::kNone) continue;
      const std::scoped_lock lock(mutex_);
      if (event.stats != nullptr) stats_.push_back(*event.stats);
      if (event.error != nullptr) error_ = *event.error;
      ++n_done_;
      done_.notify_all();
    }
  }

  Result<std::vector<RequestStats>> wait(int n) {
    std::unique_lock lock(mutex_);
    while (n_done_ < n && !interrupted()) done_.wait_for(lock, std::chrono::milliseconds(100));
    if (interrupted()) return make_error(ErrorCode::kCancelled, "interrupted");
    if (error_) return tl::unexpected(*error_);
    return stats_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<RequestStats> stats_;
  std::optional<Error> error_;
  int n_done_ = 0;
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

Result<std::vector<RequestStats>> run_requests(Engine& engine, std::vector<Request> requests) {
  auto sink = std::make_shared<RoundSink>();
  const auto n = static_cast<int>(requests.size());
  for (Request& request : requests) RETURN_IF_ERROR(engine.submit(std::move(request), sink));
  return sink->wait(n);
}

Status settle(Engine& engine) {
  // An expert is packed when a step chooses it, so that a mixture takes in many different tokens.
  const EngineInfo& info = engine.info();
  const int n_tokens =
      info.n_experts > 0 ? std::clamp(info.max_model_len - 1, 1, std::min(256, info.vocab_size)) : 1;
  for (int step = 0; step < kPackingSteps; ++step) {
    std::vector<TokenId> prompt;
    for (int i = 0; i < n_tokens; ++i)
      prompt.push_back(
          static_cast<TokenId>((step + int64_t{i} * info.vocab_size / n_tokens) % info.vocab_size));
    ASSIGN_OR_RETURN(const auto stats, run_requests(engine, {decode_request(std::move(prompt), 1)}));
  }
  return {};
}

}  // namespace penstock
