// A sink that keeps everything, and requests for tests.
#pragma once
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "base/check.h"
#include "penstock/engine.h"

namespace penstock {

struct Collected {
  struct Sequence {
    std::vector<TokenId> tokens;
    std::vector<float> logprobs;
    std::vector<std::vector<TokenLogprob>> alternatives;
    FinishReason finish = FinishReason::kNone;
    TokenId stop_token = kNoToken;
    RequestStats stats;
    std::optional<Error> error;
    int n_ends = 0;
  };
  std::map<int, Sequence> sequences;
  std::map<int, std::vector<TokenLogprob>> prompt_logprobs;  // by position
};

class Collector : public EventSink {
 public:
  void on_tokens(RequestId, std::span<const TokenEvent> events) override {
    const std::lock_guard lock(mutex);
    for (const TokenEvent& event : events) {
      Collected::Sequence& sequence = result.sequences[event.index];
      PENSTOCK_CHECK(sequence.n_ends == 0);
      if (event.token != kNoToken) {
        sequence.tokens.push_back(event.token);
        sequence.logprobs.push_back(event.logprob);
        sequence.alternatives.emplace_back(event.alternatives.begin(), event.alternatives.end());
      }
      if (event.finish == FinishReason::kNone) continue;
      ++sequence.n_ends;
      sequence.finish = event.finish;
      sequence.stop_token = event.stop_token;
      sequence.stats = *event.stats;
      if (event.error != nullptr) sequence.error = *event.error;
    }
  }
  void on_prompt_logprobs(RequestId, int first,
                          std::span<const std::span<const TokenLogprob>> rows) override {
    const std::lock_guard lock(mutex);
    for (const auto& row : rows) result.prompt_logprobs[first++] = {row.begin(), row.end()};
  }
  int n_finished() {
    const std::lock_guard lock(mutex);
    int n = 0;
    for (const auto& [index, sequence] : result.sequences) n += sequence.n_ends;
    return n;
  }
  std::mutex mutex;
  Collected result;
};

inline Request request_of(std::vector<TokenId> prompt, int max_tokens, uint64_t seed = 1) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.max_tokens = max_tokens;
  request.sampling.seed = seed;
  return request;
}

inline std::vector<TokenId> prompt_of(int n, int first = 1, int vocab = 50) {
  std::vector<TokenId> prompt;
  for (int i = 0; i < n; ++i) prompt.push_back(1 + (first * 7 + i * 3) % (vocab - 1));
  return prompt;
}

}  // namespace penstock
