// Engines over a real tiny model that several ranks have, as threads of this process: whatever
// comes, goes, loses its blocks or is guessed, the texts are those of one rank.
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>
#include <thread>

#include "engine/compute/cache_types.h"
#include "engine/compute/fingerprint.h"
#include "engine/compute/step_model.h"
#include "engine/engine_fixture.h"
#include "engine/ranks/meet_ranks.h"
#include "engine/ranks/rank_worker.h"
#include "formats/temp_dir.h"
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
  int64_t store_bytes = 0;       // of memory; 0: no store
  std::string spec, spec_heads;  // a drafter of the list
  std::string draft_model;
  std::string states = "auto";  // mamba_ssm_cache_dtype
};

std::unique_ptr<EngineImpl> engine_of(const RanksEngineConfig& c) {
  EngineConfig config;
  config.model =
      (tests_dir() / "golden" / (c.model.find('/') != std::string::npos ? "" : "models") / c.model)
          .string();
  config.spec = c.spec, config.spec_length = "3", config.spec_exit_layer = 1;
  if (!c.spec_heads.empty()) config.spec_heads = (tests_dir() / "golden" / c.spec_heads).string();
  if (!c.draft_model.empty())
    config.draft_model = (tests_dir() / "golden" / "models" / c.draft_model).string();
  config.backend = "cpu", config.threads = 1, config.batch_invariant = true;
  config.kv_cache_dtype = "f32", config.mamba_ssm_cache_dtype = c.states, config.max_model_len = 96;
  config.max_num_seqs = 6, config.max_num_batched_tokens = 48;
  config.tensor_parallel_size = c.grid.tensor, config.pipeline_parallel_size = c.grid.stages;
  config = resolve_preset(config).value();
  std::unique_ptr<RankRun> ranks;
  OpsConfig ops_config{1, true, 1};
  if (c.grid.size() > 1) {
    ranks = std::make_unique<ThreadRanks>(c.grid.size());
    EXPECT_TRUE(tell_config(ranks->communicator(), config, RankTask::kText));
    if (c.grid.stages > 1) {
      EXPECT_TRUE(ranks->communicator().form_groups(c.grid.tensor));
    }
    ops_config.ranks = &ranks->communicator();
  }
  auto source = open_weights(config.model).value();
  auto ops = make_ops("cpu", ops_config).value();
  auto model = c.grid.size() > 1 ? load_share(*source, *ops, config, c.grid.stage_of(0), {}).value()
                                 : Model::load(*source, *ops).value();
  const uint64_t fingerprint = fingerprint_of(*source, config, ops->name());
  EXPECT_TRUE(meet_ranks(ranks.get(), c.grid, fingerprint, model->weight_bytes()));
  const CacheTypes types = cache_types(config).value();
  const CacheSpec spec = model->pipeline_cache_spec(types, config.block_size);
  const std::vector<int> n_blocks(static_cast<size_t>(spec.n_groups()), c.n_blocks);
  auto cache = ops->make_cache(model->cache_spec(types, config.block_size), n_blocks).value();
  std::unique_ptr<Drafter> drafter;
  if (!c.spec.empty()) {
    DrafterConfig draft;
    draft.engine = config, draft.kv_dtype = KvDType::kF32;
    auto announce = announcer(ranks.get(), config, *source, *model).value();
    drafter =
        make_drafter(std::move(draft), {model.get(), ops.get(), source.get(), announce}).value();
    EXPECT_TRUE(drafter->start(*cache, 2048));
  }
  EngineParts parts;
  parts.info.vocab_size = model->config().vocab_size;
  parts.info.max_model_len = config.max_model_len;
  parts.info.short_rope_len = model->short_rope_len();
  parts.info.block_size = config.block_size;
  parts.info.eos_token_ids = {0};
  auto own = std::make_unique<LoadedModel>(std::move(source), std::move(ops), std::move(model),
                                           std::move(cache));
  parts.model = with_ranks(std::move(ranks), c.grid, std::move(own), n_blocks, parts.info).value();
  if (c.store_bytes > 0) {
    std::vector<int64_t> block_bytes;
    for (size_t g = 0; g < n_blocks.size(); ++g)
      block_bytes.push_back(parts.model->block_bytes(static_cast<int>(g)));
    KvStoreSpec store;
    store.memory_bytes = c.store_bytes;
    parts.store = KvStore::open(store, BlockImages({1, 2}, config.block_size, block_bytes),
                                config.block_size, n_blocks)
                      .value();
  }
  const CachePlan plan = plan_cache(spec, int64_t{1} << 30, 6, 96, 48);
  parts.scheduler =
      std::make_unique<Scheduler>(scheduler_config(config, config.max_model_len),
                                  make_policy("continuous", policy_config(config)).value(),
                                  n_blocks, plan.windows, config.block_size);
  if (drafter != nullptr) {
    if (drafter->wants_states()) parts.model->keep_states(drafter->taps());
    parts.speculation = std::make_unique<Speculation>(std::move(drafter), 3, true);
  }
  if (c.drafts)
    parts.speculation =
        std::make_unique<Speculation>(std::make_unique<FakeDrafter>(c.drafts), 4, true);
  parts.max_num_seqs = config.max_num_seqs;
  parts.max_num_batched_tokens = config.max_num_batched_tokens;
  parts.config = config;
  return std::make_unique<EngineImpl>(std::move(parts));
}

