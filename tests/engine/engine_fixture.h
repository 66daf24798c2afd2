// An engine over a FakeModel, sinks that collect, and the oracle's text.
#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "engine/engine_impl.h"
#include "engine/fake_model.h"
#include "engine/open.h"

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

struct FakeEngineConfig {
  int vocab_size = 50;
  int block_size = 4;
  std::vector<int> n_blocks = {64};
  std::vector<int> windows = {0};
  int max_model_len = 200;
  EngineConfig engine;
};

struct FakeEngine {
  explicit FakeEngine(FakeEngineConfig c = {}) : settings(c) {
    if (c.engine.max_num_seqs == 0) c.engine.max_num_seqs = 8;
    if (c.engine.max_num_batched_tokens == 0) c.engine.max_num_batched_tokens = 32;
    EngineParts parts;
    parts.config = resolve_preset(c.engine).value();
    parts.info.vocab_size = c.vocab_size;
    parts.info.max_model_len = c.max_model_len;
    parts.info.eos_token_ids = {0};
    parts.max_num_seqs = parts.config.max_num_seqs;
    parts.max_num_batched_tokens = parts.config.max_num_batched_tokens;
    auto fake = std::make_unique<FakeModel>(c.vocab_size, c.n_blocks, c.windows, c.block_size);
    model = fake.get();
    parts.model = std::move(fake);
    auto policy = make_policy(
        parts.config.policy,
        {parts.config.max_batch_size, parts.config.max_wait_ms / 1e3, parts.config.priority_ageing_s});
    parts.scheduler = std::make_unique<Scheduler>(
        SchedulerConfig{parts.config.max_num_seqs, parts.config.max_num_batched_tokens,
                        parts.config.enable_prefix_caching, true},
        std::move(policy).value(), c.n_blocks, c.windows, c.block_size);
    engine = std::make_unique<EngineImpl>(std::move(parts));
  }

  std::shared_ptr<Collector> submit(Request request, RequestId* id = nullptr) {
    auto sink = std::make_shared<Collector>();
    const auto result = engine->submit(std::move(request), sink);
    PENSTOCK_CHECK(result.has_value());
    if (id != nullptr) *id = *result;
    return sink;
  }
  void run() {
    while (engine->step()) engine->scheduler().check_invariants();
    engine->scheduler().check_invariants();
  }
  // The text of sequence `index`, computed alone and without a cache. REQUIRES: a seed.
  std::vector<TokenId> expected(const Request& request, int index = 0) const {
    const auto spec =
        SamplingSpec::make(request.sampling, {0}, {}, {}, *request.sampling.seed, settings.vocab_size);
    SamplerState state(spec, index, request.prompt, 100);
    std::vector<TokenId> tokens = request.prompt, output;
    const size_t longest =
        std::min<size_t>(settings.max_model_len, tokens.size() + request.sampling.max_tokens);
    Sampler sampler;
    std::vector<TokenLogprob> none;
    while (tokens.size() < longest) {
      std::vector<float> row = model->logits_of(tokens);
      const TokenId token =
          sampler.sample(state, {row, tokens, static_cast<int>(request.prompt.size()), {}}, none).token;
      tokens.push_back(token);
      output.push_back(token);
      state.append(token);
      if (token == 0 && !request.sampling.ignore_eos) break;
      if (std::ranges::find(request.sampling.stop_token_ids, token) != request.sampling.stop_token_ids.end())
        break;
    }
    return output;
  }

  FakeEngineConfig settings;
  FakeModel* model;
  std::unique_ptr<EngineImpl> engine;
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
