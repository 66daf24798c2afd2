// The flat arrays of a batch against what its parts say, token by token.
#include "model/batch_builder.h"

#include <gmock/gmock.h>

namespace penstock {
namespace {

using ::testing::ElementsAre;

GroupBlocks blocks(std::vector<uint32_t> ids, int first_block = 0) {
  GroupBlocks kv;
  for (const uint32_t id : ids) kv.blocks.push_back(BlockId{id});
  kv.first_block = first_block;
  return kv;
}

std::vector<uint32_t> ids_of(std::span<const BlockId> tables) {
  std::vector<uint32_t> ids;
  for (const BlockId id : tables) ids.push_back(static_cast<uint32_t>(id));
  return ids;
}

TEST(BatchBuilder, LaysPartsEndToEnd) {
  const std::vector<TokenId> prompt = {5, 6, 7, 8, 9}, last = {3};
  const GroupBlocks one = blocks({7, 2}), other = blocks({4, 9, 1});
  BatchBuilder builder(1, 4);
  EXPECT_EQ(builder.add({.tokens = prompt, .kv = {&one, 1}, .rows = BatchPart::Rows::kNone}), -1);
  EXPECT_EQ(builder.add({.tokens = last, .first = 8, .kv = {&other, 1}}), 0);
  EXPECT_EQ(
      builder.add({.tokens = prompt, .first = 2, .kv = {&one, 1}, .rows = BatchPart::Rows::kAll}),
      1);
  const Batch& batch = builder.build();
  EXPECT_THAT(batch.tokens, ElementsAre(5, 6, 7, 8, 9, 3, 5, 6, 7, 8, 9));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 3, 4, 8, 2, 3, 4, 5, 6));
  EXPECT_THAT(batch.seq_offsets, ElementsAre(0, 5, 6, 11));
  EXPECT_THAT(batch.seq_lens, ElementsAre(5, 9, 7));
  EXPECT_THAT(batch.output_rows, ElementsAre(5, 6, 7, 8, 9, 10));
  EXPECT_TRUE(batch.tree_masks.empty());
  ASSERT_EQ(batch.kv.size(), 1u);
  EXPECT_THAT(batch.kv[0].slots, ElementsAre(28, 29, 30, 31, 8, 4, 30, 31, 8, 9, 10));
  EXPECT_THAT(ids_of(batch.kv[0].block_tables), ElementsAre(7, 2, 4, 9, 1, 7, 2));
  EXPECT_THAT(batch.kv[0].table_offsets, ElementsAre(0, 2, 5, 7));
  builder.clear();
  EXPECT_EQ(builder.build().n_tokens(), 0);
  EXPECT_EQ(builder.build().n_seqs(), 0);
}

TEST(BatchBuilder, BlocksThatAreNotNeededYetStayOut) {
  const std::vector<TokenId> tokens = {1, 2};
  const GroupBlocks kv = blocks({3, 4, 5, 6});
  BatchBuilder builder(1, 4);
  builder.add({.tokens = tokens, .first = 2, .kv = {&kv, 1}});
  EXPECT_THAT(ids_of(builder.build().kv[0].block_tables), ElementsAre(3));
}

TEST(BatchBuilder, GroupsHaveTheirOwnBlocksOrShareThem) {
  const std::vector<TokenId> tokens = {1, 2};
  // the second has dropped two blocks
  const GroupBlocks groups[] = {blocks({0, 1, 2}), blocks({8}, 2)};
  BatchBuilder builder(2, 4);
  builder.add({.tokens = tokens, .first = 9, .kv = groups});
  const Batch& batch = builder.build();
  EXPECT_THAT(batch.kv[0].slots, ElementsAre(9, 10));
  EXPECT_THAT(batch.kv[0].first_positions, ElementsAre(0));
  EXPECT_THAT(batch.kv[1].slots, ElementsAre(33, 34));
  EXPECT_THAT(batch.kv[1].first_positions, ElementsAre(8));
  EXPECT_THAT(ids_of(batch.kv[1].block_tables), ElementsAre(8));
  builder.clear();
  builder.add({.tokens = tokens, .first = 9, .kv = {groups, 1}});
  EXPECT_THAT(builder.build().kv[1].slots, ElementsAre(9, 10));
}

