#include "sampling/sampler.h"
#include "sampling/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <random>

#include "kernels/philox.h"
#include "sampling/naive_sampler.h"
#include "sampling/validate.h"

namespace penstock {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> random_logits(int vocab, float spread, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> logits(vocab);
  for (float& x : logits) x = normal(rng);
  return logits;
}

std::shared_ptr<const SamplingSpec> spec_of(const SamplingParams& params, const naive::Context& c,
                                            uint64_t seed, int vocab) {
  return SamplingSpec::make(
      params, {c.end_ids, c.bad_words, {c.dry_breakers.begin(), c.dry_breakers.end()}, nullptr},
      seed, vocab);
}

SamplerState state_of(std::shared_ptr<const SamplingSpec> spec, const naive::Context& c) {
  SamplerState state(std::move(spec), 0, std::span(c.tokens).first(c.n_prompt), 100);
  for (size_t i = c.n_prompt; i < c.tokens.size(); ++i) state.append(c.tokens[i]);
  return state;
}

// Upper 1e-6 quantile of chi-square, by Wilson and Hilferty.
double chi_square_limit(int df) {
  const double z = 4.7534, a = 2.0 / (9.0 * df);
  return df * std::pow(1 - a + z * std::sqrt(a), 3);
}

// Draws n tokens, each with its own seed, and compares the counts with the exact distribution.
void expect_distribution(const std::vector<float>& logits, const SamplingParams& params,
                         const naive::Context& c, int n = 20000) {
  const naive::Dist exact = naive::next_token(logits, params, c);
  std::map<TokenId, int> counts;
  Sampler sampler;
  std::vector<TokenLogprob> alternatives;
  for (int i = 0; i < n; ++i) {
    SamplerState state =
        state_of(spec_of(params, c, mix_seed(17, i), static_cast<int>(logits.size())), c);
    std::vector<float> row = logits;
    const SampleResult sampled = sampler.sample({state, c.tokens, c.n_prompt}, row, alternatives);
    ASSERT_TRUE(exact.contains(sampled.token)) << "impossible token " << sampled.token;
    ++counts[sampled.token];
  }
  double chi = 0, rest_expected = 0, rest_seen = 0;
  int bins = 0;
  for (const auto& [token, p] : exact) {
    const double expected = p * n, seen = counts[token];
    if (expected < 8) {
      rest_expected += expected;
      rest_seen += seen;
      continue;
    }
    chi += (seen - expected) * (seen - expected) / expected;
    ++bins;
  }
  if (rest_expected >= 8) {
    chi += (rest_seen - rest_expected) * (rest_seen - rest_expected) / rest_expected;
    ++bins;
  } else {
    EXPECT_LE(rest_seen, rest_expected + 30);
  }
  if (bins < 2) return;
  EXPECT_LT(chi, chi_square_limit(bins - 1)) << "bins " << bins;
}

// The token that follows.
TokenId with_budget(const ThinkingBudget& budget, std::vector<TokenId> tokens, int n_prompt) {
  SamplingParams params;
  params.temperature = 0;
  params.banned_token_ids = {8};
  SamplerState state(SamplingSpec::make(params, {{}, {}, {}, nullptr, budget}, 1, 12), 0, {}, 100);
  std::vector<float> logits(12, 0);
  logits[3] = 1;
  std::vector<TokenLogprob> none;
  return Sampler().sample({state, tokens, n_prompt}, logits, none).token;
}

// The same with a budget of `n` tokens for reasoning between 7 and 8 9.
TokenId with_budget(int n, bool inside, std::vector<TokenId> tokens, int n_prompt) {
  return with_budget({n, {7}, {8, 9}, inside}, std::move(tokens), n_prompt);
}

TEST(Sampler, MarksOfReasoningMayRunTogetherWithTheTextAroundThem) {
  // 5 and 10 stand for 6 and 7 where text is in front or behind, 1 and 2 for 8 and 9.
  const auto open = std::make_shared<MarkEdges>(MarkEdges{{5, 6}, {7, 10}});
  const auto close = std::make_shared<MarkEdges>(MarkEdges{{1, 8}, {2, 9}});
  const ThinkingBudget budget{2, {6, 11, 7}, {8, 11, 9}, false, open, close};
  const std::vector<std::pair<std::vector<TokenId>, TokenId>> cases = {
      {{0, 6, 11, 10, 4, 4}, 8},                 // spent
      {{0, 5, 11, 7, 4, 4}, 8},                  // likewise
      {{0, 5, 11, 10, 4, 1}, 11},                // the model has begun to close
      {{0, 5, 11, 10, 4, 4, 8, 11, 9}, 3},       // closed by the budget
      {{0, 6, 11, 7, 1, 11, 2, 4}, 3},           // closed by the model
      {{0, 6, 11, 7, 1, 11, 2, 4, 4, 4, 4}, 3},  // what follows
      {{0, 6, 5, 7, 4, 4, 4}, 3},                // inside of a mark only its own tokens
  };
  for (const auto& [tokens, expected] : cases) {
    EXPECT_EQ(with_budget(budget, tokens, 1), expected) << testing::PrintToString(tokens);
  }
}

TEST(Sampler, TheBudgetForReasoningForcesItsEnd) {
  const std::vector<std::pair<std::vector<TokenId>, TokenId>> cases = {
      {{1, 7, 4}, 3},              // one of two
      {{1, 7, 4, 5}, 8},           // spent
      {{1, 7, 4, 5, 8}, 9},        // half closed
      {{1, 7, 4, 5, 8, 9}, 3},     // closed
      {{1, 7, 4, 5, 8, 9, 7}, 3},  // what is said of it afterwards
      {{1, 7, 4, 8}, 9},           // the model has begun to close by itself
      {{1, 7, 8, 9, 4}, 3},        // and has closed
      {{1, 4, 4, 4, 4}, 3},        // no reasoning
      {{1, 4, 7, 4, 4}, 8},
  };
  for (const auto& [tokens, expected] : cases) {
    EXPECT_EQ(with_budget(2, false, tokens, 1), expected) << testing::PrintToString(tokens);
  }
  EXPECT_EQ(with_budget(2, true, {7, 4}, 1), 3);
  EXPECT_EQ(with_budget(2, true, {7, 4, 4}, 1), 8);
  EXPECT_EQ(with_budget(0, true, {7}, 1), 8);
  EXPECT_EQ(with_budget(0, true, {7, 8}, 1), 9);
  EXPECT_EQ(with_budget(0, false, {7, 4, 4}, 1), 3);  // the prompt's is no reasoning of the reply
}

struct Case {
  const char* name;
  SamplingParams params;
};

std::vector<Case> distribution_cases() {
  std::vector<Case> cases = {{"plain", {}}, {"cold", {}}, {"hot", {}}};
  cases[1].params.temperature = 0.4f;
  cases[2].params.temperature = 1.7f;
  const auto add = [&](const char* name, auto edit) {
    Case c{name, {}};
    c.params.max_tokens = 100;
    edit(c.params);
    cases.push_back(c);
  };
  using P = SamplingParams;
  add("top_k", [](P& p) { p.top_k = 7; });
  add("top_k_large", [](P& p) { p.top_k = 35; });
  add("top_p", [](P& p) { p.top_p = 0.7f; });
  add("top_p_wide", [](P& p) { p.top_p = 0.99f, p.temperature = 1.5f; });
  add("min_p", [](P& p) { p.min_p = 0.1f; });
  add("typical", [](P& p) { p.typical_p = 0.6f; });
  add("repetition", [](P& p) { p.repetition_penalty = 1.5f; });
  add("presence", [](P& p) { p.presence_penalty = 1.2f; });
  add("frequency", [](P& p) { p.frequency_penalty = -0.7f; });
  for (const auto& [name, n] : {std::pair{"penalties_of_none", 0},
                                {"penalties_of_the_last", 1},
                                {"penalties_of_the_last_3", 3},
                                {"penalties_of_the_last_1000", 1000}}) {
    add(name, [n = n](P& p) {
      p.repetition_penalty = 1.4f, p.presence_penalty = 0.5f, p.frequency_penalty = 0.3f;
      p.penalty_last_n = n;
    });
  }
  add("penalties", [](P& p) {
    p.repetition_penalty = 0.8f, p.presence_penalty = 0.5f, p.frequency_penalty = 0.3f;
  });
  add("dry", [](P& p) { p.dry_multiplier = 0.8f, p.dry_allowed_length = 1; });
  add("xtc", [](P& p) { p.xtc_probability = 0.5f, p.xtc_threshold = 0.05f; });
  add("xtc_always",
      [](P& p) { p.xtc_probability = 1.0f, p.xtc_threshold = 0.1f, p.temperature = 0.6f; });
  add("mirostat_1", [](P& p) { p.mirostat = 1, p.mirostat_tau = 1.5f; });
  add("mirostat_2", [](P& p) { p.mirostat = 2, p.mirostat_tau = 1.2f; });
  add("bias", [](P& p) { p.logit_bias = {{3, 4.0f}, {5, -500.0f}, {9, 1.0f}}; });
  add("allowed", [](P& p) { p.allowed_token_ids = {1, 4, 9, 16, 25, 31, 32, 39}; });
  add("banned", [](P& p) { p.banned_token_ids = {0, 2, 11}; });
  add("many_banned", [](P& p) {  // a mask, beside another one
    for (TokenId token = 0; token < 80; ++token) p.banned_token_ids.push_back(token % 37);
    p.allowed_token_ids = {1, 36, 37, 38, 39};
  });
  add("bad_words", [](P&) {});
  add("min_tokens", [](P& p) { p.min_tokens = 50; });
  add("k_p", [](P& p) { p.top_k = 12, p.top_p = 0.8f; });
  add("min_k_p_typical",
      [](P& p) { p.min_p = 0.02f, p.top_k = 20, p.top_p = 0.9f, p.typical_p = 0.8f; });
  add("p_xtc", [](P& p) { p.top_p = 0.9f, p.xtc_probability = 0.3f, p.xtc_threshold = 0.08f; });
  add("k_xtc", [](P& p) { p.top_k = 9, p.xtc_probability = 0.7f, p.xtc_threshold = 0.1f; });
  add("everything", [](P& p) {
    p.temperature = 1.3f, p.min_p = 0.01f, p.top_k = 25, p.top_p = 0.95f, p.typical_p = 0.9f;
    p.repetition_penalty = 1.1f, p.presence_penalty = 0.4f, p.frequency_penalty = 0.2f,
    p.dry_multiplier = 0.5f;
    p.dry_allowed_length = 1, p.xtc_probability = 0.4f, p.xtc_threshold = 0.1f,
    p.logit_bias = {{7, 1.0f}};
    p.banned_token_ids = {8}, p.min_tokens = 20;
  });
  return cases;
}

class Distribution : public ::testing::TestWithParam<int> {};

TEST_P(Distribution, MatchesTheExactOne) {
  const Case c = distribution_cases()[GetParam()];
  naive::Context context;
  context.tokens = {5, 6, 7, 8, 9, 3, 5, 6, 7, 10, 2, 5, 6};
  context.n_prompt = 5;
  context.end_ids = {2, 7};
  if (std::string(c.name) == "bad_words") context.bad_words = {{1}, {6, 4}, {5, 6, 3}, {6, 5, 0}};
  context.dry_breakers = {9};
  expect_distribution(random_logits(40, 1.5f, 5), c.params, context);
}

TEST_P(Distribution, MatchesTheExactOneOnALargeVocabulary) {
  const Case c = distribution_cases()[GetParam()];
  naive::Context context;
  context.tokens = {5, 6, 7, 8, 9, 3, 5, 6, 7, 10, 2, 5, 6};
  context.n_prompt = 5;
  context.end_ids = {2, 7};
  expect_distribution(random_logits(6007, 2.5f, 6), c.params, context, 2000);
}

INSTANTIATE_TEST_SUITE_P(Steps, Distribution,
                         ::testing::Range(0, static_cast<int>(distribution_cases().size())),
                         [](const auto& info) { return distribution_cases()[info.param].name; });

// Every filter must keep exactly the specified tokens, whichever of its paths a vocabulary takes.
TEST(Filters, KeepExactlyTheSpecifiedTokens) {
  std::mt19937 rng(3);
  for (int round = 0; round < 300; ++round) {
    const int vocab = std::uniform_int_distribution<int>(1, round % 3 == 0 ? 20000 : 200)(rng);
    std::vector<float> logits =
        random_logits(vocab, std::uniform_real_distribution<float>(0.01f, 6.0f)(rng), rng());
    SamplingParams params;
    if (rng() % 2) params.top_k = 1 + static_cast<int>(rng() % vocab);
    if (rng() % 2) params.top_p = std::uniform_real_distribution<float>(0.05f, 0.999f)(rng);
    if (rng() % 4 == 0) params.min_p = std::uniform_real_distribution<float>(0.0001f, 1.0f)(rng);
    if (rng() % 4 == 0) params.typical_p = std::uniform_real_distribution<float>(0.05f, 0.99f)(rng);
    const naive::Dist exact = naive::next_token(logits, params, {});
    Candidates candidates;
    ASSERT_TRUE(candidates.reset(logits, params.temperature));
    SamplerState state = state_of(spec_of(params, {}, 0, vocab), {});
    const SampleRow row{.min_p = params.min_p, .top_k = params.top_k, .top_p = params.top_p};
    StepContext context{.state = &state, .row = &row, .candidates = &candidates};
    for (const SamplerStep& step : filter_steps()) {
      if (step.active(context)) step.apply(context);
    }
    // A token at the boundary may go either way by rounding: at most one.
    EXPECT_NEAR(candidates.size(), static_cast<int>(exact.size()), 1) << "vocabulary " << vocab;
    for (const Candidate& c : candidates.peek_top(vocab)) {
      const auto found = exact.find(c.id);
      const double p = found == exact.end() ? 0 : found->second;
      if (p > 0 && candidates.size() == static_cast<int>(exact.size())) {
        EXPECT_NEAR(c.w / candidates.total(), p, 1e-5 + 1e-4 * p);
      }
    }
  }
}

// Of each token, the longest repeat before it: every place is compared with the end.
std::map<TokenId, int32_t> naive_repeats(const std::vector<TokenId>& t,
                                         const std::vector<TokenId>& breakers, int min_length) {
  std::map<TokenId, int32_t> longest;
  for (size_t end = 1; end < t.size(); ++end) {
    int32_t length = 0;
    while (static_cast<size_t>(length) < end && t[end - 1 - length] == t[t.size() - 1 - length] &&
           !std::binary_search(breakers.begin(), breakers.end(), t[end - 1 - length]))
      ++length;
    if (length >= min_length) longest[t[end]] = std::max(longest[t[end]], length);
  }
  return longest;
}

TEST(Repeats, AreThoseOfTheDefinition) {
  std::mt19937 rng(12);
  RepeatFinder finder;  // one for all: nothing may stay behind
  for (int round = 0; round < 3000; ++round) {
    const int alphabet = 1 + static_cast<int>(rng() % 5), n = static_cast<int>(rng() % 400);
    std::vector<TokenId> tokens, breakers;
    for (int i = 0; i < n; ++i) {
      const bool repeats = i > 0 && rng() % 8 != 0;  // mostly what stood some tokens before
      const size_t back = 1 + rng() % (rng() % 4 != 0 ? 3 : 70);
      tokens.push_back(repeats && back <= tokens.size()
                           ? tokens[tokens.size() - back]
                           : static_cast<TokenId>(1000 * (rng() % alphabet)));
    }
    if (rng() % 3 == 0) breakers = {static_cast<TokenId>(1000 * (rng() % alphabet))};
    const int min_length = 1 + static_cast<int>(rng() % 4);
    std::map<TokenId, int32_t> found;
    for (const Repeat& repeat : finder.find(tokens, breakers, min_length))
      EXPECT_TRUE(found.emplace(repeat.next, repeat.length).second) << "round " << round;
    EXPECT_EQ(found, naive_repeats(tokens, breakers, min_length)) << "round " << round;
  }
}

// Contexts in which everything repeats; quadratic work would take minutes.
TEST(Repeats, TakeLinearWorkHoweverMuchRepeats) {
  constexpr int kTokens = 2'000'000;
  RepeatFinder finder;
  for (const int period : {1, 2, 1000}) {
    std::vector<TokenId> tokens;
    for (int i = 0; i < kTokens; ++i) tokens.push_back(i % period);
    const auto repeats = finder.find(tokens, {}, 2);
    ASSERT_EQ(repeats.size(), 1U);
    EXPECT_EQ(repeats[0].next, kTokens % period);
    EXPECT_EQ(repeats[0].length, kTokens - period);
  }
}

// The values of the edits, to the bit.
TEST(Dry, PenalizesEachTokenOnceByItsLongestRepeat) {
  naive::Context c;
  c.tokens = {5, 6, 7, 8, 9, 3, 5, 6, 7, 10, 2, 7, 8, 5, 6, 7};
  c.n_prompt = 3;
  SamplingParams params;
  params.dry_multiplier = 0.8f;
  params.dry_allowed_length = 1;
  std::vector<float> logits(16, 1.0f);
  SamplerState state = state_of(spec_of(params, c, 0, 16), c);
  Sampler().edit_logits({state, c.tokens, c.n_prompt}, logits);
  for (TokenId token = 0; token < 16; ++token) {
    // "5 6 7" stood before 8 and before 10, "7" before 8 once more.
    const bool repeats = token == 8 || token == 10;
    const float expected = 1.0f + (repeats ? -(0.8f * std::pow(params.dry_base, 2.0f)) : 0.0f);
    EXPECT_EQ(logits[token], expected) << token;
  }
}

TEST(Dry, MatchesTheNaiveDefinition) {
  std::mt19937 rng(11);
  for (int round = 0; round < 2000; ++round) {
    const int alphabet = 2 + static_cast<int>(rng() % 4), n = 1 + static_cast<int>(rng() % 40);
    naive::Context c;
    for (int i = 0; i < n; ++i) c.tokens.push_back(static_cast<TokenId>(rng() % alphabet));
    c.n_prompt = n;
    if (rng() % 2) c.dry_breakers = {static_cast<TokenId>(rng() % alphabet)};
    SamplingParams params;
    params.dry_multiplier = 0.5f;
    params.dry_base = 1.5f;
    params.dry_allowed_length = 1 + static_cast<int>(rng() % 3);
    params.dry_penalty_last_n = rng() % 2 ? -1 : static_cast<int>(rng() % (n + 3));
    std::vector<float> logits(alphabet, 0.0f);
    SamplerState state = state_of(spec_of(params, c, 0, alphabet), c);
    Sampler().edit_logits({state, c.tokens, c.n_prompt}, logits);
    std::map<TokenId, double> expected = naive::dry_penalties(params, c);
    for (TokenId token = 0; token < alphabet; ++token) {
      EXPECT_NEAR(logits[token], -expected[token], 1e-4 * (1 + expected[token]))
          << "round " << round;
    }
  }
}

TEST(Dry, StaysFiniteOnEndlessRepeats) {
  naive::Context c;
  c.tokens.assign(5000, 3);
  c.n_prompt = 5000;
  SamplingParams params;
  params.dry_multiplier = 1.0f;
  SamplerState state = state_of(spec_of(params, c, 0, 10), c);
  std::vector<float> row(10, 1.0f);
  std::vector<TokenLogprob> none;
  EXPECT_NE(Sampler().sample({state, c.tokens, c.n_prompt}, row, none).token, 3);
  EXPECT_GT(row[3], -kInf);
}

TEST(Mirostat, FollowsTheDefinitionOverManySteps) {
  for (const int version : {1, 2}) {
    SamplingParams params;
    params.mirostat = version;
    params.mirostat_tau = 3.0f;
    params.mirostat_eta = 0.1f;
    SamplerState state = state_of(spec_of(params, {}, 99, 500), {});
    double mu = 2 * params.mirostat_tau, mean = 0;
    std::vector<TokenId> tokens;
    Sampler sampler;
    std::vector<TokenLogprob> none;
    const int steps = 400;
    for (int i = 0; i < steps; ++i) {
      const std::vector<float> logits = random_logits(500, 2.0f, 1000 + i);
      std::vector<float> row = logits;
      const TokenId token = sampler.sample({state, tokens, 0}, row, none).token;
      const naive::Dist base = naive::softmax({logits.begin(), logits.end()}, 1.0);
      ASSERT_TRUE(naive::mirostat(base, version, mu).contains(token))
          << "version " << version << " step " << i << " surprise " << -std::log2(base.at(token))
          << " mu " << mu;
      const double surprise = -std::log2(base.at(token));
      mu -= params.mirostat_eta * (surprise - params.mirostat_tau);
      ASSERT_NEAR(state.mirostat_mu, mu, 1e-2);
      mu = state.mirostat_mu;
      mean += surprise / steps;
      tokens.push_back(token);
    }
    EXPECT_NEAR(mean, params.mirostat_tau, 0.3) << "version " << version;
  }
}

TEST(Greedy, TakesTheLowestIdOfTheLargest) {
  SamplingParams params;
  params.temperature = 0;
  SamplerState state = state_of(spec_of(params, {}, 0, 100), {});
  std::vector<float> row(100, 0.5f);
  row[70] = row[41] = 2.0f;
  std::vector<TokenLogprob> none;
  EXPECT_EQ(Sampler().sample({state, {}, 0}, row, none).token, 41);
}

TEST(Sampler, ReportsLogitsThatAllowNoToken) {
  SamplingParams greedy, sampled;
  greedy.temperature = 0;
  std::vector<TokenLogprob> none;
  for (const SamplingParams& params : {greedy, sampled}) {
    for (const float value : {-kInf, kInf, std::numeric_limits<float>::quiet_NaN()}) {
      SamplerState state = state_of(spec_of(params, {}, 0, 70), {});
      std::vector<float> row(70, value);
      EXPECT_EQ(Sampler().sample({state, {}, 0}, row, none).token, kNoToken) << value;
    }
    SamplerState state = state_of(spec_of(params, {}, 0, 70), {});
    std::vector<float> row(70, std::numeric_limits<float>::quiet_NaN());
    row[33] = 1.0f;
    EXPECT_EQ(Sampler().sample({state, {}, 0}, row, none).token, 33);
  }
}

TEST(Sampler, TheSeedAloneDecides) {
  SamplingParams params;
  const std::vector<float> logits = random_logits(1000, 1.0f, 1);
  const auto draw = [&](uint64_t seed, uint32_t index, std::vector<TokenId> tokens) {
    SamplerState state(spec_of(params, {}, seed, 1000), index, {}, 10);
    std::vector<float> row = logits;
    std::vector<TokenLogprob> none;
    return Sampler().sample({state, tokens, 0}, row, none).token;
  };
  std::set<TokenId> tokens;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    EXPECT_EQ(draw(seed, 0, {}), draw(seed, 0, {}));
    tokens.insert(draw(seed, 0, {}));
    tokens.insert(draw(seed, 1, {}));
    tokens.insert(draw(seed, 0, {1}));
  }
  EXPECT_GT(tokens.size(), 75u);
}

