#include "server/served_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  return std::make_unique<ServedModel>(std::move(names), config, ChatConfig());
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
  EXPECT_EQ(&models.default_model(), first);
  for (const char* name : {"", "stories", "org/stories:1m"})
    EXPECT_EQ(models.find(name).value(), first) << name;
  for (const char* name : {"org/other", "org/other/v2"}) EXPECT_EQ(models.find(name).value(), second) << name;
  for (const char* name : {"other", "org", "org/", "org/other/", "Stories", "stories "}) {
    const auto found = models.find(name);
    ASSERT_FALSE(found) << name;
    EXPECT_EQ(found.error().code, ErrorCode::kNotFound);
    EXPECT_EQ(
        found.error().message,
        std::string("model: expected stories or org/stories:1m or org/other or org/other/v2, got ") + name);
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
  EXPECT_EQ(refusal(models, {"c", "b"}), "served model name: expected every name once, got b for two models");
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
  EXPECT_FALSE(models.loaded());
  const Status loaded = models.load();
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_TRUE(models.loaded());
  const ServedModel &small = *models.find("small").value(), &large = *models.find("large").value();
  EXPECT_NE(small.fingerprint(), large.fingerprint());
  for (const ServedModel* model : {&small, &large}) {
    EXPECT_TRUE(model->loaded());
    EXPECT_TRUE(model->chat().chat_template().empty());
    auto queue = std::make_shared<EventQueue>();
    SamplingParams params;
    params.max_tokens = 3;
    params.ignore_eos = true;
    ASSERT_TRUE(model->engine().submit(
        model->session().make_request(model->session().encode("Once", {}), params), queue));
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
  const Status loaded = models.load();
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message, HasSubstr("org/gone: "));
  EXPECT_TRUE(models.all()[0]->loaded());
  EXPECT_FALSE(models.loaded());
}

}  // namespace
}  // namespace penstock
