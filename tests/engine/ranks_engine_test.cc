// Engines over a real tiny model that several ranks have, as threads of this process: whatever comes, goes, loses its blocks or is guessed,
// the texts are those of one rank.
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "engine/engine_fixture.h"
#include "engine/fingerprint.h"
#include "engine/ranks/meet_ranks.h"
#include "engine/ranks/rank_worker.h"
#include "engine/steps/step_model.h"
#include "support/test_data.h"

namespace penstock {
namespace {

// Ranks beside rank 0 that are no processes.
class ThreadRanks final : public RankRun {
 public:
  explicit ThreadRanks(int n) {
    const int segment = make_shm_segment(n).value();
    for (int rank = 0; rank < n; ++rank) {
      CommunicatorConfig config;
      config.rank = rank, config.size = n, config.segment = segment;
      communicators_.push_back(make_communicator("shm", config).value());
    }
    close(segment);
    for (int rank = 1; rank < n; ++rank) {
      threads_.emplace_back([&ranks = *communicators_[static_cast<size_t>(rank)]] {
        const Status served = serve_rank(ranks);
        EXPECT_TRUE(served) << served.error().message;
      });
    }
  }
  Communicator& communicator() override { return *communicators_[0]; }
  int n_here() const override { return static_cast<int>(communicators_.size()); }
  std::vector<int> cpus() const override { return {}; }

