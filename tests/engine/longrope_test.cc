// Longrope: an engine computes a request with short or long factors by what its prompt and
// max_tokens come to, whatever runs beside it, is cached, guessed or kept outside. A tiny Phi-3
// whose original context is 16 tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/collector.h"
#include "engine/open/embedder.h"
#include "formats/temp_dir.h"
#include "support/test_data.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

const fs::path kModel = tests_dir() / "golden" / "models" / "phi3_longrope";
constexpr int kOriginal = 16;

EngineConfig longrope_config(const std::string& file = "") {
  EngineConfig config;
  config.model = (file.empty() ? kModel : kModel / file).string();
  config.threads = 1, config.max_num_seqs = 8, config.batch_invariant = true;
  config.kv_cache_dtype = "f32", config.block_size = 16;
  return config;
}

std::unique_ptr<Engine> open(const EngineConfig& config) {
  auto engine = Engine::open(config);
  EXPECT_TRUE(engine.has_value()) << engine.error().message;
  return std::move(engine).value();
}

// So many tokens together with those of the prompt.
Request request_reaching(std::vector<TokenId> prompt, int reach) {
  const int n = static_cast<int>(prompt.size());
  Request request = request_of(std::move(prompt), reach - n);
  request.sampling.temperature = 0, request.sampling.ignore_eos = true,
  request.sampling.logprobs = 1;
  return request;
}

std::vector<std::shared_ptr<Collector>> run(Engine& engine, const std::vector<Request>& requests) {
  std::vector<std::shared_ptr<Collector>> sinks;
  for (const Request& request : requests) {
    sinks.push_back(std::make_shared<Collector>());
    const auto sent = engine.submit(request, sinks.back());
    EXPECT_TRUE(sent) << sent.error().message;
  }
  while (engine.step()) {
  }
  return sinks;
}

Collected::Sequence run(Engine& engine, const Request& request) {
  return run(engine, std::vector<Request>{request})[0]->result.sequences.at(0);
}

using Reply = std::pair<std::vector<TokenId>, std::vector<float>>;

Reply text_of(const Collected::Sequence& sequence) { return {sequence.tokens, sequence.logprobs}; }

// Of both kinds, around the original context, some with a common beginning.
std::vector<Request> requests_of_both_kinds() {
  std::vector<Request> requests;
  for (const int reach : {16, 17, 40, 12, 90, 16})
    requests.push_back(request_reaching(prompt_of(9, reach % 2, 71), reach));
  for (const int n_prompt : {3, 30})
    requests.push_back(request_reaching(prompt_of(n_prompt, 1, 71), 60));
  return requests;
}

std::vector<Reply> each_alone() {
  EngineConfig config = longrope_config();
  config.enable_prefix_caching = false;
  const auto engine = open(config);
  std::vector<Reply> texts;
  for (const Request& request : requests_of_both_kinds())
    texts.push_back(text_of(run(*engine, request)));
  return texts;
}

std::vector<Reply> together(Engine& engine) {
  std::vector<Reply> texts;
  for (const auto& sink : run(engine, requests_of_both_kinds()))
    texts.push_back(text_of(sink->result.sequences.at(0)));
  return texts;
}

struct Golden {
  std::vector<TokenId> prompt, decoded;
  std::vector<std::vector<float>> logits;  // after each token of both
};

Golden read_golden(const char* name) {
  std::ifstream file(kModel / name, std::ios::binary);
  int32_t head[3] = {};
  file.read(reinterpret_cast<char*>(head), sizeof head);
  Golden golden;
  golden.prompt.resize(static_cast<size_t>(head[0])),
      golden.decoded.resize(static_cast<size_t>(head[1]));
  file.read(reinterpret_cast<char*>(golden.prompt.data()), head[0] * 4);
  file.read(reinterpret_cast<char*>(golden.decoded.data()), head[1] * 4);
  for (int i = 0; i < head[0] + head[1]; ++i) {
    golden.logits.emplace_back(static_cast<size_t>(head[2]));
    file.read(reinterpret_cast<char*>(golden.logits.back().data()), head[2] * 4);
  }
  EXPECT_TRUE(file.good());
  return golden;
}

float logprob_of(const std::vector<float>& logits, TokenId token) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  return static_cast<float>(logits[static_cast<size_t>(token)] - std::log(sum));
}

