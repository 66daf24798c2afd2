// What opening an engine takes and refuses, on tiny random checkpoints of real architectures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/engine.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Result<std::unique_ptr<Engine>> open_with_length(const std::string& model, int max_model_len) {
  EngineConfig config;
  config.model = tests_dir().string() + "/golden/models/" + model;
  config.threads = 1;
  config.max_num_seqs = 2;
  config.max_model_len = max_model_len;
  return Engine::open(config);
}

TEST(Open, RotatedPositionsGoOnBeyondTheModelsLength) {
  const auto engine = open_with_length("llama3", 500);  // made for 128
  ASSERT_TRUE(engine) << engine.error().message;
  EXPECT_EQ((*engine)->info().max_model_len, 500);
}

TEST(Open, ErrorsDoNotShowThePasswordOfAStore) {
  EngineConfig config;
  config.model = tests_dir().string() + "/golden/models/llama3";
  config.kv_store = "redis://:secret@a:6379";
  config.enable_prefix_caching = false;
  const auto engine = Engine::open(config);
  ASSERT_FALSE(engine);
  EXPECT_THAT(engine.error().message,
              AllOf(HasSubstr("kv_store: expected"), Not(HasSubstr("secret"))));
}

TEST(Open, LearnedPositionsEndWhereTheyEnd) {
  const auto all = open_with_length("gpt2", 64);
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ((*all)->info().max_model_len, 64);
  const auto engine = open_with_length("gpt2", 65);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(
      engine.error().message,
      AllOf(HasSubstr("max_model_len"), HasSubstr("64 learned positions"), HasSubstr("got 65")));
}

// As vLLM has it: who has no states takes no notice.
TEST(Open, StatesInHalfTheBytes) {
  const auto open = [](const char* model, const char* type) {
    EngineConfig config;
    config.model = tests_dir().string() + "/golden/models/" + model;
    config.threads = 1, config.max_num_seqs = 2, config.mamba_ssm_cache_dtype = type;
    return Engine::open(config);
  };
  const auto usual = open("mamba2", "auto"), f32 = open("mamba2", "float32"),
             bf16 = open("mamba2", "bfloat16");
  ASSERT_TRUE(usual && f32 && bf16);
  EXPECT_GT((*f32)->info().state_bytes, 0);
  EXPECT_EQ((*usual)->info().state_bytes, (*f32)->info().state_bytes);
  EXPECT_EQ(2 * (*bf16)->info().state_bytes, (*f32)->info().state_bytes);
  const auto without = open("llama2", "bfloat16");
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_EQ((*without)->info().state_bytes, 0);
  const auto wrong = open("mamba2", "float16");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(
      wrong.error().message,
      HasSubstr("mamba_ssm_cache_dtype: expected auto, float32 or bfloat16, got 'float16'"));
}

}  // namespace
}  // namespace penstock