 private:
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::vector<std::jthread> threads_;
};

struct RanksEngineConfig {
  std::string model = "llama2";
  RankGrid grid;
  int n_blocks = 24;  // of every group
  std::shared_ptr<DraftScript> drafts;
  int n_swap_slots = 0;
};

std::unique_ptr<EngineImpl> engine_of(const RanksEngineConfig& c) {
  EngineConfig config;
  config.model = (tests_dir() / "golden" / "models" / c.model).string();
  config.backend = "cpu", config.threads = 1, config.batch_invariant = true;
  config.kv_cache_dtype = "f32", config.max_model_len = 96;
  config.max_num_seqs = 6, config.max_num_batched_tokens = 48;
  config.tensor_parallel_size = c.grid.tensor, config.pipeline_parallel_size = c.grid.stages;
  config = resolve_preset(config).value();
  std::unique_ptr<RankRun> ranks;
  OpsConfig ops_config{1, true, 1};
  if (c.grid.size() > 1) {
    ranks = std::make_unique<ThreadRanks>(c.grid.size());
    EXPECT_TRUE(tell_config(ranks->communicator(), config));
    if (c.grid.stages > 1) {
      EXPECT_TRUE(ranks->communicator().form_groups(c.grid.tensor));
    }
    ops_config.ranks = &ranks->communicator();
  }
  auto source = open_weights(config.model).value();
  auto ops = make_ops("cpu", ops_config).value();
  auto model =
      c.grid.size() > 1
          ? Model::load_shard(*source, *ops, {}, config.max_model_len, {true, c.grid.stage_of(0)}).value()
          : Model::load(*source, *ops, {}, config.max_model_len).value();
  const uint64_t fingerprint = fingerprint_of(*source, config, ops->name());
  EXPECT_TRUE(meet_ranks(ranks.get(), c.grid, fingerprint, model->weight_bytes()));
  const CacheSpec spec = model->pipeline_cache_spec(KvDType::kF32, config.block_size);
  const std::vector<int> n_blocks(static_cast<size_t>(spec.n_groups()), c.n_blocks);
  auto cache = ops->make_cache(model->cache_spec(KvDType::kF32, config.block_size), n_blocks).value();
  EngineParts parts;
  parts.info.vocab_size = model->config().vocab_size;
  parts.info.max_model_len = config.max_model_len;
  parts.info.block_size = config.block_size;
  parts.info.eos_token_ids = {0};
  auto own =
      std::make_unique<LoadedModel>(std::move(source), std::move(ops), std::move(model), std::move(cache));
  parts.model = with_ranks(std::move(ranks), c.grid, std::move(own), n_blocks, parts.info).value();
  SchedulerConfig scheduling = scheduler_config(config, config.max_model_len);
  if (c.n_swap_slots > 0) {
    scheduling.swap_slots.assign(n_blocks.size(), c.n_swap_slots);
    SwapLayout layout{{}, scheduling.swap_slots};
    for (size_t g = 0; g < n_blocks.size(); ++g)
      layout.block_bytes.push_back(parts.model->block_bytes(static_cast<int>(g)));
    parts.swap = make_memory_swap(layout).value();
  }
  const CachePlan plan = plan_cache(spec, int64_t{1} << 30, 6, 96, 48);
  parts.scheduler =
      std::make_unique<Scheduler>(scheduling, make_policy("continuous", policy_config(config)).value(),
                                  n_blocks, plan.windows, config.block_size);
  if (c.drafts)
    parts.speculation = std::make_unique<Speculation>(std::make_unique<FakeDrafter>(c.drafts), 4, true);
  parts.max_num_seqs = config.max_num_seqs;
  parts.max_num_batched_tokens = config.max_num_batched_tokens;
  parts.config = config;
  return std::make_unique<EngineImpl>(std::move(parts));
}

Request random_prompt(uint64_t seed, int vocab_size) {
  auto pick = [&, i = uint64_t{0}](int n) mutable { return static_cast<int>(mix_seed(seed, i++) % n); };
  std::vector<TokenId> prompt;
  const int family = pick(3), n = 1 + pick(60);
  for (int i = 0; i < n; ++i)
    prompt.push_back(static_cast<TokenId>(1 + mix_seed(i < n / 2 ? family : seed, i) % (vocab_size - 1)));
  Request request = request_of(prompt, 1 + pick(30), seed);
  request.sampling.n = pick(5) == 0 ? 2 : 1;
  request.sampling.temperature = pick(2) == 0 ? 0.0f : 0.8f;
  request.sampling.top_k = pick(2) == 0 ? 0 : 5;  // needs few logits
  request.sampling.ignore_eos = true;
  return request;
}

// The tokens of every sequence under the same operations; some are cancelled at the same time, and have at least a beginning.
std::vector<std::vector<TokenId>> texts_of(EngineImpl& engine, uint64_t seed) {
  struct Sent {
    RequestId id;
    std::shared_ptr<Collector> sink;
  };
  std::vector<Sent> sent;
  for (int op = 0; op < 120; ++op) {
    const uint64_t chance = mix_seed(seed, static_cast<uint64_t>(op));
    if (chance % 5 == 0) {
      auto sink = std::make_shared<Collector>();
      sent.push_back({engine.submit(random_prompt(chance, engine.info().vocab_size), sink).value(), sink});
    } else if (chance % 31 == 1 && !sent.empty()) {
      engine.cancel(sent[chance / 31 % sent.size()].id, FinishReason::kAbort);
    } else {
      engine.step();
    }
    engine.scheduler().check_invariants();
  }
  while (engine.step()) engine.scheduler().check_invariants();
  std::vector<std::vector<TokenId>> texts;
  for (const Sent& one : sent) {
    for (const auto& [index, sequence] : one.sink->result.sequences) {
      EXPECT_EQ(sequence.n_ends, 1);
      EXPECT_NE(sequence.finish, FinishReason::kError);
      texts.push_back(sequence.tokens);
    }
  }
  return texts;
}

// One is the beginning of the other: a cancelled sequence got as far as it got.
void expect_alike(const std::vector<std::vector<TokenId>>& got,
                  const std::vector<std::vector<TokenId>>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  size_t n_whole = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const size_t n = std::min(got[i].size(), expected[i].size());
    EXPECT_TRUE(std::equal(got[i].begin(), got[i].begin() + static_cast<ptrdiff_t>(n), expected[i].begin()))
        << i;
    n_whole += got[i].size() == expected[i].size();
  }
  EXPECT_GT(n_whole, got.size() / 2);
}

struct Preempted {
  double recomputed = 0, swapped = 0, accepted = 0;
};

void check_random_operations(RanksEngineConfig config, uint64_t seed, Preempted& seen) {
  SCOPED_TRACE(seed);
  RanksEngineConfig alone = config;
  alone.grid = {};
  const auto one = engine_of(alone);
  const auto expected = texts_of(*one, seed);
  const auto several = engine_of(config);
  expect_alike(texts_of(*several, seed), expected);
  EXPECT_TRUE(several->status());
  EXPECT_EQ(several->scheduler().allocator().n_referenced(), 0);
  seen.recomputed += several->metrics().num_preemptions.value;
  seen.swapped += several->metrics().swapped_in_blocks.value;
  seen.accepted += several->metrics().spec_decode_num_accepted_tokens.value;
}

// Guesses that are sometimes right: tokens that come again and again with greedy decoding of a tiny model.
std::shared_ptr<DraftScript> repeating_drafts() {
  auto drafts = std::make_shared<DraftScript>();
  drafts->max_nodes = 4;
  drafts->propose = [](const DraftRequest& request, DraftTree& tree) {
    for (int i = 0; i < std::min(request.max_nodes, 3); ++i) {
      const size_t n = request.tokens.size();
      tree.add_next(request.tokens[n - 1 - std::min<size_t>(n - 1, static_cast<size_t>(2 - i))]);
    }
  };
  return drafts;
}

struct RanksCase {
  const char* model;
  RankGrid grid;
};

class RanksEngine : public ::testing::TestWithParam<RanksCase> {};

TEST_P(RanksEngine, RandomOperationsGiveTheTextsOfOneRank) {
  Preempted seen;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    RanksEngineConfig config;
    config.model = GetParam().model, config.grid = GetParam().grid;
    config.n_blocks = seed % 2 == 0 ? 40 : 9;
    config.n_swap_slots = seed == 3 ? 30 : 0;
    if (seed > 2) config.drafts = repeating_drafts();
    check_random_operations(config, seed, seen);
  }
  EXPECT_GT(seen.recomputed, 0);
  EXPECT_GT(seen.swapped, 0);
  EXPECT_GT(seen.accepted, 0);
}