// Both by one engine, opened for long contexts.
TEST(LongRopeEngine, LogProbabilitiesAreThoseOfTransformers) {
  for (const char* file : {"", "model.gguf"}) {
    for (const char* backend : {"cpu", "cuda_emulated"}) {
      SCOPED_TRACE(fmt::format("{} {}", file, backend));
      EngineConfig config = longrope_config(file);
      config.backend = backend;
      if (!make_ops(backend, {.n_threads = 1})) continue;
      const auto engine = open(config);
      EXPECT_EQ(engine->info().short_rope_len, kOriginal);
      for (const char* name : {"golden_short.bin", "golden.bin"}) {
        const Golden golden = read_golden(name);
        const auto n_prompt = static_cast<int>(golden.prompt.size());
        const auto reach = n_prompt + static_cast<int>(golden.decoded.size());
        EXPECT_EQ(reach > kOriginal, std::string_view(name) == "golden.bin");
        Request request = request_reaching(golden.prompt, reach);
        request.sampling.prompt_logprobs = 0;
        const Collected result = run(*engine, std::vector{request})[0]->result;
        EXPECT_EQ(result.sequences.at(0).tokens, golden.decoded);
        for (int i = 1; i < n_prompt; ++i) {
          EXPECT_NEAR(result.prompt_logprobs.at(i)[0].logprob,
                      logprob_of(golden.logits[static_cast<size_t>(i - 1)],
                                 golden.prompt[static_cast<size_t>(i)]),
                      1e-3)
              << name << " " << i;
        }
        for (size_t i = 0; i < golden.decoded.size(); ++i) {
          EXPECT_NEAR(
              result.sequences.at(0).logprobs[i],
              logprob_of(golden.logits[static_cast<size_t>(n_prompt) - 1 + i], golden.decoded[i]),
              1e-3)
              << name << " " << i;
        }
      }
    }
  }
}

TEST(LongRopeEngine, BothKindsTogetherGiveTheBitsOfEachAlone) {
  const std::vector<Reply> alone = each_alone();
  EXPECT_NE(alone[0].second[0], alone[2].second[0]);  // of one prompt
  EXPECT_EQ(together(*open(longrope_config())), alone);
  EngineConfig chunks = longrope_config();
  chunks.max_num_batched_tokens = 7, chunks.max_num_seqs = 3;
  EXPECT_EQ(together(*open(chunks)), alone);
}

TEST(LongRopeEngine, MaxTokensDecide) {
  const auto engine = open(longrope_config());
  const auto first = [&](int reach) {
    return run(*engine, request_reaching(prompt_of(9, 2, 71), reach)).logprobs[0];
  };
  EXPECT_EQ(first(10), first(16));
  EXPECT_EQ(first(17), first(100));
  EXPECT_NE(first(16), first(17));
  EXPECT_EQ(first(1000), first(17));
  // A request cannot reach more than the engine takes.
  EngineConfig near = longrope_config();
  near.max_model_len = kOriginal;
  EXPECT_EQ(run(*open(near), request_reaching(prompt_of(9, 2, 71), 100)).logprobs[0], first(16));
}

// Scored texts reach their own length.
TEST(LongRopeEngine, TextsThatAreScoredHaveTheKindOfTheirLength) {
  const auto engine = open(longrope_config());
  const auto score = [&](int n) {
    Request request = request_reaching(prompt_of(n, 2, 71), n);
    request.sampling.prompt_logprobs = 0;
    return run(*engine, std::vector{request})[0]->result.prompt_logprobs.at(9)[0].logprob;
  };
  EXPECT_EQ(score(12), score(16));
  EXPECT_NE(score(16), score(17));
  EXPECT_EQ(score(17), score(60));
}

// The same with an original context of two blocks, so that short sequences have blocks to share.
EngineConfig config_of_two_blocks(const TempDir& dir) {
  const fs::path copy = dir.path() / "model";
  if (!fs::exists(copy)) {
    fs::create_directory(copy);
    fs::copy(kModel / "model.safetensors", copy);
    auto config = nlohmann::json::parse(std::ifstream(kModel / "config.json"));
    config["original_max_position_embeddings"] = 32;
    config["rope_parameters"]["original_max_position_embeddings"] = 32;
    std::ofstream(copy / "config.json") << config;
  }
  EngineConfig config = longrope_config();
  config.model = copy.string();
  return config;
}

// Tokens of a prompt of 20 that were found.
int cached_of(Engine& engine, int reach) {
  return run(engine, request_reaching(prompt_of(20, 3, 71), reach)).stats.cached_tokens;
}

TEST(LongRopeEngine, KindsShareNoCachedBlocks) {
  const TempDir dir;
  const auto engine = open(config_of_two_blocks(dir));
  EXPECT_EQ(cached_of(*engine, 32), 0);
  EXPECT_EQ(cached_of(*engine, 22), 16);
  EXPECT_EQ(cached_of(*engine, 33), 0);
  EXPECT_EQ(cached_of(*engine, 60), 16);
  EXPECT_EQ(cached_of(*engine, 32), 16);
}