Request random_prompt(uint64_t seed, int vocab_size) {
  auto pick = [&, i = uint64_t{0}](int n) mutable {
    return static_cast<int>(mix_seed(seed, i++) % n);
  };
  std::vector<TokenId> prompt;
  const int family = pick(3), n = 1 + pick(60);
  for (int i = 0; i < n; ++i)
    prompt.push_back(
        static_cast<TokenId>(1 + mix_seed(i < n / 2 ? family : seed, i) % (vocab_size - 1)));
  Request request = request_of(prompt, 1 + pick(30), seed);
  request.sampling.n = pick(5) == 0 ? 2 : 1;
  request.sampling.temperature = pick(2) == 0 ? 0.0f : 0.8f;
  request.sampling.top_k = pick(2) == 0 ? 0 : 5;  // needs few logits
  request.sampling.ignore_eos = true;
  return request;
}

// The tokens of every sequence under the same operations; some are cancelled at the same time, and
// have at least a beginning.
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
      sent.push_back(
          {engine.submit(random_prompt(chance, engine.info().vocab_size), sink).value(), sink});
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
    EXPECT_TRUE(
        std::equal(got[i].begin(), got[i].begin() + static_cast<ptrdiff_t>(n), expected[i].begin()))
        << i;
    n_whole += got[i].size() == expected[i].size();
  }
  EXPECT_GT(n_whole, got.size() / 2);
}

struct Preempted {
  double times = 0, loaded = 0, accepted = 0;
  bool states = false;  // of the model
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
  seen.times += several->metrics().num_preemptions.value;
  seen.loaded += several->metrics().kv_store_read_blocks.value;
  seen.states = several->scheduler().state_group() >= 0;
  seen.accepted += several->metrics().spec_decode_num_accepted_tokens.value;
}

// Guesses that are sometimes right: tokens that come again and again with greedy decoding of a tiny
// model.
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
  const char* states = "auto";
};

class RanksEngine : public ::testing::TestWithParam<RanksCase> {};

TEST_P(RanksEngine, RandomOperationsGiveTheTextsOfOneRank) {
  Preempted seen;
  // When an adapter is there decides what runs together, and with it whether anything is preempted.
  // States come back from snapshots, of which these short prompts have none.
  for (uint64_t seed = 1; seed <= 4 || (seen.loaded == 0 && !seen.states && seed <= 16); ++seed) {
    RanksEngineConfig config;
    config.model = GetParam().model, config.grid = GetParam().grid,
    config.states = GetParam().states;
    config.n_blocks = seed % 2 == 0 ? 40 : 9;
    config.store_bytes = seed > 2 && seed % 2 == 1 ? 16 << 20 : 0;
    if (seed > 2) config.drafts = repeating_drafts();
    check_random_operations(config, seed, seen);
  }
  EXPECT_GT(seen.times, 0);
  EXPECT_TRUE(seen.loaded > 0 || seen.states);
  EXPECT_GT(seen.accepted, 0);
}

std::vector<TokenId> ranks_prompt(int n, int vocab_size) {
  std::vector<TokenId> prompt;
  for (int i = 0; i < n; ++i)
    prompt.push_back(static_cast<TokenId>(1 + (7 * i + i / 5) % (vocab_size - 1)));
  return prompt;
}

std::shared_ptr<Collector> run_alone(EngineImpl& engine, Request request) {
  request.sampling.ignore_eos = true;
  auto sink = std::make_shared<Collector>();
  EXPECT_TRUE(engine.submit(std::move(request), sink));
  while (engine.step()) {
  }
  return sink;
}

// Beams part from one another in blocks of all ranks.
TEST_P(RanksEngine, BeamsAreThoseOfOneRank) {
  std::vector<std::vector<std::vector<TokenId>>> beams;
  for (const RankGrid grid : {RankGrid(), GetParam().grid}) {
    const auto engine =
        engine_of({.model = GetParam().model, .grid = grid, .states = GetParam().states});
    Request request = request_of(ranks_prompt(21, engine->info().vocab_size), 20, 1);
    request.sampling.use_beam_search = true, request.sampling.beam_width = 4,
    request.sampling.n = 3;
    auto& texts = beams.emplace_back();
    const auto sink = run_alone(*engine, request);
    for (const auto& [index, sequence] : sink->result.sequences) texts.push_back(sequence.tokens);
    EXPECT_EQ(texts.size(), 3u);
    engine->scheduler().check_invariants();
  }
  EXPECT_EQ(beams[1], beams[0]);
}