// What goes between ranks for the same greedy texts, with few logits and (as their chances are wanted) with all.
TEST(Ranks, GiveFewLogitsWhereFewAreNeeded) {
  for (const RankGrid grid : {RankGrid{2, 1}, RankGrid{3, 1}, RankGrid{2, 2}}) {
    const auto bytes_and_text = [&](bool all) {
      RanksEngineConfig config;
      config.grid = grid;
      const auto engine = engine_of(config);
      Request request = request_of({1, 2, 3}, 20, 1);
      request.sampling.temperature = 0, request.sampling.ignore_eos = true;
      if (all) request.sampling.logprobs = 1;
      const auto sink = std::make_shared<Collector>();
      EXPECT_TRUE(engine->submit(request, sink));
      while (engine->step()) {
      }
      return std::pair(engine->metrics().rank_bytes.value, sink->result.sequences.at(0).tokens);
    };
    const auto [few, text] = bytes_and_text(false);
    const auto [all, same_text] = bytes_and_text(true);
    EXPECT_EQ(text, same_text);
    ASSERT_EQ(text.size(), 20u);
    // Of 71 tokens rank 0 shows its part, or one with its number. The steps' messages differ by few bytes.
    const double saved = 20.0 * ((71 + grid.tensor - 1) / grid.tensor * 4 - 8);
    EXPECT_NEAR(all - few, saved, 20 * 3 * 16) << grid.tensor << " ranks, " << grid.stages << " stages";
  }
}

// Windows, states, streams with features beside them and layers that share keys; and stages of two ranks.
INSTANTIATE_TEST_SUITE_P(Grids, RanksEngine,
                         ::testing::Values(RanksCase{"llama2", {1, 2}}, RanksCase{"gemma3", {1, 3}},
                                           RanksCase{"lfm2", {1, 2}}, RanksCase{"gemma3n", {1, 2}},
                                           RanksCase{"llama2", {2, 1}}, RanksCase{"lfm2", {2, 1}},
                                           RanksCase{"llama2", {2, 2}}),
                         [](const auto& info) {
                           const RankGrid grid = info.param.grid;
                           return fmt::format("{}_{}_stages_of_{}", info.param.model, grid.stages,
                                              grid.tensor);
                         });

}  // namespace
}  // namespace penstock
