// What the presets are, how they mix with explicit values, and memory that cannot be had.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/open/open.h"

namespace penstock {
namespace {

using testing::HasSubstr;

TEST(Presets, AreWhatTheDocumentationSays) {
  struct Row {
    const char* name;
    int max_num_seqs, max_num_batched_tokens;
    double memory_utilization;
  };
  for (const Row& row : {Row{"chat", 32, 4096, 0.70}, Row{"batch", 256, 32768, 0.95},
                         Row{"hybrid", 128, 16384, 0.85}, Row{"", 64, 2048, 0.85}}) {
    EngineConfig config;
    config.preset = row.name;
    const auto resolved = resolve_preset(config);
    ASSERT_TRUE(resolved) << resolved.error().message;
    EXPECT_EQ(resolved->max_num_seqs, row.max_num_seqs) << row.name;
    EXPECT_EQ(resolved->max_num_batched_tokens, row.max_num_batched_tokens) << row.name;
    EXPECT_DOUBLE_EQ(resolved->memory_utilization, row.memory_utilization) << row.name;
    EXPECT_EQ(resolved->max_batch_size, row.max_num_seqs) << row.name;
  }
}

TEST(Presets, GiveWayToExplicitValues) {
  EngineConfig config;
  config.preset = "chat";
  config.max_num_seqs = 7;
  config.memory_utilization = 0.5;
  EngineConfig resolved = resolve_preset(config).value();
  EXPECT_EQ(resolved.max_num_seqs, 7);
  EXPECT_EQ(resolved.max_num_batched_tokens, 4096);
  EXPECT_DOUBLE_EQ(resolved.memory_utilization, 0.5);
  // Every sequence must fit into a step.
  config.max_num_seqs = 5000;
  EXPECT_EQ(resolve_preset(config)->max_num_batched_tokens, 5000);
}

TEST(Presets, OthersAreRefusedByName) {
  EngineConfig config;
  config.preset = "turbo";
  const auto resolved = resolve_preset(config);
  ASSERT_FALSE(resolved);
  EXPECT_EQ(resolved.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(resolved.error().message, HasSubstr("turbo"));
}

}  // namespace
}  // namespace penstock
