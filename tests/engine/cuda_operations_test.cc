// Engines over tiny checkpoints on CUDA's emulated device under random operations: whatever runs
// beside a request, is drafted, cached, preempted, kept outside or cancelled, its tokens and their
// log-probabilities are the bits that it gets alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/collector.h"
#include "engine/letter_grammar.h"
#include "formats/temp_dir.h"
#include "kernels/philox.h"
#include "ops/ops.h"
#include "support/medusa_file.h"
#include "support/test_data.h"

namespace penstock {
namespace {

struct CudaCase {
  const char* name;
  std::string model;
  std::string spec = "off";
  std::string spec_model;  // draft_model or spec_heads
  bool adapters = false;
  bool stores = false;
  const char* cache = "auto";   // kv_cache_dtype
  const char* states = "auto";  // mamba_ssm_cache_dtype
  bool beams = true;            // not beside recurrent states, whose blocks are few here
  // not where windows give blocks back early, or how long an adapter loads decides
  bool preempts = true;
  double blocks = 8;        // of the cache: of six sequences some have no place
  int exit_layer = 0;       // spec_exit_layer
  const char* on_cpu = "";  // override_tensor
  const char* adapter = "lora/llama2";
  // expert_cache_memory; unless it is 0, bits are those of an engine without experts on the CPU
  int64_t copies = -1;
};

void PrintTo(const CudaCase& of, std::ostream* out) { *out << of.name; }

std::string golden(const std::string& path) { return (tests_dir() / "golden" / path).string(); }

EngineConfig config_of(const CudaCase& of) {
  EngineConfig config;
  config.backend = "cuda_emulated";
  config.model = golden(of.model);
  config.batch_invariant = true;
  config.kv_cache_dtype = of.cache, config.mamba_ssm_cache_dtype = of.states;
  config.threads = 1;
  config.max_num_seqs = 6;
  config.max_model_len = 48;
  config.spec = "off";
  config.override_tensor = of.on_cpu;
  config.expert_cache_memory = of.copies;
  config.enable_prefix_caching = false;
  return config;
}

std::unique_ptr<Engine> open(const EngineConfig& config) {
  auto engine = Engine::open(config);
  if (!engine) {
    ADD_FAILURE() << engine.error().message;
  }
  return engine ? std::move(*engine) : nullptr;
}

class Picks {
 public:
  explicit Picks(uint64_t seed) : seed_(seed) {}
  int operator()(int low, int high) {
    return low + static_cast<int>(mix_seed(seed_, i_++) % static_cast<uint64_t>(high - low + 1));
  }

