// Requests with LoRA adapters in one engine: what comes out is what each gives alone, whoever else
// runs and whatever was cached; places for adapters are few.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/collector.h"
#include "engine/requests/adapter_pool.h"
#include "formats/temp_dir.h"
#include "support/test_data.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

// A golden model and the golden adapter of it.
struct Adapted {
  const char *model, *adapter;
};
constexpr Adapted kDense = {"llama2", "llama2"};

std::unique_ptr<Engine> open_adaptable(EngineConfig config = {}, const Adapted& of = kDense) {
  config.model = (tests_dir() / "golden" / "models" / of.model).string();
  config.batch_invariant = true;
  config.threads = 1;
  config.max_num_seqs = 8;
  auto engine = Engine::open(config);
  EXPECT_TRUE(engine.has_value()) << engine.error().message;
  return std::move(engine).value();
}

// The adapter, as strong as `alpha` says.
fs::path write_adapter(const TempDir& dir, const std::string& name, double alpha,
                       const Adapted& of = kDense) {
  const fs::path from = tests_dir() / "golden" / "lora" / of.adapter, to = dir / name;
  fs::create_directories(to);
  fs::copy_file(from / "adapter_model.safetensors", to / "adapter_model.safetensors",
                fs::copy_options::overwrite_existing);
  nlohmann::json config = nlohmann::json::parse(std::ifstream(from / "adapter_config.json"));
  config["lora_alpha"] = alpha;
  std::ofstream(to / "adapter_config.json") << config;
  return to;
}

using AdapterRef = std::shared_ptr<const Adapter>;

AdapterRef open_in(Engine& engine, const fs::path& path) {
  auto adapter = engine.open_adapter(path.string());
  EXPECT_TRUE(adapter.has_value()) << adapter.error().message;
  return *adapter;
}

Request adapted_request(const AdapterRef& adapter, int n_tokens = 12) {
  Request request = request_of(prompt_of(40, 1, 60), n_tokens);
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = 0;
  request.sampling.temperature = 2.0f;
  request.adapter = adapter;
  return request;
}

std::shared_ptr<Collector> submit(Engine& engine, Request request) {
  auto sink = std::make_shared<Collector>();
  const auto id = engine.submit(std::move(request), sink);
  EXPECT_TRUE(id.has_value()) << id.error().message;
  return sink;
}

void finish(Engine& engine) {
  while (engine.step()) {
  }
}

std::vector<float> logprobs_of(const Collector& sink) {
  return sink.result.sequences.at(0).logprobs;
}

std::vector<float> alone(const fs::path& path, EngineConfig config = {},
                         const Adapted& of = kDense) {
  const auto engine = open_adaptable(std::move(config), of);
  const auto sink =
      submit(*engine, adapted_request(path.empty() ? nullptr : open_in(*engine, path)));
  finish(*engine);
  return logprobs_of(*sink);
}

class AdaptedModels : public testing::TestWithParam<Adapted> {};
INSTANTIATE_TEST_SUITE_P(Tiny, AdaptedModels,
                         testing::Values(kDense, Adapted{"qwen3_moe", "qwen3_moe.fused"}),
                         [](const auto& info) { return std::string(info.param.model); });

// In turn, with prefix caching: blocks of one adapter are not another's.
TEST_P(AdaptedModels, EachIsAsAlone) {
  const TempDir dir;
  const Adapted& of = GetParam();
  const std::vector<fs::path> paths = {
      {}, write_adapter(dir, "a", 6, of), write_adapter(dir, "b", 9, of)};
  std::vector<std::vector<float>> want;
  for (const fs::path& path : paths) want.push_back(alone(path, {}, of));
  EXPECT_NE(want[0], want[1]);
  EXPECT_NE(want[1], want[2]);
  const auto engine = open_adaptable({}, of);
  std::vector<AdapterRef> adapters = {nullptr, open_in(*engine, paths[1]),
                                      open_in(*engine, paths[2])};
  for (int round = 0; round < 2; ++round) {
    std::vector<std::shared_ptr<Collector>> sinks;
    for (int i = 0; i < 6; ++i)
      sinks.push_back(submit(*engine, adapted_request(adapters[static_cast<size_t>(i % 3)])));
    finish(*engine);
    for (size_t i = 0; i < sinks.size(); ++i) {
      EXPECT_EQ(logprobs_of(*sinks[i]), want[i % 3]) << i;
      const RequestStats& stats = sinks[i]->result.sequences.at(0).stats;
      EXPECT_EQ(stats.cached_tokens >= 32, round > 0 || i >= 3) << round << ' ' << i;
    }
  }
}

// A client without the adapter cannot have its own blocks found by those who use it.
TEST(EngineAdapters, NoSaltSaysWhatAnAdapterSays) {
  const TempDir dir;
  const fs::path path = write_adapter(dir, "a", 6);
  const std::vector<float> want = alone(path);
  const auto engine = open_adaptable();
  const AdapterRef adapter = open_in(*engine, path);
  const std::string print = fmt::format("{:016x}", adapter->fingerprint());
  for (const std::string& mark : {std::string("\n\0adapter ", 10), std::string("\nadapter ")}) {
    Request forged = adapted_request(nullptr);
    forged.cache_salt = mark + print;
    submit(*engine, std::move(forged));
  }
  finish(*engine);
  const auto sink = submit(*engine, adapted_request(adapter));
  finish(*engine);
  EXPECT_EQ(sink->result.sequences.at(0).stats.cached_tokens, 0);
  EXPECT_EQ(logprobs_of(*sink), want);
}

