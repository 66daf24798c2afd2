// What a grammar means for the engine: drafts, ends and contradictions.
#include <gmock/gmock.h>

#include "engine/engine_fixture.h"
#include "engine/letter_grammar.h"

namespace penstock {
namespace {

using testing::HasSubstr;

constexpr int kLetters = 27;  // one token per letter, and the end

FakeEngineConfig of_letters() {
  FakeEngineConfig config;
  config.vocab_size = kLetters;
  return config;
}

Request held_to(const std::string& expression, int max_tokens, uint64_t seed = 1,
                bool drafts = true) {
  Request request = request_of(prompt_of(5, static_cast<int>(seed), kLetters), max_tokens, seed);
  request.matcher = letter_grammar(expression, kLetters, drafts);
  return request;
}

const char* const kExpressions[] = {"(abba|b)+", "a{3,9}(b[a-z]){1,5}", "([ab]a)*",
                                    "[a-c]{2,6}(xyz){4}[a-c]*"};

// Nodes that the request's grammar has.
int n_allowed(const DraftRequest& request, const DraftTree& tree) {
  int n = 0;
  for (int node = 0; node < tree.size(); ++node) {
    std::vector<TokenId> path;
    for (int up = node; up >= 0; up = tree.parents[up]) path.insert(path.begin(), tree.tokens[up]);
    const auto matcher = request.state->matcher->fork();
    n += std::ranges::all_of(path, [&](TokenId token) { return matcher->append(token); });
  }
  return n;
}

TEST(Grammar, DraftsChangeNoText) {
  for (const int right : {0, 50, 100}) {
    for (const bool trees : {false, true}) {
      FakeEngineConfig config = of_letters();
      config.drafts = std::make_shared<DraftScript>();
      config.spec_length = 6;
      FakeEngine fake(config);
      RandomDrafts drafts(3, right, trees);
      int n_to_check = 0;
      config.drafts->propose = [&](const DraftRequest& request, DraftTree& tree) {
        drafts.fill(*fake.model, request, tree);
        n_to_check += n_allowed(request, tree);
      };
      std::vector<Request> requests;
      std::vector<std::shared_ptr<Collector>> sinks;
      for (const char* expression : kExpressions) {
        for (const float temperature : {0.0f, 1.0f}) {
          requests.push_back(held_to(expression, 40, requests.size(), false));
          requests.back().sampling.temperature = temperature;
          sinks.push_back(fake.submit(requests.back()));
        }
      }
      fake.run();
      for (size_t i = 0; i < requests.size(); ++i)
        EXPECT_EQ(sinks[i]->result.sequences[0].tokens, fake.expected(requests[i]))
            << i << " " << right;
      const Metrics metrics = fake.engine->metrics();
      // What the grammar does not have was not computed.
      EXPECT_EQ(metrics.spec_decode_num_draft_tokens.value, n_to_check);
      if (right < 100) {
        EXPECT_LT(n_to_check, config.drafts->n_proposed);
      }
    }
  }
}

TEST(Grammar, ForcedTextTakesFewerSteps) {
  const Request request = held_to("([ab](xyzxyzxyz)){6}", 100);
  FakeEngine plain(of_letters());
  const auto expected = plain.submit(request);
  plain.run();
  FakeEngineConfig config = of_letters();
  config.draft_forced = true;
  for (const int length : {0, 4}) {
    config.spec_length = length;
    FakeEngine drafting(config);
    const auto got = drafting.submit(request);
    drafting.run();
    EXPECT_EQ(got->result.sequences[0].tokens, expected->result.sequences[0].tokens);
    EXPECT_EQ(got->result.sequences[0].tokens.size(), 60u);
    EXPECT_EQ(plain.model->n_steps(), 60);
    EXPECT_LT(drafting.model->n_steps(), 30);
    EXPECT_GT(drafting.engine->metrics().grammar_forced_tokens.value, 30);
  }
}

TEST(Grammar, TextOfASequenceWithoutAGrammarIsNotDrafted) {
  FakeEngineConfig config = of_letters();
  config.draft_forced = true;
  FakeEngine fake(config);
  const Request request = request_of(prompt_of(5), 30);
  const auto sink = fake.submit(request);
  fake.run();
  EXPECT_EQ(sink->result.sequences[0].tokens, fake.expected(request));
  EXPECT_EQ(fake.engine->metrics().spec_decode_num_drafts.value, 0);
}

TEST(Grammar, NothingIsComputedBehindTheLastToken) {
  FakeEngine fake(of_letters());
  const auto sink = fake.submit(held_to("abc", 100));
  fake.run();
  const Collected::Sequence& text = sink->result.sequences[0];
  EXPECT_EQ(text.tokens, (std::vector<TokenId>{1, 2, 3}));
  EXPECT_EQ(text.finish, FinishReason::kStop);
  EXPECT_EQ(fake.model->n_steps(), 3);
}

TEST(Grammar, TextThatMayGoOnEndsAtMaxTokens) {
  FakeEngine fake(of_letters());
  const auto sink = fake.submit(held_to("(abcdef)+", 5));
  fake.run();
  EXPECT_EQ(sink->result.sequences[0].finish, FinishReason::kLength);
  EXPECT_EQ(sink->result.sequences[0].tokens.size(), 5u);
}

TEST(Grammar, WhatContradictsItFromTheBeginningIsRefused) {
  FakeEngine fake(of_letters());
  Request request = held_to("[ab]c", 10);
  request.sampling.banned_token_ids = {1, 2};
  const Status banned = fake.engine->check(request);
  ASSERT_FALSE(banned);
  EXPECT_EQ(banned.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(banned.error().message,
              HasSubstr("the grammar allows only tokens 1, 2, excluded by banned_token_ids"));
  request.sampling.banned_token_ids = {1};
  EXPECT_TRUE(fake.engine->check(request));
  request.sampling.allowed_token_ids = {1, 3};
  EXPECT_THAT(fake.engine->check(request).error().message,
              HasSubstr("excluded by allowed_token_ids and banned_token_ids"));
}

TEST(Grammar, WhatContradictsItLaterEndsThatRequestOnly) {
  FakeEngineConfig config = of_letters();
  for (const bool forced : {false, true}) {
    config.draft_forced = forced;
    FakeEngine fake(config);
    Request request = held_to("[ab]cd", 10);
    request.sampling.banned_token_ids = {4};
    const auto sink = fake.submit(request);
    const Request other = held_to("[ab]cd", 10, 7);
    const auto undisturbed = fake.submit(other);
    fake.run();
    const Collected::Sequence& text = sink->result.sequences[0];
    EXPECT_EQ(text.finish, FinishReason::kError);
    ASSERT_TRUE(text.error.has_value());
    EXPECT_EQ(text.error->code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(text.error->message,
                HasSubstr("the grammar allows only token 4, excluded by banned_token_ids"));
    EXPECT_EQ(undisturbed->result.sequences[0].tokens, fake.expected(other));
  }
}

}  // namespace
}  // namespace penstock
