#include "draft/ngram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "draft/drafters.h"

namespace penstock {
namespace {

// The longest agreement by looking at every place; the latest among equals.
NgramIndex::Match slow_find(std::span<const TokenId> text, int end,
                            std::span<const TokenId> context) {
  NgramIndex::Match best;
  for (int position = end - 1; position >= 0; --position) {
    int length = 0;
    while (length <= position && length < static_cast<int>(context.size()) && length < 64 &&
           text[position - length] == context[context.size() - 1 - length])
      ++length;
    if (length > best.length) best = {position + 1, length};
  }
  return best;
}

TEST(NgramIndex, FindsTheLongestAgreement) {
  std::mt19937 rng(1);
  for (int round = 0; round < 300; ++round) {
    const int vocab = 2 + static_cast<int>(rng() % 30), n = static_cast<int>(rng() % 60);
    std::vector<TokenId> text;
    NgramIndex index;
    for (int i = 0; i < n; ++i) {
      text.push_back(static_cast<TokenId>(rng() % vocab));
      if (rng() % 3 == 0) index.extend(text, std::max(0, i));  // in pieces, as a sequence grows
      if (index.end() == 0) continue;
      const NgramIndex::Match got = index.find(text, text),
                              expected = slow_find(text, index.end(), text);
      ASSERT_EQ(got.length, expected.length);
      ASSERT_EQ(got.next, expected.next);
    }
  }
}

// No target is needed without a corpus.
Result<std::unique_ptr<Drafter>> ngram_drafter() {
  DrafterConfig config;
  config.engine.spec = "ngram";
  return make_drafter(std::move(config), {});
}

TEST(NgramDrafter, GoesOnAsTheTextDidBefore) {
  const auto drafter = ngram_drafter();
  ASSERT_TRUE(drafter);
  const auto propose = [&](std::vector<TokenId> tokens, int most) {
    DraftTree tree;
    DraftRequest request;
    request.id = SeqId(tokens.size());
    request.tokens = tokens;
    request.max_nodes = most;
    (*drafter)->propose({&request, 1}, {&tree, 1});
    EXPECT_TRUE(tree.is_chain());
    return tree.tokens;
  };
  EXPECT_EQ(propose({1, 2, 3, 4, 5, 1, 2}, 3), (std::vector<TokenId>{3, 4, 5}));
  // The longer agreement wins over the later one.
  EXPECT_EQ(propose({7, 1, 2, 3, 9, 1, 2, 4, 7, 1, 2}, 2), (std::vector<TokenId>{3, 9}));
  // A repetition goes on with itself.
  EXPECT_EQ(propose({8, 5, 6, 5, 6}, 5), (std::vector<TokenId>{5, 6, 5, 6, 5}));
  EXPECT_EQ(propose({1, 2, 3, 4}, 5), std::vector<TokenId>());
  EXPECT_EQ(propose({1}, 5), std::vector<TokenId>());
}

TEST(NgramDrafter, ASingleTokenIsWorthAFewCheapGuesses) {
  const auto drafter = ngram_drafter();
  ASSERT_TRUE(drafter);
  const std::vector<TokenId> tokens = {4, 1, 2, 3, 9, 1};
  const auto n_proposed = [&](std::span<const float> checking) {
    const DraftPrices prices{checking};
    DraftRequest request;
    request.id = SeqId(1);
    request.tokens = tokens;
    request.max_nodes = 4;
    if (!checking.empty()) request.prices = &prices;
    DraftTree tree;
    (*drafter)->propose({&request, 1}, {&tree, 1});
    EXPECT_TRUE(tree.empty() || tree.tokens[0] == 2);
    return tree.size();
  };
  EXPECT_EQ(n_proposed({}), 0);
  EXPECT_EQ(n_proposed(std::array{0.0f, 0.3f, 0.6f, 0.9f, 1.2f}), 0);
  EXPECT_EQ(n_proposed(std::array{0.0f, 0.1f, 0.3f, 0.9f, 1.2f}), 1);
  // A second guess would follow an agreement of two tokens.
  EXPECT_EQ(n_proposed(std::array{0.0f, 0.1f, 0.15f, 0.9f, 1.2f}), 2);
}

constexpr std::array<float, 9> kFifths = {0, 0.2f, 0.4f, 0.6f, 0.8f, 1.0f, 1.2f, 1.4f, 1.6f};

// The step in which a repetition behind n_before different tokens is found, of those that repeat.
int found_after(int n_before, bool priced) {
  const auto drafter = ngram_drafter();
  std::vector<TokenId> tokens;
  const DraftPrices prices{kFifths};
  for (int step = 0; step < n_before + 20; ++step) {
    tokens.push_back(step < n_before ? step : step - n_before);
    DraftRequest request;
    request.id = SeqId(1);
    request.tokens = tokens;
    request.max_nodes = 4;
    if (priced) request.prices = &prices;
    DraftTree tree;
    (*drafter)->propose({&request, 1}, {&tree, 1});
    if (!tree.empty()) return step - n_before;
  }
  return -1;
}

TEST(NgramDrafter, LooksUpInEveryFourthStepWhereNothingRepeats) {
  std::vector<int> priced, always;
  for (const int n_before : {60, 61, 62, 63}) {
    priced.push_back(found_after(n_before, true));
    always.push_back(found_after(n_before, false));
  }
  EXPECT_THAT(always, testing::Each(1)) << "two tokens agree";
  EXPECT_THAT(priced, testing::UnorderedElementsAre(1, 2, 3, 4));
  EXPECT_EQ(found_after(6, true), 1) << "few lookups in vain";
}

TEST(NgramDrafter, GivesUpWhereItIsAlwaysWrong) {
  const auto drafter = ngram_drafter();
  ASSERT_TRUE(drafter);
  std::vector<TokenId> tokens = {1, 2, 3};
  int n_proposed = 0, n_late = 0;
  for (int i = 0; i < 200; ++i) {
    tokens.insert(tokens.end(), {1, 2});  // what follows is never what followed before
    DraftRequest request;
    request.id = SeqId(1);
    request.tokens = tokens;
    request.max_nodes = 8;
    const DraftPrices prices{kFifths};
    request.prices = &prices;
    DraftTree tree;
    (*drafter)->propose({&request, 1}, {&tree, 1});
    n_proposed += tree.size();
    if (i >= 100) n_late += tree.size();
    tokens.push_back(100 + i);
    const DraftOutcome outcome{request.id, tokens, 0, {}};
    (*drafter)->accepted({&outcome, 1});
  }
  EXPECT_GT(n_proposed, 0);
  EXPECT_LT(n_late, 12);
}

}  // namespace
}  // namespace penstock