TEST(BatchBuilder, AStateIsOneBlockHoweverLongTheSequence) {
  const std::vector<TokenId> tokens = {1, 2};
  const GroupBlocks groups[] = {blocks({0, 1, 2}), blocks({5})};
  BatchBuilder builder(2, 4, 1);
  builder.add({.tokens = tokens, .first = 9, .kv = groups});
  builder.add({.tokens = tokens, .first = 0, .kv = {groups, 1}});
  const Batch& batch = builder.build();
  EXPECT_THAT(ids_of(batch.kv[1].block_tables), ElementsAre(5, 0));
  EXPECT_THAT(batch.kv[1].table_offsets, ElementsAre(0, 1, 2));
  EXPECT_TRUE(batch.kv[1].slots.empty());
}

TEST(BatchBuilder, AChainIsInCausalOrderAlready) {
  const std::vector<TokenId> tokens = {4}, draft = {5, 6};
  const int16_t parents[] = {-1, 0};
  const GroupBlocks kv = blocks({0, 1});
  BatchBuilder builder(1, 4);
  EXPECT_EQ(
      builder.add(
          {.tokens = tokens, .first = 2, .kv = {&kv, 1}, .draft = draft, .draft_parents = parents}),
      0);
  const Batch& batch = builder.build();
  EXPECT_THAT(batch.tokens, ElementsAre(4, 5, 6));
  EXPECT_THAT(batch.positions, ElementsAre(2, 3, 4));
  EXPECT_THAT(batch.kv[0].slots, ElementsAre(2, 3, 4));
  EXPECT_THAT(batch.seq_lens, ElementsAre(5));
  EXPECT_THAT(batch.output_rows, ElementsAre(0, 1, 2));
  EXPECT_TRUE(batch.tree_masks.empty());
}

// Beside a sequence without a draft, and after tokens that are computed in the same step.
TEST(BatchBuilder, ATreesNodesSeeTheirAncestors) {
  const std::vector<TokenId> plain = {1}, tokens = {2, 3}, draft = {10, 11, 12, 13};
  const int16_t parents[] = {-1, -1, 0, 2};
  const GroupBlocks kv = blocks({0, 1, 2});
  BatchBuilder builder(1, 4);
  builder.add({.tokens = plain, .first = 6, .kv = {&kv, 1}});
  EXPECT_EQ(
      builder.add(
          {.tokens = tokens, .first = 3, .kv = {&kv, 1}, .draft = draft, .draft_parents = parents}),
      1);
  builder.add({.tokens = plain, .first = 6, .kv = {&kv, 1}});
  const Batch& batch = builder.build();
  EXPECT_THAT(batch.tokens, ElementsAre(1, 2, 3, 10, 11, 12, 13, 1));
  EXPECT_THAT(batch.positions, ElementsAre(6, 3, 4, 5, 5, 6, 7, 6));
  EXPECT_THAT(batch.kv[0].slots, ElementsAre(6, 3, 4, 5, 6, 7, 8, 6));  // in the order of the nodes
  EXPECT_THAT(batch.seq_offsets, ElementsAre(0, 1, 7, 8));
  EXPECT_THAT(batch.seq_lens, ElementsAre(7, 9, 7));
  EXPECT_THAT(batch.output_rows, ElementsAre(0, 2, 3, 4, 5, 6, 7));
  // Bits: tokens 2 and 3, then the nodes. 0 is causal order.
  EXPECT_THAT(batch.tree_masks, ElementsAre(0, 0, 0b11, 0b111, 0b1011, 0b10111, 0b110111, 0));
}