// The i-th token is i modulo 7; the output may end after every second one.
class ModuloSeven : public TokenMatcher {
 public:
  void fill_mask(std::span<uint32_t> mask) override {
    for (size_t token = 1; token < mask.size() * 32; ++token) {
      if (token % 7 == n_ % 7) mask[token / 32] |= 1u << (token % 32);
    }
    if (complete()) mask[0] |= 1;
  }
  bool append(TokenId token) override {
    if (static_cast<size_t>(token) % 7 != n_ % 7) return false;
    ++n_;
    return true;
  }
  void rollback(int n) override { n_ -= static_cast<size_t>(n); }
  bool complete() const override { return n_ % 2 == 0; }
  std::unique_ptr<TokenMatcher> fork() const override {
    return std::make_unique<ModuloSeven>(*this);
  }

 private:
  size_t n_ = 0;
};

std::shared_ptr<const SamplingSpec> modulo_seven(const SamplingParams& params, int vocab) {
  return SamplingSpec::make(params, {.matcher = std::make_unique<ModuloSeven>()}, 4, vocab);
}

TEST(Grammar, IsObeyedBesideOtherMasks) {
  SamplingParams params;
  for (TokenId token = 0; token < 100; token += 2) params.allowed_token_ids.push_back(token);
  std::vector<TokenLogprob> none;
  for (int i = 0; i < 50; ++i) {
    SamplerState state(modulo_seven(params, 100), 0, {}, 10);
    for (int n = 0; n < 9; ++n) {
      std::vector<float> row = random_logits(100, 3.0f, i);
      const TokenId token = Sampler().sample({state, {}, 0}, row, none).token;
      EXPECT_TRUE(token % 7 == n % 7 || (token == 0 && n % 2 == 0)) << token;
      EXPECT_EQ(token % 2, 0);
      EXPECT_TRUE(state.append(n % 7));
    }
  }
}

