#include "server/services/served_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "support/test_data.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<ServedModel> model_of(std::vector<std::string> names,
                                      const char* file = "penstock-stories-1m-q8_0.gguf") {
  EngineConfig config;
  config.model = (models_dir() / file).string();
  config.threads = 1;
  config.max_num_seqs = 2;
  config.kv_cache_memory = 8 << 20;
  ModelSettings settings;
  settings.names = std::move(names);
  settings.engine = config;
  settings.runner = Runner::kGenerate;
  return std::make_unique<ServedModel>(std::move(settings));
}

std::string refusal(ServedModels& models, std::vector<std::string> names) {
  const Status added = models.add(model_of(std::move(names)));
  return added ? "added" : added.error().message;
}

TEST(ServedModels, EachIsFoundByItsNames) {
  ServedModels models;
  ASSERT_TRUE(models.add(model_of({"stories", "org/stories:1m"})));
  ASSERT_TRUE(models.add(model_of({"org/other", "org/other/v2"})));
  ServedModel* const first = models.all()[0].get();
  ServedModel* const second = models.all()[1].get();
  for (const char* name : {"", "stories", "org/stories:1m"})
    EXPECT_EQ(models.find(name).value(), first) << name;
  for (const char* name : {"org/other", "org/other/v2"})
    EXPECT_EQ(models.find(name).value(), second) << name;
  for (const char* name : {"other", "org", "org/", "org/other/", "Stories", "stories "}) {
    const auto found = models.find(name);
    ASSERT_FALSE(found) << name;
    EXPECT_EQ(found.error().code, ErrorCode::kNotFound);
    EXPECT_EQ(found.error().message,
              std::string(
                  "model: expected stories or org/stories:1m or org/other or org/other/v2, got ") +
                  name);
  }
}

TEST(ServedModels, WithAnyNameTheRestIsTheDefault) {
  ServedModels models(true);
  ASSERT_TRUE(models.add(model_of({"one"})));
  ASSERT_TRUE(models.add(model_of({"two"})));
  EXPECT_EQ(models.find("gpt-4").value()->name(), "one");
  EXPECT_EQ(models.find("two").value()->name(), "two");
}

TEST(ServedModels, ANameIsOneModels) {
  ServedModels models;
  ASSERT_TRUE(models.add(model_of({"a/b", "b"})));
  EXPECT_EQ(refusal(models, {"c", "b"}),
            "served model name: expected every name once, got b for two models");
  EXPECT_EQ(refusal(models, {"c", "d", "c"}),
            "served model name: expected every name once, got c for the same model twice");
  EXPECT_THAT(refusal(models, {}), HasSubstr("expected a name, got none"));
  EXPECT_THAT(refusal(models, {"c", ""}), HasSubstr("expected a name, got none"));
  EXPECT_EQ(models.all().size(), 1u);
  EXPECT_FALSE(models.find("c"));
}

TEST(ServedModels, TwoServeInOneProcess) {
  ServedModels models;
  ASSERT_TRUE(models.add(model_of({"small"})));
  ASSERT_TRUE(models.add(model_of({"large"}, "penstock-stories-15m-q8_0.gguf")));
  EXPECT_FALSE(models.ready());
  EXPECT_TRUE(models.some_unloaded());
  EXPECT_EQ(models.lease("small").error().message, "model: small is unloaded: try again");
  const Status loaded = models.load();
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_TRUE(models.ready());
  EXPECT_FALSE(models.some_unloaded());
  const ServedModel &small = *models.find("small").value(), &large = *models.find("large").value();
  EXPECT_NE(small.fingerprint(), large.fingerprint());
  for (const ServedModel* model : {&small, &large}) {
    EXPECT_TRUE(model->chat().chat_template().empty());
    auto queue = std::make_shared<EventQueue>();
    SamplingParams params;
    params.max_tokens = 3;
    params.ignore_eos = true;
    ASSERT_TRUE(model->engine().submit(
        model->session().make_request(model->session().encode("Once", {}), params, {}), queue));
    std::vector<OwnedEvent> events;
    for (int i = 0; i < 100 && (events.empty() || events.back().finish == FinishReason::kNone); ++i)
      queue->pop(events, std::chrono::milliseconds(200));
    ASSERT_FALSE(events.empty());
    EXPECT_EQ(events.back().finish, FinishReason::kLength) << model->name();
  }
  models.stop();
}

