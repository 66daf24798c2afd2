// Speculation changes how many forwards a text takes, never the text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/engine_fixture.h"
#include "engine/letter_grammar.h"

namespace penstock {
namespace {

// An engine whose drafter proposes `right` of 100 tokens as the target will choose them.
struct Speculating {
  Speculating(int right, bool trees, int length, FakeEngineConfig config = {})
      : drafts(7, right, trees) {
    config.drafts = std::make_shared<DraftScript>();
    config.spec_length = length;
    fake = std::make_unique<FakeEngine>(config);
    fake->settings.drafts->propose = [this](const DraftRequest& request, DraftTree& tree) {
      drafts.fill(*fake->model, request, tree);
    };
  }
  RandomDrafts drafts;
  std::unique_ptr<FakeEngine> fake;
};

std::vector<Request> varied_requests() {
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) {
    Request request = request_of(prompt_of(3 + i * 2, i), 30, 40 + i);
    SamplingParams& p = request.sampling;
    p.temperature = i % 4 == 0 ? 0.0f : 0.9f;
    if (i % 3 == 1) p.top_p = 0.8f, p.repetition_penalty = 1.3f;
    if (i % 3 == 2) p.top_k = 6, p.frequency_penalty = 0.7f, p.presence_penalty = 0.3f;
    if (i == 5) p.min_p = 0.1f, p.dry_multiplier = 0.8f;
    if (i == 6) p.mirostat = 2;
    if (i == 7) p.xtc_probability = 0.5f;
    if (i == 8) p.min_tokens = 10, p.stop_token_ids = {3, 4, 5};
    p.ignore_eos = i % 2 == 0;
    requests.push_back(request);
  }
  return requests;
}

TEST(Speculation, TextIsThatOfPlainSamplingWhateverIsDrafted) {
  for (const int right : {0, 30, 80, 100}) {
    for (const bool trees : {false, true}) {
      for (const int length : {0, 1, 4, 16}) {
        Speculating speculating(right, trees, length);
        const std::vector<Request> requests = varied_requests();
        std::vector<std::shared_ptr<Collector>> sinks;
        for (const Request& request : requests) sinks.push_back(speculating.fake->submit(request));
        speculating.fake->run();
        for (size_t i = 0; i < requests.size(); ++i) {
          EXPECT_EQ(sinks[i]->result.sequences[0].tokens, speculating.fake->expected(requests[i]))
              << i << " right " << right << " trees " << trees << " length " << length;
        }
        EXPECT_EQ(speculating.fake->engine->scheduler().allocator().n_referenced(), 0);
      }
    }
  }
}

// Drafts would use up every step.
TEST(Speculation, DraftsLeaveTokensOfAStepToThoseThatWait) {
  FakeEngineConfig config;
  config.engine.max_num_batched_tokens = 20;
  Speculating speculating(0, false, 16, config);
  FakeEngine& fake = *speculating.fake;
  Request request = request_of(prompt_of(5, 1), 60, 1);
  request.sampling.ignore_eos = true;
  const auto first = fake.submit(request);
  for (int i = 0; i < 10; ++i) fake.engine->step();
  Request next = request_of(prompt_of(30, 2), 1, 2);
  const auto second = fake.submit(next);
  for (int i = 0; i < 10; ++i) fake.engine->step();
  EXPECT_EQ(second->n_finished(), 1);
  EXPECT_EQ(first->n_finished(), 0);
  fake.run();
  EXPECT_EQ(first->result.sequences[0].tokens, fake.expected(request));
  EXPECT_EQ(second->result.sequences[0].tokens, fake.expected(next));
}

TEST(Speculation, RightDraftsSaveForwards) {
  FakeEngine plain;
  Request request = request_of(prompt_of(5), 61);
  request.sampling.ignore_eos = true;
  plain.submit(request);
  plain.run();
  Speculating speculating(100, false, 5);
  // Every node of a full chain is right: 6 tokens a round.
  speculating.fake->settings.drafts->propose = [&](const DraftRequest& r, DraftTree& tree) {
    while (tree.size() < r.max_nodes) {
      const int before = tree.size();
      RandomDrafts one(tree.size(), 100, false);
      DraftTree next;
      std::vector<TokenId> tokens(r.tokens.begin(), r.tokens.end());
      tokens.insert(tokens.end(), tree.tokens.begin(), tree.tokens.end());
      DraftRequest longer = r;
      longer.tokens = tokens;
      while (next.empty()) one.fill(*speculating.fake->model, longer, next);
      tree.add_next(next.tokens[0]);
      ASSERT_EQ(tree.size(), before + 1);
    }
  };
  const auto sink = speculating.fake->submit(request);
  speculating.fake->run();
  EXPECT_EQ(plain.model->n_steps(), 61);
  EXPECT_EQ(speculating.fake->model->n_steps(), 11);
  const RequestStats& stats = sink->result.sequences[0].stats;
  EXPECT_EQ(stats.drafts, 10);
  EXPECT_EQ(stats.draft_tokens, 50);
  EXPECT_EQ(stats.accepted_tokens, 50);
  const Metrics metrics = speculating.fake->engine->metrics();
  EXPECT_EQ(metrics.spec_decode_num_drafts.value, 10);
  EXPECT_EQ(metrics.spec_decode_num_draft_tokens.value, 50);
  EXPECT_EQ(metrics.spec_decode_num_accepted_tokens.value, 50);
  EXPECT_THAT(metrics.spec_decode_num_accepted_tokens_per_pos.values,
              testing::Contains(10).Times(5));
}

TEST(Speculation, LogprobsAreThoseOfPlainDecoding) {
  Request request = request_of(prompt_of(5), 40);
  request.sampling.logprobs = 3;
  request.sampling.ignore_eos = true;
  FakeEngine plain;
  const auto expected = plain.submit(request);
  plain.run();
  Speculating speculating(70, true, 12);
  const auto got = speculating.fake->submit(request);
  speculating.fake->run();
  const Collected::Sequence &a = expected->result.sequences[0], &b = got->result.sequences[0];
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.logprobs, b.logprobs);
  ASSERT_EQ(a.alternatives.size(), b.alternatives.size());
  for (size_t i = 0; i < a.alternatives.size(); ++i) {
    ASSERT_EQ(b.alternatives[i].size(), 3u);
    for (int j = 0; j < 3; ++j) {
      EXPECT_EQ(a.alternatives[i][j].token, b.alternatives[i][j].token);
      EXPECT_EQ(a.alternatives[i][j].logprob, b.alternatives[i][j].logprob);
    }
  }
  EXPECT_GT(b.stats.accepted_tokens, 5);
}