TEST(Grammar, ForbiddenNodesAreCutOffTrees) {
  ModuloSeven matcher;
  ASSERT_TRUE(matcher.append(7));  // 1, 8, … come next, then 2, 9, …
  DraftTree tree;
  for (const auto& [token, parent] : std::vector<std::pair<TokenId, int>>{
           {1, -1}, {2, -1}, {9, 0}, {3, 1}, {8, -1}, {10, 2}, {4, 2}, {2, 4}, {11, 5}}) {
    tree.add(token, parent);
  }
  prune_forbidden(tree, matcher);
  EXPECT_EQ(tree.tokens, (std::vector<TokenId>{1, 9, 8, 10, 2, 11}));
  EXPECT_EQ(tree.parents, (std::vector<int16_t>{-1, 0, -1, 1, 2, 3}));
  EXPECT_TRUE(matcher.append(8));  // it stands where it stood
}

// The node that was drawn and is forbidden has to be checked, what is behind it does not.
TEST(Grammar, ADrawnChainKeepsItsFirstForbiddenNode) {
  ModuloSeven matcher;
  DraftTree tree;
  for (const TokenId token : {7, 8, 3, 10}) {
    tree.add_next(token);
    tree.drawn_from.push_back({{token, 1.0f}});
  }
  prune_forbidden(tree, matcher);
  EXPECT_EQ(tree.tokens, (std::vector<TokenId>{7, 8, 3}));
  EXPECT_EQ(tree.drawn_from.size(), 3u);
}