// What was computed of a prompt is found again, in the cache and in a file: every rank's part of
// blocks and states.
TEST_P(RanksEngine, PrefixesAndSessionsGoOnAsInOneRank) {
  const TempDir dir;
  std::vector<std::vector<TokenId>> texts;
  for (const RankGrid grid : {RankGrid(), GetParam().grid}) {
    const RanksEngineConfig config{
        .model = GetParam().model, .grid = grid, .states = GetParam().states};
    const std::string file = (dir.path() / fmt::format("{}", grid.size())).string();
    const auto engine = engine_of(config);
    const std::vector<TokenId> prompt = ranks_prompt(70, engine->info().vocab_size);
    const auto ask = [&](EngineImpl& of, int n_prompt, bool cached) {
      const auto sink =
          run_alone(of, request_of({prompt.begin(), prompt.begin() + n_prompt}, 12, 1));
      EXPECT_EQ(sink->result.sequences[0].stats.cached_tokens > 0, cached) << n_prompt;
      return sink->result.sequences[0].tokens;
    };
    const auto first = ask(*engine, 65, false);
    EXPECT_EQ(ask(*engine, 65, true), first);
    texts.push_back(first);
    texts.push_back(ask(*engine, 70, true));
    const auto saved = engine->save_session(std::span(prompt).first(65), file, "");
    ASSERT_TRUE(saved) << saved.error().message;
    EXPECT_EQ(*saved, 64);
    const auto other = engine_of(config);
    const auto loaded = other->load_session(file);
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(loaded->n_restored, 64);
    EXPECT_EQ(ask(*other, 70, true), texts.back());
  }
  EXPECT_EQ(texts[2], texts[0]);
  EXPECT_EQ(texts[3], texts[1]);
}

TEST(Ranks, StatesInAnotherTypeAreNotRead) {
  const TempDir dir;
  const std::string file = (dir.path() / "session").string();
  const auto f32 = engine_of({.model = "lfm2"});
  const std::vector<TokenId> prompt = ranks_prompt(65, f32->info().vocab_size);
  run_alone(*f32, request_of(prompt, 4, 1));
  ASSERT_TRUE(f32->save_session(prompt, file, ""));
  EXPECT_TRUE(engine_of({.model = "lfm2"})->load_session(file));
  EXPECT_FALSE(engine_of({.model = "lfm2", .states = "bfloat16"})->load_session(file));
}

struct DrafterCase {
  const char *spec, *model, *heads = "", *draft = "";
};

class RanksWithDrafters : public ::testing::TestWithParam<DrafterCase> {};

// Every drafter that computes: its guesses are as many as one rank's, and right as often.
TEST_P(RanksWithDrafters, GiveTheTextsOfOneRank) {
  const DrafterCase& of = GetParam();
  RanksEngineConfig config;
  config.model = of.model, config.spec = of.spec, config.spec_heads = of.heads,
  config.draft_model = of.draft;
  config.n_blocks = 40;
  RanksEngineConfig plain = config;
  plain.spec = plain.draft_model = "";
  const auto without = engine_of(plain), one = engine_of(config);
  const auto expected = texts_of(*without, 5);
  expect_alike(texts_of(*one, 5), expected);
  const double n_right = one->metrics().spec_decode_num_accepted_tokens.value;
  for (const RankGrid grid : {RankGrid{1, 2}, RankGrid{2, 1}, RankGrid{3, 1}, RankGrid{2, 2}}) {
    SCOPED_TRACE(fmt::format("{} ranks, {} stages", grid.tensor, grid.stages));
    config.grid = grid;
    const auto several = engine_of(config);
    expect_alike(texts_of(*several, 5), expected);
    EXPECT_TRUE(several->status());
    EXPECT_GT(several->metrics().spec_decode_num_draft_tokens.value, 20);
    EXPECT_GE(several->metrics().spec_decode_num_accepted_tokens.value, n_right / 2);
    EXPECT_EQ(several->scheduler().allocator().n_referenced(), 0);
  }
  RecordProperty("right", n_right);
}