TEST(Speculation, DraftsCountInTheBudgetAndTakeNoRoomFromOthers) {
  FakeEngineConfig config;
  config.engine.max_num_batched_tokens = 10;
  config.n_blocks = {14};
  config.max_model_len = 50;
  Speculating speculating(60, true, 16, config);
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 9; ++i) {
    requests.push_back(request_of(prompt_of(4 + i, i), 30, i));
    sinks.push_back(speculating.fake->submit(requests.back()));
  }
  speculating.fake->run();
  EXPECT_GT(speculating.fake->engine->metrics().num_preemptions.value, 0);
  EXPECT_LE(speculating.fake->model->n_tokens(), 10 * speculating.fake->model->n_steps());
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(sinks[i]->result.sequences[0].tokens, speculating.fake->expected(requests[i])) << i;
  }
}

// --- Drawn chains: exact in distribution

// Upper 1e-6 quantile of chi-square, by Wilson and Hilferty.
double chi_square_limit(int df) {
  const double z = 4.7534, a = 2.0 / (9.0 * df);
  return df * std::pow(1 - a + z * std::sqrt(a), 3);
}

// How a drafter's logits differ from the target's.
struct DraftSkill {
  const char* name;
  void (*change)(std::vector<float>& row, uint64_t seed);
};

void noise(std::vector<float>& row, uint64_t seed) {
  for (size_t i = 0; i < row.size(); ++i)
    row[i] += 2.0f * static_cast<float>(uniform_draw(seed, i, 0, Draw::kToken));
}