TEST(Grammar, FollowsHypothesesAndForks) {
  SamplerState state(modulo_seven({}, 100), 0, {}, 10);
  EXPECT_FALSE(state.append(1));
  EXPECT_TRUE(state.append(7));
  SamplerState other = state.fork(1);
  EXPECT_EQ(other.index, 1u);
  {
    Hypothesis hypothesis(state);
    EXPECT_TRUE(hypothesis.append(1));
    EXPECT_FALSE(hypothesis.append(1));
    EXPECT_TRUE(hypothesis.append(2));
  }
  EXPECT_FALSE(state.append(2));
  EXPECT_TRUE(state.append(8));
  EXPECT_FALSE(other.append(9));
  EXPECT_TRUE(other.append(1));
  state.remove(8);
  EXPECT_TRUE(state.append(1));
}

// What a device is given: the same draw, bit for bit, from the plain data alone.
TEST(SampleRow, SaysAllThatThereIsToADraw) {
  constexpr int kVocab = 300;
  naive::Context c{.tokens = {1, 4, 9, 16, 4, 9, 16, 25, 4, 9}, .n_prompt = 4, .end_ids = {2, 3}};
  c.bad_words = {{4, 9, 50}, {51}};
  c.dry_breakers = {25};
  int n_described = 0;
  for (Case& each : distribution_cases()) {
    each.params.logprobs = 3;
    const auto spec = spec_of(each.params, c, 5, kVocab);
    if (!Sampler::row_says_all(*spec)) continue;
    ++n_described;
    Sampler sampler;
    LogitEdits edits;
    for (uint64_t seed = 0; seed < 3000; ++seed) {
      SamplerState state = state_of(spec_of(each.params, c, seed, kVocab), c);
      std::vector<float> row = random_logits(kVocab, 2.0f, static_cast<uint32_t>(seed % 50)),
                         same = row;
      SampleRow described = sampler.describe({state, c.tokens, c.n_prompt}, edits);
      std::vector<TokenLogprob> top, expected_top;
      top.resize(static_cast<size_t>(described.n_top));
      described.top = top.data();
      const SampleResult expected =
          sampler.sample({state, c.tokens, c.n_prompt}, same, expected_top);
      // sample() has its own edits
      described = sampler.describe({state, c.tokens, c.n_prompt}, edits);
      described.top = top.data();
      const SampleResult got = sampler.draw(described, row);
      ASSERT_EQ(got.token, expected.token) << each.name << " " << seed;
      ASSERT_EQ(got.logprob, expected.logprob);
      ASSERT_EQ(got.rank, expected.rank);
      ASSERT_EQ(got.n_top, expected.n_top);
      for (size_t i = 0; i < expected_top.size(); ++i)
        ASSERT_EQ(top[i].token, expected_top[i].token);
    }
  }
  EXPECT_GT(n_described, 15);
}

// With the logits of the tokens that a draw says it needs and nothing of the others it is the same
// draw, whatever ties there are.
TEST(Sampler, DrawsTheSameFromWhatItNeeds) {
  std::mt19937 rng(11);
  int n_few = 0;
  for (int round = 0; round < 600; ++round) {
    const int vocab = round % 3 == 0 ? 100 : round % 3 == 1 ? 3000 : 40000;
    SamplingParams params;
    params.temperature = rng() % 3 == 0 ? 0.0f : 0.3f + static_cast<float>(rng() % 20) / 10;
    params.top_k = static_cast<int>(rng() % 4 == 0 ? 0 : 1 + rng() % 60);
    params.top_p = rng() % 2 == 0 ? 1.0f : 0.8f;
    params.typical_p = rng() % 4 == 0 ? 0.7f : 1.0f;
    params.xtc_probability = rng() % 4 == 0 ? 0.9f : 0.0f;
    params.min_p = rng() % 6 == 0 ? 0.1f : 0.0f;
    params.min_tokens = rng() % 8 == 0 ? 9 : 0;
    naive::Context c;
    c.tokens = {1, 2, 3, 4}, c.n_prompt = 2, c.end_ids = {5};
    SamplerState state =
        state_of(spec_of(params, c, mix_seed(3, static_cast<uint64_t>(round)), vocab), c);
    const SampleContext context{state, c.tokens, c.n_prompt};
    const int n = Sampler::n_needed(context);
    if (params.min_tokens > 0 ||
        (params.temperature > 0 && (params.min_p > 0 || params.top_k == 0))) {
      EXPECT_EQ(n, 0);
      continue;
    }
    ASSERT_EQ(n, params.temperature == 0 ? 1 : params.top_k);
    std::vector<float> all = random_logits(vocab, 2.0f, static_cast<uint32_t>(round));
    if (round % 2 == 0)
      for (float& x : all) x = std::round(x * 2) / 2;  // many are equal
    std::vector<TokenId> order(static_cast<size_t>(vocab));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](TokenId a, TokenId b) { return all[a] > all[b]; });
    std::vector<float> few(static_cast<size_t>(vocab), -kInf);
    for (int i = 0; i < std::min(n, vocab); ++i) few[order[i]] = all[order[i]];
    Sampler sampler;
    std::vector<TokenLogprob> none;
    const TokenId expected = sampler.sample(context, all, none).token;
    EXPECT_EQ(sampler.sample(context, few, none).token, expected) << round;
    ++n_few;
  }
  EXPECT_GT(n_few, 200);
}