 private:
  uint64_t seed_, i_ = 0;
};

// Families with a common prefix, every way to draw, masks, several sequences, beams.
Request random_request(uint64_t seed, const CudaCase& of, int vocab_size,
                       const std::shared_ptr<const Adapter>& adapter) {
  Picks pick(seed);
  std::vector<TokenId> prompt =
      prompt_of(pick(0, 2) == 0 ? 18 : pick(3, 20), pick(0, 1), vocab_size);
  for (int i = pick(0, 5); i > 0; --i) prompt.push_back(pick(2, vocab_size - 1));
  Request request = request_of(prompt, pick(2, 14), seed);
  SamplingParams& sampling = request.sampling;
  sampling.ignore_eos = pick(0, 1) == 0;
  sampling.logprobs = pick(0, 3);
  sampling.temperature = pick(0, 2) == 0 ? 0.0f : 4.0f;  // random weights have one favourite token
  if (pick(0, 2) == 0) sampling.top_k = pick(1, 20);
  if (pick(0, 2) == 0) sampling.top_p = 0.1f * static_cast<float>(pick(1, 9));
  if (pick(0, 3) == 0) sampling.min_p = 0.05f;
  if (pick(0, 3) == 0) sampling.repetition_penalty = 1.3f;
  if (pick(0, 5) == 0) sampling.typical_p = 0.7f;
  if (pick(0, 3) == 0) sampling.n = 2;
  if (pick(0, 4) == 0) request.matcher = letter_grammar("([ab]c)+d{2,5}", vocab_size);
  if (pick(0, 5) == 0 && of.beams) {
    sampling = SamplingParams{};
    sampling.max_tokens = 4;
    sampling.use_beam_search = true;
    sampling.beam_width = 3;
    sampling.n = 2;
  } else if (pick(0, 7) == 0) {
    sampling.prompt_logprobs = 1;
  }
  request.eos_token_ids = {0};
  if (pick(0, 1) == 0) request.adapter = adapter;
  return request;
}

struct Alone {
  Request request;
  Collected result;
};

void expect_same(const Collected& got, const Collected& want, bool cancelled,
                 const std::string& which) {
  for (const auto& [index, sequence] : want.sequences) {
    const auto found = got.sequences.find(index);
    if (cancelled && found == got.sequences.end()) continue;
    ASSERT_NE(found, got.sequences.end()) << which;
    std::vector<TokenId> tokens = sequence.tokens;
    std::vector<float> logprobs = sequence.logprobs;
    if (cancelled) {
      ASSERT_LE(found->second.tokens.size(), tokens.size()) << which;
      tokens.resize(found->second.tokens.size()), logprobs.resize(tokens.size());
    } else {
      EXPECT_EQ(found->second.finish, sequence.finish) << which;
    }
    EXPECT_EQ(found->second.tokens, tokens) << which << ", sequence " << index;
    EXPECT_EQ(found->second.logprobs, logprobs) << which << ", sequence " << index;
    EXPECT_EQ(found->second.n_ends, 1) << which;
  }
  if (cancelled) return;
  ASSERT_EQ(got.prompt_logprobs.size(), want.prompt_logprobs.size()) << which;
  for (const auto& [position, row] : want.prompt_logprobs)
    EXPECT_EQ(got.prompt_logprobs.at(position).at(0).logprob, row.at(0).logprob)
        << which << ", " << position;
}

void run_to_end(Engine& engine) {
  while (engine.step()) {
  }
}

class CudaOperations : public testing::TestWithParam<CudaCase> {
 protected:
  void SetUp() override {
    if (const auto made = make_ops("cuda_emulated", {.n_threads = 1}); !made)
      GTEST_SKIP() << made.error().message;
  }
  static std::shared_ptr<const Adapter> adapter_in(Engine& engine) {
    if (!GetParam().adapters) return nullptr;
    auto adapter = engine.open_adapter(golden(GetParam().adapter));
    EXPECT_TRUE(adapter) << adapter.error().message;
    return adapter.value_or(nullptr);
  }
  // Each by itself, without drafts and caches.
  static std::vector<Alone> one_by_one(int n) {
    EngineConfig config = config_of(GetParam());
    if (GetParam().copies != 0) config.override_tensor = "";
    const auto engine = open(config);
    std::vector<Alone> all;
    for (int i = 0; i < n; ++i) {
      Request request = random_request(mix_seed(7, static_cast<uint64_t>(i)), GetParam(),
                                       engine->info().vocab_size, adapter_in(*engine));
      const auto sink = std::make_shared<Collector>();
      const auto id = engine->submit(request, sink);
      EXPECT_TRUE(id) << id.error().message;
      run_to_end(*engine);
      all.push_back({std::move(request), sink->result});
    }
    block_bytes_ = engine->info().kv_bytes / engine->info().n_blocks;
    return all;
  }
  EngineConfig tight_config() {
    EngineConfig config = config_of(GetParam());
    config.enable_prefix_caching = true;
    config.spec = GetParam().spec;
    config.spec_length = config.spec == "off" ? "auto" : "3";
    (config.spec == "draft" ? config.draft_model : config.spec_heads) =
        GetParam().spec_model.empty() ? "" : golden(GetParam().spec_model);
    config.spec_exit_layer = GetParam().exit_layer;
    if (config.spec == "medusa") config.spec_heads = medusa_.write().string();
    config.max_num_batched_tokens = 24;
    config.kv_cache_memory =
        static_cast<int64_t>(static_cast<double>(block_bytes_) * GetParam().blocks);
    if (GetParam().stores) config.kv_store = "memory:4M";
    return config;
  }
  static inline int64_t block_bytes_ = 0;
  const MedusaFile medusa_{3, 1, 32, 0};  // of llama2's width
};

TEST_P(CudaOperations, RandomOperationsChangeNoText) {
  constexpr int kRequests = 14;
  const std::vector<Alone> alone = one_by_one(kRequests);
  const auto engine = open(tight_config());
  ASSERT_TRUE(engine);
  const std::shared_ptr<const Adapter> adapter = adapter_in(*engine);
  Picks pick(11);
  struct Submitted {
    std::shared_ptr<Collector> sink;
    RequestId id;
    bool cancelled = false;
  };
  std::vector<Submitted> all;
  while (all.size() < kRequests) {
    const int what = pick(0, 9);
    if (what < 4) {
      Request request = alone[all.size()].request;
      if (request.adapter) request.adapter = adapter;
      auto sink = std::make_shared<Collector>();
      const auto id = engine->submit(std::move(request), sink);
      ASSERT_TRUE(id) << id.error().message;
      all.push_back({sink, *id});
    } else if (what == 4 && pick(0, 2) == 0 && !all.empty()) {
      Submitted& one = all[static_cast<size_t>(pick(0, static_cast<int>(all.size()) - 1))];
      if (one.sink->n_finished() == 0) engine->cancel(one.id), one.cancelled = true;
    } else {
      engine->step();
    }
  }
  run_to_end(*engine);
  int n_whole = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    n_whole += all[i].cancelled ? 0 : 1;
    expect_same(all[i].sink->result, alone[i].result, all[i].cancelled,
                "request " + std::to_string(i));
  }
  EXPECT_GE(n_whole, kRequests / 2);
  const Metrics metrics = engine->metrics();
  if (GetParam().preempts) {
    EXPECT_GT(metrics.num_preemptions.value, 0);
  }
  if (*GetParam().on_cpu != '\0') {
    EXPECT_EQ(metrics.expert_choices.value > 0, GetParam().copies != 0);
    EXPECT_EQ(metrics.expert_cache_moves.value > 0, GetParam().copies != 0);
  }
  if (GetParam().spec != "off") {
    EXPECT_GT(metrics.spec_decode_num_draft_tokens.value, 0);
    RecordProperty("accepted", std::to_string(metrics.spec_decode_num_accepted_tokens.value));
  }
  EXPECT_TRUE(engine->status());
}

// What is saved comes back, and its tokens need not be computed again.
TEST_P(CudaOperations, SessionsComeBack) {
  const TempDir dir;
  EngineConfig config = config_of(GetParam());
  config.enable_prefix_caching = true;
  config.state_snapshot_interval = 16;
  Request request = request_of(prompt_of(17, 1, 50), 6);
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = 0;
  const std::string path = (dir / "session").string();
  Collected want;
  {
    const auto engine = open(config);
    const auto sink = std::make_shared<Collector>();
    ASSERT_TRUE(engine->submit(request, sink));
    run_to_end(*engine);
    want = sink->result;
    const auto saved = engine->save_session(request.prompt, path);
    ASSERT_TRUE(saved) << saved.error().message;
  }
  const auto engine = open(config);
  const auto loaded = engine->load_session(path);
  ASSERT_TRUE(loaded) << loaded.error().message;
  const auto sink = std::make_shared<Collector>();
  ASSERT_TRUE(engine->submit(request, sink));
  run_to_end(*engine);
  expect_same(sink->result, want, false, "after the session came back");
  EXPECT_GT(sink->result.sequences.at(0).stats.cached_tokens, 0);
}

// What was loaded is given back while the device is still there.
TEST(CudaEngineErrors, ACacheThatIsRefusedIsAnError) {
  if (const auto made = make_ops("cuda_emulated", {.n_threads = 1}); !made)
    GTEST_SKIP() << made.error().message;
  EngineConfig config = config_of({.name = "refused", .model = "models/llama2"});
  config.block_size = 4;
  const auto engine = Engine::open(config);
  ASSERT_FALSE(engine);
  EXPECT_THAT(engine.error().message,
              testing::HasSubstr("block size 4: expected a multiple of 16"));
}

TEST(KvCacheTypes, Fp8IsRefusedOnTheCpu) {
  EngineConfig config = config_of({.name = "fp8", .model = "models/llama2", .cache = "fp8"});
  config.backend = "cpu";
  const auto engine = Engine::open(config);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(engine.error().message,
              testing::HasSubstr("kv_cache_dtype fp8 is not there on backend cpu"));
}

INSTANTIATE_TEST_SUITE_P(
    Tiny, CudaOperations,
    testing::Values(
        CudaCase{.name = "adapters", .model = "models/llama2", .adapters = true, .preempts = false},
        CudaCase{.name = "memory",
                 .model = "models/llama2",
                 .stores = true,
                 .cache = "fp8",
                 .blocks = 6},
        CudaCase{.name = "memory_int4",
                 .model = "models/llama2",
                 .stores = true,
                 .cache = "int4",
                 .blocks = 6},
        CudaCase{.name = "windows", .model = "models/gemma3", .beams = false, .preempts = false},
        CudaCase{.name = "experts", .model = "models/mixtral"},
        CudaCase{.name = "experts_on_cpu",
                 .model = "models/qwen2_moe",
                 .spec = "early-exit",
                 .stores = true,
                 .blocks = 6,
                 .exit_layer = 1,
                 .on_cpu = "blk.1.*exps=CPU"},
        CudaCase{.name = "experts_by_the_cpu",
                 .model = "models/qwen2_moe",
                 .spec = "early-exit",
                 .stores = true,
                 .blocks = 6,
                 .exit_layer = 1,
                 .on_cpu = "blk.1.*exps=CPU",
                 .copies = 0},
        CudaCase{.name = "experts_in_few_slots",
                 .model = "models/qwen2_moe",
                 .spec = "ngram",
                 .stores = true,
                 .blocks = 6,
                 .on_cpu = "exps=CPU",
                 .copies = 1},
        CudaCase{.name = "experts_in_few_slots_with_adapters",
                 .model = "models/mixtral",
                 .adapters = true,
                 .preempts = false,
                 .on_cpu = "exps=CPU",
                 .adapter = "lora/mixtral.each/together",
                 .copies = 1},
        CudaCase{.name = "experts_by_the_cpu_with_adapters",
                 .model = "models/mixtral",
                 .adapters = true,
                 .preempts = false,
                 .on_cpu = "exps=CPU",
                 .adapter = "lora/mixtral.each/together",
                 .copies = 0},
        CudaCase{.name = "experts_on_cpu_with_adapters",
                 .model = "models/mixtral",
                 .adapters = true,
                 .preempts = false,
                 .on_cpu = "exps=CPU",
                 .adapter = "lora/mixtral.each/together"},
        CudaCase{.name = "states", .model = "models/qwen3_next", .beams = false},
        CudaCase{.name = "states_bf16",  // more of them have a place
                 .model = "models/qwen3_next",
                 .states = "bfloat16",
                 .beams = false,
                 .preempts = false},
        CudaCase{.name = "ngram", .model = "models/llama2", .spec = "ngram"},
        CudaCase{.name = "grammar", .model = "models/llama2", .spec = ""},
        CudaCase{.name = "draft",
                 .model = "models/llama2",
                 .spec = "draft",
                 .spec_model = "models/llama2",
                 .blocks = 13},
        CudaCase{.name = "medusa", .model = "models/llama2", .spec = "medusa", .blocks = 6},
        CudaCase{.name = "early_exit",
                 .model = "models/llama2",
                 .spec = "early-exit",
                 .blocks = 6,
                 .exit_layer = 1},
        CudaCase{.name = "early_exit_windows",
                 .model = "models/gemma3",
                 .spec = "early-exit",
                 .beams = false,
                 .preempts = false,
                 .exit_layer = 1},
        CudaCase{.name = "mtp", .model = "models/deepseek_v3_mtp", .spec = "mtp"},
        CudaCase{.name = "sparse", .model = "models/deepseek_v32"},
        CudaCase{.name = "sparse_mtp", .model = "models/deepseek_v32_mtp", .spec = "mtp"},
        CudaCase{
            .name = "mtp_of_two", .model = "models/glm4_moe_mtp2", .spec = "mtp", .blocks = 12},
        CudaCase{
            .name = "sparse_blocks", .model = "models/minimax_m3", .stores = true, .blocks = 6},
        CudaCase{.name = "pools_and_rows", .model = "models/qwen4_exp", .beams = false},
        CudaCase{.name = "pools_of_latents", .model = "models/glm5_next", .beams = false},
        CudaCase{.name = "entries", .model = "models/deepseek_v4", .beams = false},
        CudaCase{.name = "eagle3",
                 .model = "eagle3/llama/target",
                 .spec = "eagle3",
                 .spec_model = "eagle3/llama/head"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock
