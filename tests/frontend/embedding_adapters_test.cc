// LoRA adapters of models that give vectors: the states are PEFT's (tools/make_tiny_adapters.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>

#include "frontend/pooling_queue.h"
#include "penstock/embed.h"
#include "support/test_data.h"

namespace penstock::embedding_adapters_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using Vectors = std::vector<std::vector<float>>;

const fs::path kGolden = tests_dir() / "golden";

std::unique_ptr<EmbeddingModel> open_model(const fs::path& path, int max_loras = 8) {
  EngineConfig config;
  config.model = path.string();
  config.threads = 2;
  config.max_loras = max_loras;
  config.max_lora_rank = 4;
  auto opened = EmbeddingModel::open(config);
  EXPECT_TRUE(opened.has_value()) << opened.error().message;
  return std::move(opened).value();
}

fs::path adapter_path(const std::string& name) { return kGolden / "lora_encoders" / name; }

std::shared_ptr<const Adapter> adapter_of(EmbeddingModel& model, const fs::path& path) {
  auto opened = model.open_adapter(path.string());
  EXPECT_TRUE(opened.has_value()) << opened.error().message;
  return opened.value_or(nullptr);
}

json golden_of(const fs::path& folder) {
  std::ifstream file(folder / "golden.json");
  return json::parse(file);
}

std::vector<Prompt> sequences_in(const json& golden) {
  std::vector<Prompt> all;
  for (const json& one : golden) all.emplace_back(one["ids"].get<std::vector<TokenId>>());
  return all;
}

EmbedOptions options_with(std::shared_ptr<const Adapter> adapter,
                          Pooling pooling = Pooling::kMean) {
  EmbedOptions options;
  options.pooling = pooling;
  options.normalize = false;
  options.adapter = std::move(adapter);
  return options;
}

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    most = std::max<double>(most, std::fabs(a[i] - b[i]));
  return most;
}

TEST(EmbeddingAdapters, StatesArePefts) {
  for (const std::string name : {"bert", "roberta", "modernbert", "embedding_gemma"}) {
    SCOPED_TRACE(name);
    const json golden = golden_of(adapter_path(name));
    const std::vector<Prompt> inputs = sequences_in(golden);
    const auto model = open_model(kGolden / "encoders" / name);
    const auto adapter = adapter_of(*model, adapter_path(name));
    const Vectors plain = model->embed(inputs, options_with(nullptr)).value();
    for (const auto& [key, pooling] :
         {std::pair("mean", Pooling::kMean), {"cls", Pooling::kCls}, {"last", Pooling::kLast}}) {
      const auto vectors = model->embed(inputs, options_with(adapter, pooling));
      ASSERT_TRUE(vectors.has_value()) << vectors.error().message;
      for (size_t i = 0; i < inputs.size(); ++i)
        EXPECT_LE(difference((*vectors)[i], golden[i][key].get<std::vector<float>>()), 1e-3) << key;
    }
    EXPECT_GT(difference(plain.back(), golden.back()["mean"].get<std::vector<float>>()), 1e-2)
        << "the adapter changes nothing";
    EXPECT_EQ(model->embed(inputs, options_with(nullptr)).value(), plain);
  }
}

// Of two adapters with one place in memory, by turns.
TEST(EmbeddingAdapters, OfADecoderTakeTurnsInOnePlace) {
  const auto model = open_model(kGolden / "models" / "llama2", 1);
  const auto one = adapter_of(*model, kGolden / "lora" / "llama2"),
             other = adapter_of(*model, kGolden / "lora" / "llama2" / "adapter.gguf");
  const std::vector<Prompt> inputs = {std::vector<TokenId>{3, 5, 7, 9}, std::vector<TokenId>{4}};
  const Vectors plain = model->embed(inputs, options_with(nullptr)).value();
  const Vectors first = model->embed(inputs, options_with(one)).value();
  EXPECT_GT(difference(plain[0], first[0]), 1e-2);
  const Vectors second = model->embed(inputs, options_with(other)).value();
  EXPECT_LE(difference(first[0], second[0]), 1e-4);
  EXPECT_EQ(model->embed(inputs, options_with(one)).value(), first);
  EXPECT_EQ(model->embed(inputs, options_with(nullptr)).value(), plain);
}

TEST(EmbeddingAdapters, SayWhyNot) {
  const auto model = open_model(kGolden / "encoders" / "bert");
  const auto message = [&](const fs::path& path) {
    const auto opened = model->open_adapter(path.string());
    return opened ? "" : opened.error().message;
  };
  EXPECT_THAT(message(adapter_path("modernbert")), HasSubstr("is for another model"));
  EXPECT_THAT(message(kGolden / "nothing"), HasSubstr("nothing"));
  EXPECT_THAT(message(kGolden / "lora" / "qwen2"), HasSubstr("another model"));
  const auto same = open_model(kGolden / "encoders" / "bert");
  const auto strange = model->embed(std::vector<Prompt>{std::vector<TokenId>{3}},
                                    options_with(adapter_of(*same, adapter_path("bert"))));
  ASSERT_FALSE(strange.has_value());
  EXPECT_THAT(strange.error().message, HasSubstr("another model"));
}

// A call's adapter is not its neighbours'.
TEST(EmbeddingAdapters, InAQueue) {
  PoolingQueue queue(open_model(kGolden / "encoders" / "bert"), {});
  const auto adapter = queue.open_adapter(adapter_path("bert").string()).value();
  const json with = golden_of(adapter_path("bert")),
             without = golden_of(kGolden / "encoders" / "bert");
  std::vector<std::promise<Result<Vectors>>> replies(6);
  for (size_t i = 0; i < replies.size(); ++i) {
    PoolingCall call;
    call.kind.normalize = false;
    if (i % 2 == 0) call.kind.adapter = adapter;
    call.inputs = {with[1]["ids"].get<std::vector<TokenId>>()};
    call.lengths = {call.inputs[0].size()};
    ASSERT_TRUE(queue.submit(std::move(call),
                             [&, i](auto result) { replies[i].set_value(std::move(result)); }));
  }
  for (size_t i = 0; i < replies.size(); ++i) {
    const auto vectors = replies[i].get_future().get();
    ASSERT_TRUE(vectors.has_value()) << vectors.error().message;
    const json& golden = i % 2 == 0 ? with : without;
    EXPECT_LE(difference((*vectors)[0], golden[1]["mean"].get<std::vector<float>>()), 1e-3) << i;
  }
}

}  // namespace
}  // namespace penstock::embedding_adapters_test