const DraftSkill kSkills[] = {
    {"right", [](std::vector<float>&, uint64_t) {}},
    {"noisy", noise},
    {"opposite",
     [](std::vector<float>& row, uint64_t) {
       for (float& x : row) x = -x;
     }},
    {"blind", [](std::vector<float>& row,
                 uint64_t) { row[1] = row[2] = -std::numeric_limits<float>::infinity(); }},
};

// Every token of 1 + 3 after a fixed prompt, drawn by the engine; the first three cells' tokens
// come from the first step, then a drafted round or several.
class JointDistribution {
 public:
  static constexpr int kVocab = 4, kTokens = 4, kSamples = 200000;

  // heedless: the drafter does not obey the grammar.
  JointDistribution(const SamplingParams& params, const DraftSkill& skill, int length,
                    std::shared_ptr<const TokenMatcher> matcher = nullptr, bool heedless = false)
      : params_(params), matcher_(std::move(matcher)), heedless_(heedless) {
    FakeEngineConfig config;
    config.vocab_size = kVocab;
    config.max_model_len = 16;
    config.n_blocks = {400};
    config.engine.max_num_seqs = 64;
    config.engine.max_num_batched_tokens = 1024;
    config.engine.max_queued_requests = 1 << 20;
    config.drafts = std::make_shared<DraftScript>();
    config.spec_length = length;
    fake_ = std::make_unique<FakeEngine>(config);
    config.drafts->propose = [this, &skill](const DraftRequest& request, DraftTree& tree) {
      draw(skill, request, tree);
    };
  }

  double chi_square(int& df) {
    struct Sink : EventSink {
      std::map<std::vector<TokenId>, int>* counts;
      std::vector<TokenId> tokens;
      void on_tokens(RequestId, std::span<const TokenEvent> events) override {
        for (const TokenEvent& event : events) tokens.push_back(event.token);
        if (events.back().finish != FinishReason::kNone) ++(*counts)[tokens];
      }
    };
    std::map<std::vector<TokenId>, int> counts;
    for (int i = 0; i < kSamples; ++i) {
      Request request = request_of({1, 2, 3}, kTokens);
      request.sampling = params_;
      request.sampling.seed.reset();
      request.sampling.max_tokens = kTokens;
      request.sampling.ignore_eos = true;
      request.matcher = matcher_;
      auto sink = std::make_shared<Sink>();
      sink->counts = &counts;
      EXPECT_TRUE(fake_->engine->submit(request, sink));
      if (i % 512 == 511) run();
    }
    run();
    std::map<std::vector<TokenId>, double> expected;
    expand({}, 1.0, expected);
    double chi = 0;
    df = -1;
    for (const auto& [tokens, p] : expected) {
      const double wanted = p * kSamples;
      if (wanted < 5) continue;  // too few for the statistic
      const double got = counts[tokens];
      chi += (got - wanted) * (got - wanted) / wanted;
      ++df;
    }
    for (const auto& [tokens, n] : counts)
      EXPECT_TRUE(expected.contains(tokens)) << "an impossible text";
    return chi;
  }
  const Metrics metrics() const { return fake_->engine->metrics(); }

 private:
  void run() {
    while (fake_->engine->step()) {
    }
  }
  std::vector<float> logits_of(std::span<const TokenId> tokens) {
    std::vector<float> row = fake_->model->logits_of(tokens);
    for (float& x : row) x *= 0.5f;
    return row;
  }
  void draw(const DraftSkill& skill, const DraftRequest& request, DraftTree& tree) {
    EXPECT_TRUE(request.may_draw);
    SamplerState state = request.state->fork(request.state->index);
    if (heedless_) state.matcher.reset();
    Hypothesis hypothesis(state);
    std::vector<TokenId> tokens(request.tokens.begin(), request.tokens.end());
    while (tree.size() < request.max_nodes) {
      std::vector<float> row = fake_->model->logits_of(tokens);
      skill.change(row, tokens.size());
      tree.drawn_from.emplace_back();
      const TokenId token = sampler_.draw_draft({hypothesis.state(), tokens, request.n_prompt}, row,
                                                tree.drawn_from.back());
      tree.add_next(token);
      tokens.push_back(token);
      hypothesis.append(token);
    }
  }
  // The probability of every text, by the product of the sampler's own distributions.
  void expand(const std::vector<TokenId>& output, double p,
              std::map<std::vector<TokenId>, double>& out) {
    if (static_cast<int>(output.size()) == kTokens) {
      out[output] = p;
      return;
    }
    std::vector<TokenId> tokens = {1, 2, 3};
    tokens.insert(tokens.end(), output.begin(), output.end());
    SamplingParams params = params_;
    params.seed.reset();
    SamplerState state(SamplingSpec::make(params, {.end_ids = {0}, .matcher = matcher_}, 1, kVocab),
                       0, std::vector<TokenId>{1, 2, 3}, 10);
    for (const TokenId token : output) state.append(token);
    std::vector<float> row = fake_->model->logits_of(tokens);
    TokenDistribution next;
    sampler_.draw_draft({state, tokens, 3}, row, next);
    for (const TokenProb& each : next) {
      std::vector<TokenId> longer = output;
      longer.push_back(each.token);
      expand(longer, p * each.p, out);
    }
  }

