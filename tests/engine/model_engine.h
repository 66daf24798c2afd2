// An engine over the tiny synthetic model on a backend, and requests that make its batches change.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "engine/collector.h"
#include "engine/open/engine_impl.h"
#include "engine/open/open.h"
#include "model/arch/read_config.h"
#include "model/sources/synthetic.h"

namespace penstock {

struct ModelEngine {
  static constexpr int kBlocks = 64, kBlockSize = 16;
  struct Of {
    std::string_view weights = "f32";
    KvDType cache = KvDType::kF32;
    int most_tokens = 48;  // of a step
  };

  explicit ModelEngine(std::unique_ptr<Ops> ops, Of of,
                       std::unique_ptr<Speculation> speculation = nullptr) {
    EngineParts parts;
    EngineConfig config;
    config.max_num_seqs = 8;
    config.max_num_batched_tokens = of.most_tokens;
    parts.config = resolve_preset(config).value();
    auto source = make_synthetic_source("tiny", of.weights).value();
    auto model = Model::load(*source, *ops).value();
    const CacheSpec spec = model->cache_spec(of.cache, kBlockSize);
    const int n_blocks[] = {kBlocks}, windows[] = {0};
    auto cache = ops->make_cache(spec, n_blocks).value();
    parts.info.vocab_size = model->config().vocab_size;
    parts.info.model_dim = model->config().model_dim;
    parts.info.max_model_len = 200;
    parts.info.block_size = kBlockSize;
    parts.info.n_blocks = kBlocks;
    parts.info.eos_token_ids = {0};
    parts.max_num_seqs = 8;
    parts.max_num_batched_tokens = of.most_tokens;
    parts.scheduler =
        std::make_unique<Scheduler>(scheduler_config(parts.config, 200),
                                    make_policy("continuous", policy_config(parts.config)).value(),
                                    n_blocks, windows, kBlockSize);
    parts.model = std::make_unique<LoadedModel>(std::move(source), std::move(ops), std::move(model),
                                                std::move(cache));
    parts.speculation = std::move(speculation);
    engine = std::make_unique<EngineImpl>(std::move(parts));
  }

  // Values of a token's embedding.
  static int dim() {
    return read_config(*make_synthetic_source("tiny", "f32").value()).value().model_dim;
  }

  std::vector<Collected> run(const std::vector<Request>& requests) {
    std::vector<std::shared_ptr<Collector>> sinks;
    for (const Request& request : requests) {
      sinks.push_back(std::make_shared<Collector>());
      EXPECT_TRUE(engine->submit(request, sinks.back()));
    }
    while (engine->step()) engine->scheduler().check_invariants();
    std::vector<Collected> results;
    for (const auto& sink : sinks) results.push_back(sink->result);
    return results;
  }
  std::unique_ptr<EngineImpl> engine;
};

inline std::vector<Request> requests_of_all_kinds() {
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    requests.push_back(request_of(prompt_of(10 + 9 * i, i), 30 + 5 * i, i));
    requests.back().sampling.ignore_eos = i % 2 == 0;
    requests.back().sampling.temperature = i < 3 ? 0.0f : 0.9f;
  }
  requests[1].sampling.n = 2;
  requests[1].sampling.temperature = 1;
  requests[4].sampling.top_k = 20;
  requests[5].sampling.logprobs = 3;
  return requests;
}

inline void expect_equal(const std::vector<Collected>& a, const std::vector<Collected>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    for (const auto& [index, sequence] : a[i].sequences) {
      const Collected::Sequence& other = b[i].sequences.at(index);
      EXPECT_EQ(sequence.tokens, other.tokens) << i << " " << index;
      EXPECT_EQ(sequence.logprobs, other.logprobs) << i << " " << index;
      EXPECT_EQ(sequence.finish, other.finish) << i << " " << index;
    }
  }
}

}  // namespace penstock