TEST(ServedModels, AModelThatDoesNotOpenIsNamed) {
  ServedModels models;
  ASSERT_TRUE(models.add(model_of({"here"})));
  ASSERT_TRUE(models.add(model_of({"org/gone"}, "there-is-none.gguf")));
  ASSERT_TRUE(models.load());
  EXPECT_TRUE(models.ready());
  EXPECT_TRUE(models.lease("here"));
  const auto refused = models.lease("org/gone");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kCancelled);
  EXPECT_THAT(refused.error().message, HasSubstr("org/gone could not be loaded: "));
  EXPECT_THAT(refused.error().message, HasSubstr("there-is-none.gguf"));
}

TEST(ServedModels, NoneThatOpensIsAnError) {
  ServedModels models;
  ASSERT_TRUE(models.add(model_of({"a"}, "there-is-none.gguf")));
  ASSERT_TRUE(models.add(model_of({"b"}, "nor-this.gguf")));
  const Status loaded = models.load();
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(loaded.error().message, HasSubstr("a: "));
  EXPECT_FALSE(models.ready());
}

TEST(ServedModels, UnloadingWaitsForLeases) {
  ServedModels models;
  ASSERT_TRUE(models.add(model_of({"a"})));
  ASSERT_TRUE(models.load());
  ServedModel& model = *models.all().front();
  auto lease = models.lease("a");
  ASSERT_TRUE(lease);
  std::thread unloads([&] { models.unload(model); });
  while (model.condition().state != ModelState::kUnloading) std::this_thread::yield();
  EXPECT_EQ(model.lease(), nullptr);
  EXPECT_EQ((*lease)->engine().info().vocab_size, 4096);
  lease->reset();
  unloads.join();
  EXPECT_EQ(model.condition().state, ModelState::kUnloaded);
  EXPECT_EQ(model.condition().n_leases, 0);
  ASSERT_TRUE(models.load(model));
  EXPECT_TRUE(models.lease("a"));
}

TEST(ServedModels, WhoWasNotUsedForLongestMakesRoom) {
  ServedModels models(false, 13'000'000);  // each asks for 9.7 MB and takes 2.1
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(models.add(model_of({name})));
  const auto state = [&](const char* name) { return models.find(name).value()->condition().state; };
  const auto load = [&](const char* name) { return models.load(*models.find(name).value()); };
  ASSERT_TRUE(load("a"));
  ASSERT_TRUE(load("b"));
  EXPECT_TRUE(models.lease("a"));
  ASSERT_TRUE(load("c"));
  EXPECT_EQ(state("a"), ModelState::kLoaded);
  EXPECT_EQ(state("b"), ModelState::kUnloaded);
  const ModelLease busy = models.lease("a").value();  // used before c, but somebody waits for it
  ASSERT_TRUE(load("b"));
  EXPECT_EQ(state("a"), ModelState::kLoaded);
  EXPECT_EQ(state("c"), ModelState::kUnloaded);
}

TEST(ServedModels, FilesAreMeasured) {
  EXPECT_EQ(weight_bytes_of((models_dir() / "penstock-stories-1m-q8_0.gguf").string()), 1282048);
  EXPECT_GT(weight_bytes_of((models_dir() / "penstock-stories-1m-bf16").string()), 2'000'000);
  EXPECT_EQ(weight_bytes_of("/there/is/none"), 0);
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "penstock_shards";
  std::filesystem::create_directories(folder);
  for (const char* name : {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "other.gguf"})
    std::ofstream(folder / name) << "12345";
  EXPECT_EQ(weight_bytes_of((folder / "m-00001-of-00002.gguf").string()), 10);
}

}  // namespace
}  // namespace penstock