// Chunks have their share of a sequence's given rows, at the step's rows.
TEST(BatchBuilder, GivenRowsOfAChunk) {
  const std::vector<TokenId> plain = {1, 2}, tokens = {3, 4, 5};
  const std::vector<float> values(5 * 2);
  // tokens 2 to 4, and 8 to 9 of a sequence of which tokens 4 to 6 are computed
  const GivenRows given[] = {{2, 3, values.data(), 6}, {8, 2, values.data() + 6, 4}};
  const GroupBlocks kv = blocks({0, 1, 2});
  BatchBuilder builder(1, 4);
  builder.add({.tokens = plain, .kv = {&kv, 1}});
  builder.add({.tokens = tokens, .first = 4, .kv = {&kv, 1}, .given = given, .given_dim = 2});
  const Batch& batch = builder.build();
  ASSERT_EQ(batch.given.size(), 1u);
  EXPECT_EQ(batch.given[0].first, 2);
  EXPECT_EQ(batch.given[0].count, 1);
  EXPECT_EQ(batch.given[0].values, values.data() + 4);
  EXPECT_EQ(batch.given[0].level_stride, 6);
  EXPECT_EQ(batch.given_dim, 2);
  builder.clear();
  builder.add({.tokens = plain, .kv = {&kv, 1}});
  EXPECT_TRUE(builder.build().given.empty());
}

TEST(BatchBuilder, PartsThatSeeThemselves) {
  const std::vector<TokenId> plain = {1, 2}, tokens = {3, 4, 5, 6};
  const std::vector<float> values(8);
  const GivenRows given[] = {{1, 2, values.data(), 0}, {5, 2, values.data(), 0}};
  const GroupBlocks kv = blocks({0, 1, 2});
  BatchBuilder builder(1, 4);
  builder.add({.tokens = plain, .kv = {&kv, 1}});
  builder.add({.tokens = tokens,
               .first = 2,
               .kv = {&kv, 1},
               .given = {given, 1},
               .given_dim = 2,
               .parts_see = true});
  builder.add({.tokens = plain, .kv = {&kv, 1}});
  EXPECT_THAT(builder.build().sights, ElementsAre(0, 0, 3, 0, 0, 0, 0, 0));
}

TEST(BatchBuilder, AxesOfASequenceBesideOthers) {
  using Axes = std::vector<AxisPosition>;
  const std::vector<TokenId> plain = {1, 2}, tokens = {3, 4, 5}, draft = {6, 7};
  const int16_t parents[] = {-1, 0};
  const Axes axes = {{0, 0, 0}, {1, 1, 1}, {1, 1, 2}};
  const GroupBlocks kv = blocks({0, 1, 2});
  BatchBuilder builder(1, 4);
  builder.add({.tokens = plain, .first = 5, .kv = {&kv, 1}});
  EXPECT_TRUE(builder.build().axis_positions.empty());
  builder.add({.tokens = tokens,
               .first = 1,
               .kv = {&kv, 1},
               .draft = draft,
               .draft_parents = parents,
               .axes = axes,
               .axis_delta = -1});
  builder.add({.tokens = plain, .first = 3, .kv = {&kv, 1}});
  EXPECT_EQ(Axes(builder.build().axis_positions.begin(), builder.build().axis_positions.end()),
            (Axes{{5, 5, 5},
                  {6, 6, 6},
                  {1, 1, 1},
                  {1, 1, 2},
                  {2, 2, 2},
                  {3, 3, 3},
                  {4, 4, 4},
                  {3, 3, 3},
                  {4, 4, 4}}));
}

TEST(ConsecutiveBlocks, CoverTheTokens) {
  EXPECT_THAT(ids_of(consecutive_blocks(3, 9, 4).blocks), ElementsAre(3, 4, 5));
  EXPECT_TRUE(consecutive_blocks(3, 0, 4).blocks.empty());
  EXPECT_EQ(slot_of(consecutive_blocks(3, 9, 4), 8, 4), 20);
}

}  // namespace
}  // namespace penstock
