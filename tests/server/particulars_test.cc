#include "server/replies/cache/particulars.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "server/replies/cache/meaning_index.h"

namespace penstock {
namespace {

bool same(std::string_view a, std::string_view b) {
  return agree(particulars_of(a), particulars_of(b));
}

TEST(Particulars, ParaphrasesHaveTheSame) {
  EXPECT_TRUE(same("What is the capital of France?", "Tell me the capital of France."));
  EXPECT_TRUE(same("How do I learn to cook rice?", "how can i learn cooking rice"));
  EXPECT_TRUE(same("What's the weather like?", "What is the weather like?"));
  EXPECT_TRUE(same("Why isn't it working?", "Why is it not working?"));
  EXPECT_TRUE(same("What does “tide” mean?", "What does \"tide\" mean?"));
  EXPECT_TRUE(same("Add 1,000 and 3.", "add 1000 and three"));
  EXPECT_TRUE(same("What is Anna's plan?", "What is the plan of Anna?"));
}

// Quotations that do not end, and names that are all different.
TEST(Particulars, LongTextsTakeLinearTime) {
  std::string quotes, names;
  for (int i = 0; i < 200'000; ++i) {
    quotes += " 'a";
    names += fmt::format(" x{}", i);
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(particulars_of(quotes).quoted.empty());
  EXPECT_EQ(particulars_of(names + names).names.size(), 200'000u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST(Particulars, QuotationsEndAtTheNextMark) {
  const std::vector<std::string> quoted = {"it isn't", "b", "c"};
  EXPECT_EQ(particulars_of("say 'it isn't' and \"b\" or `c` don't \" say").quoted, quoted);
}

TEST(Particulars, NumbersCount) {
  EXPECT_FALSE(same("What is 3 + 4?", "What is 3 + 5?"));
  EXPECT_FALSE(same("What is 3 + 4?", "What is 3 - 4?"));
  EXPECT_FALSE(same("What is 3 * 4?", "What is 3 + 4?"));
  EXPECT_FALSE(same("Is 5 larger than 7?", "Is 7 larger than 5?"));
  EXPECT_FALSE(same("Tell two jokes.", "Tell three jokes."));
  EXPECT_FALSE(same("The war of 1812", "The war of 1912"));
  EXPECT_FALSE(same("A 3.5 inch disk", "A 35 inch disk"));
  EXPECT_FALSE(same("the 2nd law", "the 3rd law"));
  EXPECT_FALSE(same("the second law", "the third law"));
  EXPECT_FALSE(same("It costs $5.", "It costs 5 euros."));
}

TEST(Particulars, NamesCount) {
  EXPECT_FALSE(same("What is the capital of France?", "What is the capital of Spain?"));
  EXPECT_FALSE(same("what is the capital of france", "what is the capital of spain"));
  EXPECT_FALSE(same("Fly from Paris to London", "Fly from London to Paris"));
  EXPECT_FALSE(same("Paris is where?", "London is where?"));
  EXPECT_FALSE(same("Write it in C++.", "Write it in C#."));
  EXPECT_FALSE(same("Write it in python", "Write it in java"));
  EXPECT_FALSE(same("Who was Mary?", "Who was Mary Smith?"));
  EXPECT_FALSE(same("What did US do?", "What did us do?"));
  EXPECT_FALSE(same("the file a_b.txt", "the file a_c.txt"));
  EXPECT_FALSE(same("Was ist ein Löwe?", "Was ist ein Bär?"));
  EXPECT_FALSE(same("什么是猫", "什么是狗"));
}

TEST(Particulars, TheOrderOfCommonWordsCounts) {
  EXPECT_FALSE(same("How many dollars is a pound?", "How many pounds is a dollar?"));
  EXPECT_FALSE(same("The dog bites the man.", "The man bites the dog."));
  EXPECT_FALSE(
      same("Mary has a cat. Does Peter like Mary?", "Mary has a cat. Does Mary like Peter?"));
  EXPECT_FALSE(same("Is water heavier than ice?", "Is ice heavier than water?"));
  EXPECT_TRUE(same("What is the main reason?", "Tell me what the principal reason is."));
  EXPECT_TRUE(
      same("How can I answer my boss?", "Please answer this question: how can I answer my boss?"));
  EXPECT_TRUE(same("What is Anna's plan?", "What is the plan of Anna?"));
}

TEST(Particulars, NegationsQuotationsAndOppositesCount) {
  EXPECT_FALSE(same("Is it good to run?", "Is it not good to run?"));
  EXPECT_FALSE(same("Why can I go?", "Why can't I go?"));
  EXPECT_FALSE(same("Cook it with salt.", "Cook it without salt."));
  EXPECT_FALSE(same("I never eat it.", "I eat it."));
  EXPECT_FALSE(same("What does \"tide\" mean?", "What does \"ride\" mean?"));
  EXPECT_FALSE(same("What does 'to be' mean?", "What does 'to see' mean?"));
  EXPECT_FALSE(same("What is `ls`?", "What is `cd`?"));
  EXPECT_FALSE(same("How do I open the door?", "How do I close the door?"));
  EXPECT_FALSE(same("What increases the price?", "What decreases the price?"));
  EXPECT_FALSE(same("Who is he?", "Who is she?"));
  EXPECT_FALSE(same("When was it found?", "Where was it found?"));
}

TEST(Particulars, ApostrophesAreNoQuotations) {
  EXPECT_TRUE(particulars_of("The dog's bone and the cat's milk").quoted.empty());
  EXPECT_THAT(particulars_of("say 'don't go' now").quoted, testing::ElementsAre("don't go"));
  EXPECT_THAT(particulars_of("an unfinished \"quotation").quoted, testing::IsEmpty());
}

RC_GTEST_PROP(Particulars, AnyTextHasItsOwn, (const std::string& text)) {
  RC_ASSERT(agree(particulars_of(text), particulars_of(text)));
}

std::vector<float> random_vector(uint32_t& state, size_t n) {
  std::vector<float> vector(n);
  float square = 0;
  for (float& one : vector) {
    state = state * 1664525 + 1013904223;
    one = static_cast<float>(state >> 8) / (1 << 24) - 0.5f;
    square += one * one;
  }
  for (float& one : vector) one /= std::sqrt(square);
  return vector;
}

// Against a search one by one, while vectors come and go and move into the graph.
TEST(MeaningIndex, FindsTheNearestAsASearchOfAllDoes) {
  constexpr size_t kDimensions = 24;
  MeaningIndex small(1 << 20), graph(50);
  uint32_t state = 7;
  std::vector<uint64_t> there;
  uint64_t last = 0;
  int n_same = 0, n_asked = 0;
  for (int round = 0; round < 3000; ++round) {
    if (round % 3 != 2 || there.size() < 20) {
      const auto vector = random_vector(state, kDimensions);
      small.add("s", ++last, vector);
      graph.add("s", last, vector);
      there.push_back(last);
    } else {
      const size_t at = state % there.size();
      small.remove("s", there[at]);
      graph.remove("s", there[at]);
      there.erase(there.begin() + static_cast<ptrdiff_t>(at));
    }
    if (round % 10 != 0) continue;
    const auto asked = random_vector(state, kDimensions);
    const auto right = small.nearest("s", asked, 3), found = graph.nearest("s", asked, 3);
    ASSERT_EQ(found.size(), std::min<size_t>(3, there.size()));
    for (const auto& one : found) ASSERT_TRUE(std::ranges::find(there, one.id) != there.end());
    ++n_asked;
    n_same += right[0].id == found[0].id ? 1 : 0;
    EXPECT_TRUE(graph.nearest("other", asked, 3).empty());
  }
  EXPECT_GE(n_same, n_asked * 95 / 100);
  for (const uint64_t id : there) graph.remove("s", id);
  EXPECT_TRUE(graph.nearest("s", random_vector(state, kDimensions), 3).empty());
}

}  // namespace
}  // namespace penstock