INSTANTIATE_TEST_SUITE_P(
    Drafters, RanksWithDrafters,
    ::testing::Values(DrafterCase{"ngram", "llama2"},
                      DrafterCase{.spec = "draft", .model = "llama2", .draft = "llama2"},
                      DrafterCase{"early-exit", "llama2"},
                      DrafterCase{"early-exit", "phi3_longrope"},
                      DrafterCase{"mtp", "deepseek_v3_mtp"}, DrafterCase{"mtp", "qwen3_next_mtp"},
                      DrafterCase{"mtp", "step3p5_mtp2"},
                      DrafterCase{"eagle3", "eagle3/llama/target", "eagle3/llama/head"},
                      DrafterCase{"eagle3", "eagle3/qwen3/target", "eagle3/qwen3/head"}),
    [](const auto& info) {
      std::string name = fmt::format("{}_{}", info.param.spec, info.param.model);
      std::ranges::replace_if(name, [](char c) { return std::isalnum(c) == 0; }, '_');
      return name;
    });

// What goes between ranks for the same greedy texts, with few logits and (as their chances are
// wanted) with all.
TEST(Ranks, GiveFewLogitsWhereFewAreNeeded) {
  for (const RankGrid grid : {RankGrid{2, 1}, RankGrid{3, 1}, RankGrid{2, 2}}) {
    const auto bytes_and_text = [&](bool all) {
      RanksEngineConfig config;
      config.grid = grid;
      config.spec = "grammar";  // as every engine has: what a grammar forces is a draft
      const auto engine = engine_of(config);
      Request request = request_of({1, 2, 3}, 20, 1);
      request.sampling.temperature = 0, request.sampling.ignore_eos = true;
      if (all) request.sampling.logprobs = 1;
      const auto sink = std::make_shared<Collector>();
      EXPECT_TRUE(engine->submit(request, sink));
      while (engine->step()) {
      }
      return std::pair(engine->metrics().rank_bytes.values[0], sink->result.sequences.at(0).tokens);
    };
    const auto [few, text] = bytes_and_text(false);
    const auto [all, same_text] = bytes_and_text(true);
    EXPECT_EQ(text, same_text);
    ASSERT_EQ(text.size(), 20u);
    // Of 71 tokens rank 0 shows its part, or one with its number. The steps' messages differ by few
    // bytes.
    const double saved = 20.0 * ((71 + grid.tensor - 1) / grid.tensor * 4 - 8);
    EXPECT_NEAR(all - few, saved, 20 * 3 * 16)
        << grid.tensor << " ranks, " << grid.stages << " stages";
  }
}

// Windows, states, streams with features beside them and layers that share keys; and stages of two
// ranks.
INSTANTIATE_TEST_SUITE_P(Grids, RanksEngine,
                         ::testing::Values(RanksCase{"llama2", {1, 2}}, RanksCase{"gemma3", {1, 3}},
                                           RanksCase{"lfm2", {1, 2}}, RanksCase{"gemma3n", {1, 2}},
                                           RanksCase{"llama2", {2, 1}}, RanksCase{"lfm2", {2, 1}},
                                           RanksCase{"qwen3_next", {2, 1}},
                                           RanksCase{"bamba", {1, 2}}, RanksCase{"llama2", {2, 2}},
                                           RanksCase{"lfm2", {1, 2}, "bfloat16"},
                                           RanksCase{"qwen3_next", {2, 1}, "bfloat16"},
                                           RanksCase{"phi3_longrope", {1, 2}},
                                           RanksCase{"phi3_longrope", {2, 1}}),
                         [](const auto& info) {
                           const RankGrid grid = info.param.grid;
                           const bool bf16 = std::string_view(info.param.states) == "bfloat16";
                           return fmt::format("{}_{}_stages_of_{}{}", info.param.model, grid.stages,
                                              grid.tensor, bf16 ? "_bf16" : "");
                         });

// Sessions and kept prefixes are known by it.
TEST(Fingerprint, TellsTypesOfStatesFromNumbersOfRanks) {
  EngineConfig config;
  config.model = tests_dir().string() + "/golden/models/mamba2";
  const auto source = open_weights(config.model).value();
  const auto of = [&](const char* states, int ranks) {
    config.mamba_ssm_cache_dtype = states, config.tensor_parallel_size = ranks;
    return fingerprint_of(*source, config, "cpu");
  };
  EXPECT_EQ(of("auto", 1), of("float32", 1));
  EXPECT_EQ(of("bf16", 1), of("bfloat16", 1));
  const std::set<uint64_t> all = {of("auto", 1), of("auto", 2), of("bf16", 1), of("bf16", 2)};
  EXPECT_EQ(all.size(), 4U);
}

TEST(Fingerprint, TellsEncodingsAtLoad) {
  EngineConfig config;
  config.model = tests_dir().string() + "/golden/models/llama3";
  const auto source = open_weights(config.model).value();
  std::set<uint64_t> all;
  for (const char* type : {"", "int8", "int4", "q8_0"}) {
    config.quantize = type;
    all.insert(fingerprint_of(*source, config, "cpu"));
  }
  EXPECT_EQ(all.size(), 4U);
}

}  // namespace
}  // namespace penstock