TEST(Sampler, NeedsAllLogitsForWhatReadsThem) {
  naive::Context c;
  c.tokens = {1}, c.n_prompt = 1;
  const auto needed = [&](const SamplingParams& params) {
    SamplerState state = state_of(spec_of(params, c, 1, 1000), c);
    return Sampler::n_needed({state, c.tokens, c.n_prompt});
  };
  SamplingParams plain;
  plain.top_k = 20;
  EXPECT_EQ(needed(plain), 20);
  const auto with = [&](auto&& change) {
    SamplingParams params = plain;
    change(params);
    return needed(params);
  };
  EXPECT_EQ(with([](SamplingParams& p) { p.top_k = Sampler::kMostNeeded + 1; }), 0);
  EXPECT_EQ(with([](SamplingParams& p) { p.logprobs = 0; }), 0);
  EXPECT_EQ(with([](SamplingParams& p) { p.mirostat = 2; }), 0);
  EXPECT_EQ(with([](SamplingParams& p) { p.repetition_penalty = 1.1f; }), 0);
  EXPECT_EQ(with([](SamplingParams& p) { p.logit_bias = {{3, 1.0f}}; }), 0);
  EXPECT_EQ(with([](SamplingParams& p) { p.banned_token_ids = {3}; }), 0);
  EXPECT_EQ(with([](SamplingParams& p) { p.allowed_token_ids = {3}; }), 0);
  EXPECT_EQ(with([](SamplingParams& p) { p.dry_multiplier = 1; }), 0);
  EXPECT_EQ(with([](SamplingParams& p) { p.temperature = 0; }), 1);
}

