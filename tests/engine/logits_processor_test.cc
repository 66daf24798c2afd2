// A request's own hand in its logits: with draws, drafts, beams, several sequences and a device
// that draws.
#include <gmock/gmock.h>

#include <mutex>

#include "engine/engine_fixture.h"

namespace penstock {
namespace {

// Leaves the tokens that have the same rest by `divisor` as the number of tokens so far.
class Rest final : public LogitsProcessor {
 public:
  explicit Rest(int divisor) : divisor_(divisor) {}
  void process(std::span<const TokenId> tokens, int n_prompt, std::span<float> logits) override {
    const std::lock_guard lock(mutex_);
    ++n_calls;
    EXPECT_GE(static_cast<int>(tokens.size()), n_prompt);
    for (size_t id = 0; id < logits.size(); ++id) {
      if (id % divisor_ != tokens.size() % divisor_) logits[id] = -1e9f;
    }
  }
  int n_calls = 0;

 private:
  size_t divisor_;
  std::mutex mutex_;
};

void expect_rests(const Collector& sink, size_t n_prompt, size_t divisor, int n) {
  for (int i = 0; i < n; ++i) {
    const std::vector<TokenId>& tokens = sink.result.sequences.at(i).tokens;
    EXPECT_FALSE(tokens.empty());
    for (size_t at = 0; at < tokens.size(); ++at)
      EXPECT_EQ(static_cast<size_t>(tokens[at]) % divisor, (n_prompt + at) % divisor)
          << "sequence " << i;
  }
}

Request request_with(std::shared_ptr<LogitsProcessor> processor, float temperature, int n = 1) {
  Request request = request_of(prompt_of(7), 20, 3);
  request.sampling.temperature = temperature;
  request.sampling.n = n;
  request.sampling.ignore_eos = true;
  request.logits_processor = std::move(processor);
  return request;
}

TEST(LogitsProcessor, ChoosesWhatIsDrawn) {
  for (const float temperature : {0.0f, 1.0f}) {
    for (const bool device : {false, true}) {
      FakeEngineConfig config;
      config.device = device;
      FakeEngine fake(config);
      auto processor = std::make_shared<Rest>(3);
      const auto plain = fake.submit(request_with(nullptr, temperature));
      const auto sink = fake.submit(request_with(processor, temperature, temperature > 0 ? 3 : 1));
      fake.run();
      expect_rests(*sink, 7, 3, temperature > 0 ? 3 : 1);
      EXPECT_GE(processor->n_calls, 20);
      EXPECT_EQ(plain->result.sequences.at(0).tokens,
                fake.expected(request_with(nullptr, temperature)));
    }
  }
}

TEST(LogitsProcessor, DraftsChangeNoText) {
  for (const float temperature : {0.0f, 1.0f}) {
    FakeEngine plain;
    const auto expected = plain.submit(request_with(std::make_shared<Rest>(3), temperature));
    plain.run();
    for (const int right : {0, 60, 100}) {
      FakeEngineConfig config;
      config.drafts = std::make_shared<DraftScript>();
      config.spec_length = 5;
      FakeEngine fake(config);
      RandomDrafts drafts(5, right, true);
      config.drafts->propose = [&](const DraftRequest& request, DraftTree& tree) {
        drafts.fill(*fake.model, request, tree);
      };
      const auto sink = fake.submit(request_with(std::make_shared<Rest>(3), temperature));
      fake.run();
      expect_rests(*sink, 7, 3, 1);
      if (temperature == 0) {
        EXPECT_EQ(sink->result.sequences.at(0).tokens, expected->result.sequences.at(0).tokens);
      }
    }
  }
}

TEST(LogitsProcessor, HoldsForBeams) {
  FakeEngine fake;
  Request request = request_with(std::make_shared<Rest>(2), 1.0f, 3);
  request.sampling.use_beam_search = true;
  request.sampling.beam_width = 3;
  const auto sink = fake.submit(request);
  fake.run();
  expect_rests(*sink, 7, 2, 3);
}

TEST(LogitsProcessor, IsLetGoWithItsRequest) {
  FakeEngine fake;
  auto processor = std::make_shared<Rest>(2);
  fake.submit(request_with(processor, 1.0f, 2));
  fake.run();
  EXPECT_EQ(processor.use_count(), 1);
}

}  // namespace
}  // namespace penstock
