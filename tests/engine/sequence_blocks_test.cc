// Blocks of sequences, and what they share of them, each by itself.
#include "engine/schedule/sequence_blocks.h"

#include <gtest/gtest.h>

#include "engine/schedule/prefix_sharing.h"

namespace penstock {
namespace {

constexpr int kBlock = 4;

struct Cache {
  explicit Cache(std::vector<int> n_blocks = {10}, std::vector<int> windows = {0})
      : blocks(n_blocks, windows, kBlock) {}
  Sequence sequence(int n_tokens, uint64_t id = 1) {
    Sequence sequence;
    sequence.id = SeqId{id};
    sequence.arrival_order = id;
    for (int i = 0; i < n_tokens; ++i) sequence.tokens.push_back(i);
    sequence.n_prompt = n_tokens;
    sequence.max_len = 40;
    blocks.make_room(sequence, 40);
    return sequence;
  }
  // As if the step had computed so many tokens.
  void compute(Sequence& sequence, int n_tokens, PrefixSharing* sharing = nullptr) {
    Plan plan;
    ASSERT_TRUE(blocks.reserve(sequence, n_tokens, plan));
    sequence.n_computed = n_tokens;
    if (sharing != nullptr) sharing->publish(sequence);
    blocks.slide_windows(sequence);
  }
  void check(std::vector<const Sequence*> sequences, const PrefixSharing* sharing = nullptr) {
    std::vector<std::vector<int>> references;
    for (int g = 0; g < blocks.n_groups(); ++g)
      references.emplace_back(blocks.allocator(g).n_blocks());
    for (const Sequence* each : sequences) blocks.count(*each, references);
    if (sharing != nullptr) sharing->count(references);
    blocks.check_invariants(references);
  }
  SequenceBlocks blocks;
};

TEST(SequenceBlocks, AreTakenAndGivenBack) {
  Cache cache;
  Sequence a = cache.sequence(10);
  EXPECT_EQ(cache.blocks.missing(a, 0, 10), 3);
  cache.compute(a, 9);
  EXPECT_EQ(cache.blocks.tokens_in_own(a), 3);
  EXPECT_EQ(cache.blocks.tokens_available(a), 3 + 7 * kBlock);
  cache.check({&a});
  cache.blocks.release(a);
  EXPECT_EQ(cache.blocks.allocator(0).n_available(), 10);
}

TEST(SequenceBlocks, AStateIsOneBlockAndIsCopiedBeforeTwoWriteIt) {
  Cache cache({20, 2}, {0, kStateWindow});
  EXPECT_EQ(cache.blocks.state_group(), 1);
  EXPECT_TRUE(cache.blocks.could_hold(40, 2));
  EXPECT_FALSE(cache.blocks.could_hold(8, 3));
  Sequence a = cache.sequence(30), b = cache.sequence(30, 2);
  cache.compute(a, 8);
  cache.compute(a, 24);
  EXPECT_EQ(a.kv[1].blocks.size(), 1u);
  EXPECT_EQ(cache.blocks.tokens_available(a), 14 * kBlock);
  cache.blocks.share(a, b.kv);
  b.n_computed = a.n_computed;
  cache.check({&a, &b});
  Plan plan;
  ASSERT_TRUE(cache.blocks.reserve(a, 25, plan));  // at the beginning of a block of tokens, too
  ASSERT_EQ(plan.copies.size(), 1u);
  EXPECT_EQ(plan.copies[0].group, 1);
  EXPECT_EQ(plan.copies[0].from, b.kv[1].blocks[0]);
  EXPECT_EQ(plan.copies[0].to, a.kv[1].blocks[0]);
  ASSERT_TRUE(cache.blocks.reserve(b, 25, plan));
  EXPECT_EQ(plan.copies.size(), 1u);
  cache.check({&a, &b});
  Sequence c = cache.sequence(3, 3);
  EXPECT_FALSE(cache.blocks.reserve(c, 3, plan));  // no state is left
  cache.blocks.release(a);
  EXPECT_TRUE(cache.blocks.reserve(c, 3, plan));
}

TEST(SequenceBlocks, AStateThatIsPublishedIsCopiedBeforeAWriteOrGivenUp) {
  Cache cache({20, 2}, {0, kStateWindow});
  BlockAllocator& states = cache.blocks.allocator(1);
  Sequence a = cache.sequence(30);
  cache.compute(a, 8);
  const BlockId kept = a.kv[1].blocks[0];
  const auto tokens = std::span<const TokenId>(a.tokens).subspan(4, 4);
  ASSERT_TRUE(states.publish(kept, chain_hash({}, tokens), tokens));
  Plan plan;
  ASSERT_TRUE(cache.blocks.reserve(a, 9, plan));
  ASSERT_EQ(plan.copies.size(), 1u);
  EXPECT_EQ(plan.copies[0].from, kept);
  EXPECT_NE(a.kv[1].blocks[0], kept);
  EXPECT_TRUE(states.is_published(kept));
  cache.check({&a});
  Sequence b = cache.sequence(30, 2);
  b.kv[1].blocks.push_back(*states.acquire(chain_hash({}, tokens), tokens));
  // no block for a copy is left, and nobody else uses it
  ASSERT_TRUE(cache.blocks.reserve(b, 9, plan));
  EXPECT_EQ(plan.copies.size(), 1u);
  EXPECT_EQ(b.kv[1].blocks[0], kept);
  EXPECT_FALSE(states.is_published(kept));
  cache.check({&a, &b});
}

TEST(SequenceBlocks, ADraftHasAStateForEachGuess) {
  Cache cache({20, 4}, {0, kStateWindow});
  Sequence a = cache.sequence(30);
  cache.compute(a, 8);
  EXPECT_EQ(cache.blocks.draft_states_available(1), 2);
  cache.blocks.reserve_draft_states(a, 3);
  const BlockId second = a.kv[1].blocks[2];
  cache.check({&a});
  cache.blocks.accept_draft_state(a, 2);
  EXPECT_EQ(a.kv[1].blocks, std::vector<BlockId>{second});
  EXPECT_EQ(cache.blocks.allocator(1).n_available(), 3);
  cache.check({&a});
}

TEST(SequenceBlocks, AreNotTakenWhereOneGroupHasTooFew) {
  Cache cache({10, 2}, {0, 5});
  Sequence a = cache.sequence(12);
  Plan plan;
  EXPECT_FALSE(cache.blocks.reserve(a, 12, plan));
  EXPECT_TRUE(a.kv[0].blocks.empty() && a.kv[1].blocks.empty());
  EXPECT_TRUE(cache.blocks.reserve(a, 8, plan));
}

TEST(SequenceBlocks, ABlockOfTwoIsCopiedBeforeAWrite) {
  Cache cache;
  Sequence a = cache.sequence(10), b = cache.sequence(10, 2);
  cache.compute(a, 6);
  cache.blocks.share(a, b.kv);
  b.n_computed = 6;
  cache.check({&a, &b});
  Plan plan;
  ASSERT_TRUE(cache.blocks.reserve(b, 7, plan));
  ASSERT_EQ(plan.copies.size(), 1u);
  EXPECT_EQ(plan.copies[0].from, a.kv[0].blocks[1]);
  EXPECT_EQ(plan.copies[0].to, b.kv[0].blocks[1]);
  EXPECT_EQ(a.kv[0].blocks[0], b.kv[0].blocks[0]);
  ASSERT_TRUE(cache.blocks.reserve(a, 7, plan));  // its own again
  EXPECT_EQ(plan.copies.size(), 1u);
  cache.check({&a, &b});
}

TEST(SequenceBlocks, FallOutOfAWindow) {
  Cache cache({10, 10}, {0, 5});
  Sequence a = cache.sequence(20);
  cache.compute(a, 16);
  EXPECT_EQ(a.kv[0].first_block, 0);
  EXPECT_EQ(a.kv[1].first_block, 3);  // token 16 sees 12 … 16
  EXPECT_EQ(cache.blocks.allocator(1).n_available(), 9);
  cache.check({&a});
}

TEST(SequenceBlocks, OfGuessesThatWereWrongAreGivenBack) {
  Cache cache;
  Sequence a = cache.sequence(8);
  Plan plan;
  ASSERT_TRUE(cache.blocks.reserve(a, 17, plan));
  a.n_computed = 7;
  cache.blocks.trim(a);
  EXPECT_EQ(a.kv[0].blocks.size(), 2u);
}

TEST(PrefixSharing, FindsWhatWasPublished) {
  Cache cache;
  PrefixSharing sharing(cache.blocks, true);
  Sequence a = cache.sequence(12), b = cache.sequence(12, 2), c = cache.sequence(9, 3);
  cache.compute(a, 12, &sharing);
  sharing.match(b);
  EXPECT_EQ(b.n_computed, 8);  // one token is left to compute
  EXPECT_EQ(b.kv[0].blocks[1], a.kv[0].blocks[1]);
  c.tokens[5] = 99;
  sharing.match(c);
  EXPECT_EQ(c.n_computed, 4);
  cache.check({&a, &b, &c}, &sharing);
}

TEST(PrefixSharing, IsForThoseWhoWantIt) {
  Cache cache;
  PrefixSharing sharing(cache.blocks, true), off(cache.blocks, false);
  Sequence a = cache.sequence(12), b = cache.sequence(12, 2), c = cache.sequence(12, 3);
  cache.compute(a, 12, &sharing);
  b.read_cache = false;
  sharing.match(b);
  off.match(c);
  EXPECT_EQ(b.n_computed + c.n_computed, 0);
}

TEST(PrefixSharing, WaitsForWhatAnotherOneComputes) {
  Cache cache;
  PrefixSharing sharing(cache.blocks, true);
  Sequence a = cache.sequence(12), b = cache.sequence(12, 2);
  Sequence* const running[] = {&a};
  sharing.claim(a);
  EXPECT_TRUE(sharing.is_coming(b, running));
  cache.compute(a, 12, &sharing);
  EXPECT_FALSE(sharing.is_coming(b, running));
  sharing.drop_claims(a);
  sharing.check_invariants(false, false);
}

TEST(PrefixSharing, DropsTheClaimsOfWhoLeavesBefore) {
  Cache cache;
  PrefixSharing sharing(cache.blocks, true);
  Sequence a = cache.sequence(12), b = cache.sequence(12, 2), other = cache.sequence(12, 3);
  for (TokenId& token : other.tokens) token += 50;
  Sequence* const running[] = {&other};
  sharing.claim(a);
  sharing.drop_claims(a);
  EXPECT_FALSE(sharing.is_coming(b, running));
  sharing.check_invariants(false, false);
}

TEST(PrefixSharing, CopiesTheBeginningOfTheBlockInWhichTwoPart) {
  Cache cache;
  PrefixSharing sharing(cache.blocks, true);
  Sequence a = cache.sequence(12), b = cache.sequence(12, 2);
  b.tokens[7] = 99;
  cache.compute(a, 12, &sharing);
  Sequence* const running[] = {&a};
  Plan plan;
  sharing.match(b);
  EXPECT_EQ(b.n_computed, 4);
  sharing.copy_start(b, running, plan);
  EXPECT_EQ(b.n_computed, 7);
  ASSERT_EQ(plan.copies.size(), 1u);
  EXPECT_EQ(plan.copies[0].from, a.kv[0].blocks[1]);
  cache.check({&a, &b}, &sharing);
}

TEST(PrefixSharing, KeepsThatBlockForOneWhoWaits) {
  Cache cache;
  PrefixSharing sharing(cache.blocks, true);
  WaitingQueue waiting;
  Sequence a = cache.sequence(12), b = cache.sequence(12, 2);
  b.tokens[7] = 99;
  cache.compute(a, 12, &sharing);
  EXPECT_FALSE(sharing.is_coming(b, std::vector<Sequence*>{&a}));  // knows its hashes now
  waiting.add(b);
  sharing.leave_block(a, waiting);
  cache.blocks.release(a);
  sharing.check_invariants(false, true);
  cache.check({}, &sharing);
  Plan plan;
  sharing.match(b);
  sharing.copy_start(b, {}, plan);
  EXPECT_EQ(b.n_computed, 7);
  cache.check({&b}, &sharing);
  EXPECT_TRUE(sharing.drop_leftovers());
  EXPECT_FALSE(sharing.drop_leftovers());
  sharing.check_invariants(false, false);
  cache.check({&b}, &sharing);
}

}  // namespace
}  // namespace penstock