TEST(SampleRow, LeavesToTheHostWhatItCannotSay) {
  const auto says_all = [](auto edit) {
    SamplingParams params;
    edit(params);
    return Sampler::row_says_all(*spec_of(params, {}, 0, 100));
  };
  using P = SamplingParams;
  EXPECT_TRUE(says_all([](P&) {}));
  EXPECT_TRUE(says_all([](P& p) { p.top_k = 4, p.top_p = 0.5f, p.min_p = 0.1f, p.logprobs = 20; }));
  EXPECT_FALSE(says_all([](P& p) { p.mirostat = 2; }));
  EXPECT_FALSE(says_all([](P& p) { p.typical_p = 0.5f; }));
  EXPECT_FALSE(says_all([](P& p) { p.xtc_probability = 0.5f; }));
  EXPECT_TRUE(says_all([](P& p) { p.temperature = 0, p.typical_p = 0.5f; }));  // greedy: no filters
  EXPECT_FALSE(says_all([](P& p) { p.logprobs = -1; }));
}

TEST(SampleRow, TellsHowLikelyTheLikeliestTokenIs) {
  const std::vector<float> logits = random_logits(500, 2.0f, 3);
  const naive::Dist exact = naive::softmax({logits.begin(), logits.end()}, 1.0);
  std::vector<float> row = logits;
  EXPECT_NEAR(Sampler().draw({.likeliest = true}, row).likeliest,
              exact.at(naive::ordered(exact)[0]), 1e-6);
}

// An edit of a phase never meets another one for the same token, so that they can be made at once.
TEST(LogitEdits, TokensOfAPhaseAreDifferent) {
  naive::Context c{.tokens = {1, 4, 9, 16, 4, 9, 16, 25, 4, 9}, .n_prompt = 4, .end_ids = {2, 3}};
  SamplingParams params;
  params.max_tokens = 100, params.min_tokens = 50;
  params.logit_bias = {{9, 1.0f}, {2, 1.0f}, {9, 0.5f}};
  params.banned_token_ids = {9, 4};
  params.repetition_penalty = 1.3f, params.frequency_penalty = 0.2f;
  params.dry_multiplier = 0.8f, params.dry_allowed_length = 1;
  SamplerState state = state_of(spec_of(params, c, 1, 100), c);
  LogitEdits edits;
  const SampleRow row = Sampler().describe({state, c.tokens, c.n_prompt}, edits);
  std::map<int, std::set<TokenId>> phases;
  for (const LogitEdit& edit : edits.list())
    EXPECT_TRUE(phases[edit.phase].insert(edit.token).second) << edit.phase << " " << edit.token;
  EXPECT_GE(phases.size(), 5u);
  EXPECT_EQ(row.n_edits, static_cast<int>(edits.list().size()));
  EXPECT_TRUE(std::ranges::is_sorted(edits.list(), {}, &LogitEdit::phase));
}

// Whatever a request bans, and how often: the engine's thread makes no more edits than for a few
// tokens.
TEST(LogitEdits, ManyBannedTokensAreNoEdits) {
  SamplingParams params;
  for (TokenId token = 0; token < 2000; ++token) params.banned_token_ids.push_back(token % 90);
  naive::Context c{.tokens = {1, 4, 9}, .n_prompt = 3};
  SamplerState state = state_of(spec_of(params, c, 1, 100), c);
  LogitEdits edits;
  Sampler().describe({state, c.tokens, c.n_prompt}, edits);
  EXPECT_EQ(edits.list().size(), 0u);
  for (TokenId token = 0; token < 100; ++token)
    EXPECT_EQ((edits.mask()[static_cast<size_t>(token) / 32] >> (token % 32) & 1u) != 0,
              token >= 90)
        << token;
}

TEST(Logprobs, AreThoseOfTheRawDistribution) {
  const std::vector<float> logits = random_logits(5000, 2.0f, 8);
  const naive::Dist exact = naive::softmax({logits.begin(), logits.end()}, 1.0);
  const std::vector<TokenId> order = naive::ordered(exact);
  SamplingParams params;
  params.temperature = 2.0f;
  params.logprobs = 5;
  params.banned_token_ids = {order[0]};
  Sampler sampler;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SamplerState state = state_of(spec_of(params, {}, seed, 5000), {});
    std::vector<float> row = logits;
    std::vector<TokenLogprob> top;
    const SampleResult sampled = sampler.sample({state, {}, 0}, row, top);
    ASSERT_EQ(sampled.n_top, 5);
    EXPECT_NEAR(sampled.logprob, std::log(exact.at(sampled.token)), 1e-4);
    EXPECT_EQ(order[sampled.rank - 1], sampled.token);
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(top[i].token, order[i]);
      EXPECT_EQ(top[i].rank, i + 1);
      EXPECT_NEAR(top[i].logprob, std::log(exact.at(order[i])), 1e-4);
    }
  }
  std::vector<TokenLogprob> all;
  EXPECT_EQ(sampler.logprobs(logits, 7, -1, all), 5001);
  EXPECT_EQ(all[0].token, 7);
}

