// Where requests go that several engines could take.
#include "engine/replicas/prefix_router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace penstock {
namespace {

using RouterLoad = PrefixRouter::Load;

std::vector<TokenId> tokens_of(int n, int first) {
  std::vector<TokenId> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

class Router : public ::testing::Test {
 protected:
  // The engine that is chosen, which then has the prompt in its cache.
  int send(const std::vector<TokenId>& tokens, std::vector<RouterLoad> loads = {},
           std::string_view salt = "") {
    loads.resize(3);
    const auto prefix = router.prefix_of(salt, tokens);
    const auto places = router.places(prefix, static_cast<int64_t>(tokens.size()), loads);
    EXPECT_EQ(places.size(), 3u);
    router.sent(places[0].engine, prefix);
    return places[0].engine;
  }
  PrefixRouter router{3, 16, 64};
};

TEST_F(Router, EqualOnesTakeTurns) {
  std::vector<int> n(3);
  for (int i = 0; i < 30; ++i) ++n[static_cast<size_t>(send(tokens_of(8, 100 * i)))];
  EXPECT_EQ(n, std::vector<int>(3, 10));
}

TEST_F(Router, WhoHasLeastToDo) {
  EXPECT_EQ(send(tokens_of(40, 0), {{0, 3}, {0, 1}, {0, 2}}), 1);
  EXPECT_EQ(send(tokens_of(40, 1000), {{500, 1}, {0, 4}, {900, 1}}), 1);
}

TEST_F(Router, APrefixGoesToItsCache) {
  std::vector<TokenId> longer = tokens_of(320, 7);
  const int first = send(tokens_of(300, 7));
  for (int i = 0; i < 10; ++i) {
    longer.push_back(5000 + i);
    EXPECT_EQ(send(longer), first);
    EXPECT_EQ(send(longer, {{0, first == 0}, {0, first == 1}, {0, first == 2}}), first)
        << "though others are idle";
  }
  const auto places = router.places(router.prefix_of("", longer), 330, std::vector<RouterLoad>(3));
  EXPECT_EQ(places[0].engine, first);
  EXPECT_EQ(places[0].tokens, 330 - 320);
  EXPECT_EQ(places[1].tokens, 330);
}

// 300 tokens are as much as some five sequences.
TEST_F(Router, UnlessOthersHaveMuchLessToDo) {
  std::vector<RouterLoad> loads(3);
  const int first = send(tokens_of(300, 7));
  for (RouterLoad& load : loads) load.sequences = 1;
  loads[static_cast<size_t>(first)].sequences = 5;
  EXPECT_EQ(send(tokens_of(300, 7), loads), first);
  loads[static_cast<size_t>(first)].sequences = 7;
  EXPECT_NE(send(tokens_of(300, 7), loads), first);
}

TEST_F(Router, SaltsAreApart) {
  const int first = send(tokens_of(300, 7));
  EXPECT_NE(send(tokens_of(300, 7), {}, "another"), first);
  EXPECT_EQ(send(tokens_of(300, 7)), first);
}

// 64 blocks of 16 tokens: who was used longest ago goes, from its end.
TEST_F(Router, KnowsAsMuchAsACacheHolds) {
  PrefixRouter one(1, 16, 64);
  const auto missing = [&](int n, int first) {
    return one.places(one.prefix_of("", tokens_of(n, first)), n, std::vector<RouterLoad>(1))[0]
        .tokens;
  };
  one.sent(0, one.prefix_of("", tokens_of(512, 0)));
  one.sent(0, one.prefix_of("", tokens_of(512, 10000)));
  EXPECT_EQ(missing(513, 0), 1);
  one.sent(0, one.prefix_of("", tokens_of(256, 20000)));
  EXPECT_EQ(missing(512, 0), 256);
  EXPECT_EQ(missing(513, 10000), 1);
  EXPECT_EQ(one.prefix_of("", tokens_of(100000, 0)).size(), 64u);
  one.forget();
  EXPECT_EQ(missing(513, 10000), 513);
}

}  // namespace
}  // namespace penstock
