// What rank 0 tells the others arrives as it was.
#include "engine/ranks/rank_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RankMessages, CarryEveryFieldOfAConfig) {
  EngineConfig config;
  int n = 0;
  EngineConfig::visit(config, [&](const char*, auto& field, const char*) {
    ++n;
    using Field = std::decay_t<decltype(field)>;
    if constexpr (std::is_same_v<Field, std::string>) {
      field = std::string(static_cast<size_t>(n % 11), 'a');
    } else if constexpr (std::is_same_v<Field, bool>) {
      field = !field;
    } else {
      field = static_cast<Field>(n);
    }
  });
  MessageWriter writer;
  write_config(config, writer);
  MessageReader reader(writer.bytes());
  const EngineConfig read = read_config_message(reader);
  std::vector<std::string> wanted, got;
  EngineConfig::visit(config, [&](const char* name, const auto& field, const char*) {
    wanted.push_back(fmt::format("{} {}", name, field));
  });
  EngineConfig::visit(read, [&](const char* name, const auto& field, const char*) {
    got.push_back(fmt::format("{} {}", name, field));
  });
  EXPECT_EQ(got, wanted);
}

TEST(RankMessages, CarryABatch) {
  const std::vector<TokenId> tokens = {5, 6, 7};
  const std::vector<int32_t> positions = {0, 1, 4}, offsets = {0, 2, 3}, lens = {2, 5},
                             rows = {1, 2}, slots = {16, 17, 36};
  const std::vector<BlockId> tables = {BlockId(1), BlockId(2)};
  const std::vector<int32_t> table_offsets = {0, 1, 2};
  const std::vector<uint64_t> masks = {1, 3, uint64_t{1} << 63};
  const std::vector<KvView> kv = {{slots, tables, table_offsets, {}},
                                  {slots, tables, table_offsets, lens}};
  Batch batch;
  batch.tokens = tokens, batch.positions = positions, batch.seq_offsets = offsets,
  batch.seq_lens = lens;
  batch.kv = kv, batch.tree_masks = masks, batch.output_rows = rows;
  const std::vector<int32_t> long_ropes = {0, 1};
  batch.long_ropes = long_ropes;
  const std::vector<AxisPosition> axes = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
  batch.axis_positions = axes;
  const std::vector<int32_t> sights = {0, 7, 7};
  batch.sights = sights;
  const std::vector<float> values = {1, 2, 3, -1, 4, 5, 6, -1, 7, 8, 9, -1};
  const GivenRows given[] = {{0, 1, values.data(), 4}, {2, 1, values.data(), 8}};
  batch.given = given, batch.given_levels = 2, batch.given_dim = 3;

  MessageWriter writer;
  writer.value(RankCommand::kStep);
  write_batch(batch, writer);
  MessageReader reader(writer.bytes());
  EXPECT_EQ(reader.value<RankCommand>(), RankCommand::kStep);
  const BatchMessage read = read_batch(reader);
  EXPECT_THAT(read.batch.tokens, ElementsAre(5, 6, 7));
  EXPECT_THAT(read.batch.positions, ElementsAre(0, 1, 4));
  EXPECT_THAT(read.batch.seq_offsets, ElementsAre(0, 2, 3));
  EXPECT_THAT(read.batch.seq_lens, ElementsAre(2, 5));
  ASSERT_EQ(read.batch.kv.size(), 2);
  EXPECT_THAT(read.batch.kv[1].slots, ElementsAre(16, 17, 36));
  EXPECT_THAT(read.batch.kv[1].block_tables, ElementsAre(BlockId(1), BlockId(2)));
  EXPECT_THAT(read.batch.kv[0].first_positions, IsEmpty());
  EXPECT_THAT(read.batch.kv[1].first_positions, ElementsAre(2, 5));
  EXPECT_THAT(read.batch.tree_masks, ElementsAre(1, 3, uint64_t{1} << 63));
  EXPECT_THAT(read.batch.output_rows, ElementsAre(1, 2));
  EXPECT_THAT(read.batch.adapters, IsEmpty());
  EXPECT_THAT(read.batch.long_ropes, ElementsAre(0, 1));
  EXPECT_EQ(read.batch.axis_positions[2], axes[2]);
  EXPECT_THAT(read.batch.sights, ElementsAre(0, 7, 7));
  ASSERT_EQ(read.batch.given.size(), 2);
  EXPECT_EQ(read.batch.given_levels, 2);
  EXPECT_EQ(read.batch.given_dim, 3);
  const auto level = [&](int i, int l) {
    const GivenRows& rows = read.batch.given[static_cast<size_t>(i)];
    return std::span(rows.values + l * rows.level_stride, 3);
  };
  EXPECT_EQ(read.batch.given[1].first, 2);
  EXPECT_EQ(read.batch.given[1].count, 1);
  EXPECT_THAT(level(0, 0), ElementsAre(1, 2, 3));
  EXPECT_THAT(level(0, 1), ElementsAre(4, 5, 6));
  EXPECT_THAT(level(1, 1), ElementsAre(7, 8, 9));
}

}  // namespace
}  // namespace penstock