TEST(Logprobs, AreThoseOfTheDrawWhereThatIsAskedFor) {
  const std::vector<float> logits = random_logits(5000, 2.0f, 8);
  SamplingParams params;
  params.temperature = 2.0f;
  params.top_k = 3;
  params.logprobs = 5;
  params.processed_logprobs = true;
  Sampler sampler;
  const auto sample = [&](uint64_t seed, std::vector<TokenLogprob>& top) {
    const auto spec = spec_of(params, {}, seed, 5000);
    EXPECT_FALSE(Sampler::row_says_all(*spec));
    SamplerState state = state_of(spec, {});
    std::vector<float> row = logits;
    return sampler.sample({state, {}, 0}, row, top);
  };
  const naive::Dist warm = naive::softmax({logits.begin(), logits.end()}, 2.0);
  const std::vector<TokenId> order = naive::ordered(warm);
  const double kept = warm.at(order[0]) + warm.at(order[1]) + warm.at(order[2]);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<TokenLogprob> top;
    const SampleResult sampled = sample(seed, top);
    ASSERT_EQ(sampled.n_top, 3);
    ASSERT_EQ(top.size(), 3u);
    EXPECT_NEAR(sampled.logprob, std::log(warm.at(sampled.token) / kept), 1e-4);
    EXPECT_EQ(order[sampled.rank - 1], sampled.token);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(top[i].token, order[i]);
      EXPECT_EQ(top[i].rank, i + 1);
      EXPECT_NEAR(top[i].logprob, std::log(warm.at(order[i]) / kept), 1e-4);
    }
  }
  params.temperature = 0;
  std::vector<TokenLogprob> top;
  const SampleResult greedy = sample(0, top);
  ASSERT_EQ(greedy.n_top, 1);
  EXPECT_EQ(top[0].token, greedy.token);
  EXPECT_EQ(top[0].logprob, 0);
  EXPECT_EQ(greedy.logprob, 0);
}

TEST(Philox, MatchesThePublishedVectors) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, ~0ull),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822ull),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Sampler, ATopPOfZeroIsGreedy) {
  SamplingParams params;
  params.top_p = 0;
  EXPECT_TRUE(SamplingSpec::make(params, {}, 1, 10)->greedy());
  params.top_p = 1e-6f;
  EXPECT_FALSE(SamplingSpec::make(params, {}, 1, 10)->greedy());
}

TEST(Validate, NamesTheParameterTheRangeAndTheValue) {
  const auto message = [](auto edit) {
    SamplingParams params;
    edit(params);
    const Status status = validate(params, 100);
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(message([](SamplingParams&) {}), "");
  EXPECT_EQ(message([](SamplingParams& p) { p.temperature = -1; }),
            "temperature: expected a number in [0, 1000000], got -1");
  EXPECT_EQ(message([](SamplingParams& p) { p.top_p = 0; }), "");
  EXPECT_EQ(message([](SamplingParams& p) { p.top_p = -0.5f; }),
            "top_p: expected a number in [0, 1], got -0.5");
  EXPECT_EQ(message([](SamplingParams& p) { p.top_p = std::nanf(""); }),
            "top_p: expected a number in [0, 1], got nan");
  EXPECT_EQ(message([](SamplingParams& p) { p.n = 0; }), "n: expected 1 to 1024, got 0");
  EXPECT_EQ(message([](SamplingParams& p) { p.stop_token_ids = {5, 100}; }),
            "stop_token_ids: expected token ids in [0, 100), got 100");
  EXPECT_EQ(message([](SamplingParams& p) { p.logit_bias = {{-2, 1.0f}}; }),
            "logit_bias: expected token ids in [0, 100), got -2");
  EXPECT_EQ(message([](SamplingParams& p) { p.stop.assign(1024, "ab"); }), "");
  EXPECT_EQ(message([](SamplingParams& p) { p.stop.assign(1025, "ab"); }),
            "stop: expected at most 1024 strings, got 1025");
  EXPECT_EQ(message([](SamplingParams& p) { p.stop = {std::string(16385, 'x')}; }),
            "stop: expected strings of at most 16384 bytes together, got 16385");
  EXPECT_EQ(message([](SamplingParams& p) { p.bad_words.assign(1025, "a"); }),
            "bad_words: expected at most 1024 strings, got 1025");
  EXPECT_EQ(message([](SamplingParams& p) { p.dry_sequence_breakers.assign(1024, ""); }), "");
  EXPECT_EQ(message([](SamplingParams& p) { p.dry_sequence_breakers.assign(1025, "a"); }),
            "dry_sequence_breakers: expected at most 1024 strings, got 1025");
  EXPECT_EQ(message([](SamplingParams& p) { p.dry_sequence_breakers = {std::string(16385, 'x')}; }),
            "dry_sequence_breakers: expected strings of at most 16384 bytes together, got 16385");
  EXPECT_EQ(message([](SamplingParams& p) { p.stop_token_ids.assign(1025, 1); }),
            "stop_token_ids: expected at most 1024 tokens, got 1025");
  EXPECT_EQ(message([](SamplingParams& p) { p.banned_token_ids.assign(101, 1); }),
            "banned_token_ids: expected at most 100 tokens, got 101");
  EXPECT_EQ(message([](SamplingParams& p) { p.allowed_token_ids.assign(101, 1); }),
            "allowed_token_ids: expected at most 100 tokens, got 101");
  EXPECT_EQ(message([](SamplingParams& p) { p.logit_bias.assign(4097, {1, 0.5f}); }),
            "logit_bias: expected at most 4096 tokens, got 4097");
  EXPECT_EQ(message([](SamplingParams& p) { p.max_tokens = 5, p.min_tokens = 6; }),
            "min_tokens: expected 0 to max_tokens, got 6");
  EXPECT_EQ(message([](SamplingParams& p) { p.max_tokens = 0, p.prompt_logprobs = 1; }), "");
}

}  // namespace
}  // namespace penstock