TEST(EngineAdapters, MoreThanThereIsPlaceForWait) {
  const TempDir dir;
  std::vector<fs::path> paths;
  for (int i = 0; i < 5; ++i) paths.push_back(write_adapter(dir, std::to_string(i), 2 + 3 * i));
  EngineConfig config;
  config.max_loras = 2;
  const auto engine = open_adaptable(config);
  std::vector<std::shared_ptr<Collector>> sinks;
  std::vector<AdapterRef> adapters;
  for (const fs::path& path : paths) adapters.push_back(open_in(*engine, path));
  for (int round = 0; round < 2; ++round) {
    for (const AdapterRef& adapter : adapters)
      sinks.push_back(submit(*engine, adapted_request(adapter)));
  }
  const auto plain = submit(*engine, adapted_request(nullptr, 2));  // waits for nobody
  while (plain->n_finished() == 0) engine->step();
  EXPECT_EQ(sinks.back()->n_finished(), 0);
  finish(*engine);
  for (size_t i = 0; i < sinks.size(); ++i)
    EXPECT_EQ(logprobs_of(*sinks[i]), alone(paths[i % 5])) << i;
}

TEST(EngineAdapters, ThoseThatWaitCanBeCancelled) {
  const TempDir dir;
  EngineConfig config;
  config.max_loras = 1;
  const auto engine = open_adaptable(config);
  const AdapterRef one = open_in(*engine, write_adapter(dir, "one", 6)),
                   other = open_in(*engine, write_adapter(dir, "other", 8));
  const auto runs = submit(*engine, adapted_request(one));
  engine->step();
  auto cancelled = std::make_shared<Collector>();
  const RequestId id = engine->submit(adapted_request(other), cancelled).value();
  Request late = adapted_request(other);
  late.deadline = Clock::now() - std::chrono::seconds(1);
  const auto expired = submit(*engine, std::move(late));
  const auto last = submit(*engine, adapted_request(other));
  engine->cancel(id);
  engine->step();
  EXPECT_EQ(cancelled->n_finished(), 1);
  EXPECT_EQ(expired->n_finished(), 1);
  EXPECT_EQ(expired->result.sequences.at(0).error->code, ErrorCode::kDeadlineExceeded);
  finish(*engine);
  EXPECT_EQ(runs->n_finished(), 1);
  EXPECT_EQ(logprobs_of(*last).size(), 12u);
  const auto holds = submit(*engine, adapted_request(one)),
             waits = submit(*engine, adapted_request(other));
  engine->step();
  engine->stop();
  EXPECT_EQ(holds->n_finished() + waits->n_finished(), 2);
}

// Whoever waits for a slot behind many of another tenant waits for those that have begun, and in
// turns for the others.
TEST(EngineAdapters, TenantsTakeTurnsWhereSlotsAreFew) {
  const TempDir dir;
  EngineConfig config;
  config.max_loras = 1;
  const auto engine = open_adaptable(config);  // of 8 sequences
  const AdapterRef one = open_in(*engine, write_adapter(dir, "one", 6)),
                   other = open_in(*engine, write_adapter(dir, "other", 8));
  const auto send = [&](const AdapterRef& adapter, const char* tenant) {
    Request request = adapted_request(adapter);
    request.tenant = tenant;
    return submit(*engine, std::move(request));
  };
  std::vector<std::shared_ptr<Collector>> many;
  for (int i = 0; i < 40; ++i) many.push_back(send(one, "many"));
  engine->step();
  const auto alone = send(other, "alone");
  while (alone->n_finished() == 0) engine->step();
  const auto n_ended =
      std::ranges::count_if(many, [](const auto& one) { return one->n_finished() > 0; });
  EXPECT_LE(n_ended, 20);
  finish(*engine);
  for (const auto& sink : many) EXPECT_EQ(logprobs_of(*sink).size(), 12u);
}

TEST(EngineAdapters, ChangedFilesAreToldAndDisturbNobody) {
  const TempDir dir;
  const auto engine = open_adaptable();
  const AdapterRef adapter = open_in(*engine, write_adapter(dir, "a", 6));
  write_adapter(dir, "a", 7);
  const auto sink = submit(*engine, adapted_request(adapter));
  const auto plain = submit(*engine, adapted_request(nullptr));
  finish(*engine);
  EXPECT_NE(sink->result.sequences.at(0).error->message.find("has changed"), std::string::npos);
  EXPECT_EQ(logprobs_of(*plain), alone({}));
  const auto again = submit(*engine, adapted_request(open_in(*engine, dir / "a")));
  finish(*engine);
  EXPECT_EQ(logprobs_of(*again), alone(dir / "a"));
}

TEST_P(AdaptedModels, SpeculationGivesTheSame) {
  const TempDir dir;
  const Adapted& of = GetParam();
  const fs::path path = write_adapter(dir, "a", 6, of);
  EngineConfig config;
  config.spec = "ngram";
  config.spec_length = "3";
  EXPECT_EQ(alone(path, config, of), alone(path, {}, of));
}

TEST(EngineAdapters, BadOnesAreRefused) {
  const TempDir dir;
  const auto engine = open_adaptable(), other = open_adaptable();
  EXPECT_EQ(engine->open_adapter((dir / "none").string()).error().code, ErrorCode::kNotFound);
  const auto of_another =
      engine->open_adapter((tests_dir() / "golden" / "lora" / "qwen3").string());
  EXPECT_NE(of_another.error().message.find("another model"), std::string::npos);
  EngineConfig config;
  config.max_lora_rank = 3;
  const auto narrow = open_adaptable(config);
  EXPECT_NE(narrow->open_adapter(write_adapter(dir, "a", 6).string())
                .error()
                .message.find("max_lora_rank"),
            std::string::npos);
  const Request foreign = adapted_request(open_in(*other, dir / "a"));
  EXPECT_EQ(engine->check(foreign).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace penstock