// Hashes of other models say nothing of kinds.
TEST(LongRopeEngine, ModelsOfOneKindShareThem) {
  EngineConfig config = longrope_config();
  config.model = (kModel.parent_path() / "phi3").string();
  const auto engine = open(config);
  EXPECT_EQ(engine->info().short_rope_len, 0);
  EXPECT_EQ(cached_of(*engine, 32), 0);
  EXPECT_EQ(cached_of(*engine, 60), 16);
}

TEST(LongRopeEngine, PreemptedSequencesKeepTheirs) {
  const std::vector<Reply> alone = each_alone();
  for (const char* store : {"", "memory:16M"}) {
    EngineConfig config = longrope_config();
    config.max_model_len = 96, config.kv_store = store;
    const auto whole = open(config);
    config.kv_cache_memory = whole->info().kv_bytes / whole->info().n_blocks * 10;
    const auto engine = open(config);
    EXPECT_EQ(together(*engine), alone) << store;
    // Where a store is asked first, they may come one after the other.
    if (config.kv_store.empty()) {
      EXPECT_GT(engine->metrics().num_preemptions.value, 0);
    }
  }
}

// Samples and beams of a request are of its kind.
TEST(LongRopeEngine, SequencesOfARequestAreOfOneKind) {
  const auto engine = open(longrope_config());
  for (const int reach : {16, 30}) {
    Request request = request_reaching(prompt_of(9, 2, 71), reach);
    const Reply alone = text_of(run(*engine, request));
    Request several = request;
    several.sampling.n = 3;
    const auto sink = run(*engine, std::vector{several})[0];
    EXPECT_EQ(sink->result.sequences.size(), 3u);
    for (const auto& [index, sequence] : sink->result.sequences)
      EXPECT_EQ(text_of(sequence), alone) << reach << " " << index;
    Request beams = request;
    beams.sampling.use_beam_search = true, beams.sampling.beam_width = 1;
    EXPECT_EQ(text_of(run(*engine, beams)), alone) << reach;
  }
}

// A draft model that is the model itself is always right where it is of the same kind.
TEST(LongRopeEngine, DraftsAreOfTheSequencesKind) {
  const std::vector<Reply> alone = each_alone();
  EngineConfig config = longrope_config();
  config.spec = "draft", config.draft_model = config.model, config.spec_length = "3";
  const auto engine = open(config);
  EXPECT_EQ(together(*engine), alone);
  const Metrics metrics = engine->metrics();
  EXPECT_GT(metrics.spec_decode_num_draft_tokens.value, 50);
  EXPECT_EQ(metrics.spec_decode_num_accepted_tokens.value,
            metrics.spec_decode_num_draft_tokens.value);
  config = longrope_config();
  config.spec = "early-exit", config.spec_exit_layer = 1, config.spec_length = "3";
  EXPECT_EQ(together(*open(config)), alone);
}

// The kind of which most is known is saved, and goes on elsewhere.
TEST(LongRopeEngine, SessionsAndKeptPrefixesAreOfTheirKind) {
  const TempDir dir;
  const std::string file = (dir.path() / "session").string();
  EngineConfig config = config_of_two_blocks(dir);
  for (const auto& [own, other] : {std::pair(32, 60), std::pair(60, 32)}) {
    config.kv_store = (dir.path() / fmt::format("prefixes{}", own)).string();
    {
      const auto engine = open(config);
      EXPECT_EQ(cached_of(*engine, own), 0);
      EXPECT_EQ(engine->save_session(prompt_of(20, 3, 71), file).value(), 16);
    }
    EngineConfig fresh = config;
    fresh.kv_store.clear();
    const auto loaded = open(fresh), kept = open(config);
    EXPECT_EQ(loaded->load_session(file)->n_restored, 16);
    for (Engine* engine : {loaded.get(), kept.get()}) {
      EXPECT_EQ(cached_of(*engine, other), 0);
      EXPECT_EQ(cached_of(*engine, own), 16);
    }
  }
}

// A text's vectors are by the length that it has.
TEST(LongRopeEngine, VectorsAreByTheTextsLength) {
  const auto embedder = Embedder::open(open_weights(kModel).value(), longrope_config()).value();
  std::vector<EmbedderInput> texts;
  for (const int n : {15, 16, 17, 18}) texts.push_back({prompt_of(n, 3, 71)});
  auto states = embedder->states(texts).value();
  const auto n_common = states[0].size();  // tokens see only those before
  for (auto& of_text : states) of_text.resize(n_common);
  EXPECT_EQ(states[0], states[1]);
  EXPECT_NE(states[1], states[2]);
  EXPECT_EQ(states[2], states[3]);
}

}  // namespace
}  // namespace penstock