  SamplingParams params_;
  std::shared_ptr<const TokenMatcher> matcher_;
  const bool heedless_;
  std::unique_ptr<FakeEngine> fake_;
  Sampler sampler_;
};

struct Case {
  const char* name;
  void (*set)(SamplingParams& p);
};
const Case kCases[] = {
    {"warm", [](SamplingParams& p) { p.temperature = 0.7f; }},
    {"hot", [](SamplingParams& p) { p.temperature = 1.0f; }},
    {"top_p", [](SamplingParams& p) { p.temperature = 0.7f, p.top_p = 0.9f; }},
    {"top_k", [](SamplingParams& p) { p.top_k = 3; }},
    {"min_p", [](SamplingParams& p) { p.min_p = 0.05f; }},
    {"penalties",
     [](SamplingParams& p) {
       p.repetition_penalty = 1.4f, p.frequency_penalty = 0.6f, p.presence_penalty = 0.4f;
     }},
    {"all",
     [](SamplingParams& p) {
       p.temperature = 0.7f, p.top_k = 3, p.top_p = 0.95f, p.min_p = 0.02f,
       p.repetition_penalty = 1.2f;
     }},
};

TEST(DrawnDrafts, JointDistributionIsThatOfPlainSampling) {
  int case_index = 0;
  for (const Case& each : kCases) {
    SamplingParams params;
    each.set(params);
    // Every drafter with the plainest and the richest sampler, the others in turn.
    for (const DraftSkill& skill : kSkills) {
      const bool every = &each == &kCases[1] || &each == &kCases[6];
      if (!every && &skill != &kSkills[1 + case_index % 3]) continue;
      JointDistribution joint(params, skill, 3);
      int df = 0;
      const double chi = joint.chi_square(df);
      EXPECT_LT(chi, chi_square_limit(df))
          << each.name << ", drafter " << skill.name << ", df " << df;
      EXPECT_GT(df, 10);
      EXPECT_GT(joint.metrics().spec_decode_num_drafts.value, JointDistribution::kSamples / 2);
      if (&skill == &kSkills[0]) {
        EXPECT_GT(joint.metrics().spec_decode_num_accepted_tokens.value,
                  0.99 * joint.metrics().spec_decode_num_draft_tokens.value);
      }
    }
    ++case_index;
  }
}

TEST(DrawnDrafts, JointDistributionIsThatOfPlainSamplingUnderAGrammar) {
  for (const bool heedless : {false, true}) {
    SamplingParams params;
    params.temperature = 0.8f;
    const auto matcher = letter_grammar("(ab|ba|c[ab]|cc){6}", JointDistribution::kVocab);
    JointDistribution joint(params, kSkills[1], 3, matcher, heedless);
    int df = 0;
    const double chi = joint.chi_square(df);
    EXPECT_LT(chi, chi_square_limit(df)) << "heedless " << heedless << ", df " << df;
    EXPECT_GT(df, 10);
    EXPECT_GT(joint.metrics().spec_decode_num_drafts.value, JointDistribution::kSamples / 2);
  }
}

}  // namespace
}  // namespace penstock
