// Every real drafter on the models that come with the program: in batch-invariant mode the text is
// the same, bit for bit, with and without it. PENSTOCK_PROMPTS=100 runs as many instead of a few.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "draft/drafters.h"
#include "engine/collector.h"
#include "support/test_data.h"

namespace penstock {
namespace {

const std::string kModels = models_dir().string();

size_t n_prompts() {
  const char* value = std::getenv("PENSTOCK_PROMPTS");
  return value != nullptr ? std::strtoul(value, nullptr, 10) : 10;
}

// The beginnings of the held-out stories, each another one's length.
std::vector<std::vector<TokenId>> read_prompts(size_t n) {
  std::ifstream file(tests_dir().string() + "/golden/heldout_tinystories.ids");
  std::vector<std::vector<TokenId>> prompts;
  for (std::string line; prompts.size() < n && std::getline(file, line);) {
    std::istringstream words(line);
    std::vector<TokenId>& ids = prompts.emplace_back();
    for (TokenId id = 0; ids.size() < 4 + prompts.size() * 7 % 60 && words >> id;)
      ids.push_back(id);
  }
  return prompts;
}

struct Text {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  bool operator==(const Text&) const = default;
};

class Drafters : public testing::TestWithParam<const char*> {
 protected:
  static Result<std::unique_ptr<Engine>> open(EngineConfig config) {
    config.model = kModels + "/" + GetParam();
    config.batch_invariant = true;
    config.threads = 1;
    config.max_model_len = 256;
    config.max_num_seqs = 8;
    config.kv_cache_memory = int64_t{48} << 20;
    return Engine::open(config);
  }
  static std::unique_ptr<Engine> open_with(const std::string& spec,
                                           const std::string& length = "auto") {
    EngineConfig config;
    config.spec = spec;
    config.spec_length = length;
    if (spec == "draft") config.draft_model = kModels + "/penstock-stories-1m-q8_0.gguf";
    if (spec == "medusa") config.spec_heads = kModels + "/penstock-stories-15m-medusa";
    auto engine = open(config);
    if (!engine) return nullptr;  // this drafter does not fit this model
    return std::move(engine).value();
  }
  static std::vector<Text> run(Engine& engine, const std::vector<std::vector<TokenId>>& prompts,
                               const SamplingParams& params) {
    std::vector<std::shared_ptr<Collector>> sinks;
    for (const auto& prompt : prompts) {
      Request request = request_of(prompt, params.max_tokens);
      request.sampling = params;
      sinks.push_back(std::make_shared<Collector>());
      EXPECT_TRUE(engine.submit(request, sinks.back()));
    }
    while (engine.step()) {
    }
    std::vector<Text> texts;
    for (const auto& sink : sinks) {
      const Collected::Sequence& sequence = sink->result.sequences.at(0);
      texts.push_back({sequence.tokens, sequence.logprobs});
    }
    return texts;
  }
};

std::vector<std::string> names() {
  std::vector<std::string> result;
  std::istringstream list(drafter_names());
  for (std::string name; std::getline(list >> std::ws, name, ',');) result.push_back(name);
  return result;
}

TEST_P(Drafters, TextIsThatOfPlainDecoding) {
  const auto prompts = read_prompts(n_prompts());
  SamplingParams greedy, seeded;
  greedy.max_tokens = seeded.max_tokens = 40;
  greedy.temperature = 0;
  greedy.logprobs = seeded.logprobs = 0;
  seeded.temperature = 0.8f, seeded.top_p = 0.9f, seeded.repetition_penalty = 1.1f;
  seeded.seed = 5;
  const auto plain = open_with("");
  ASSERT_TRUE(plain);
  const std::vector<Text> expected = run(*plain, prompts, greedy),
                          drawn = run(*plain, prompts, seeded);
  for (const std::string& name : names()) {
    for (const char* length : {"auto", "5"}) {
      const auto engine = open_with(name, length);
      if (!engine) continue;
      const std::vector<Text> got = run(*engine, prompts, greedy),
                              got_drawn = run(*engine, prompts, seeded);
      for (size_t i = 0; i < prompts.size(); ++i) {
        EXPECT_EQ(got[i], expected[i]) << name << " " << length << ", prompt " << i;
        EXPECT_EQ(got_drawn[i], drawn[i])
            << name << " " << length << ", prompt " << i << ", with a seed";
      }
      const Metrics metrics = engine->metrics();
      if (std::string(length) != "auto" && name != "ngram" && name != "grammar") {
        EXPECT_GT(metrics.spec_decode_num_accepted_tokens.value, 0) << name;
      }
    }
  }
}

TEST_P(Drafters, DrawnTextsAreFineToo) {
  const auto prompts = read_prompts(6);
  SamplingParams params;
  params.max_tokens = 40;
  params.temperature = 1.0f;
  params.logprobs = 2;
  const auto engine = open_with("draft", "4");
  ASSERT_TRUE(engine);
  for (const Text& text : run(*engine, prompts, params)) {
    ASSERT_FALSE(text.tokens.empty());
    EXPECT_THAT(text.logprobs, testing::Each(testing::Le(0.0f)));
  }
  const Metrics metrics = engine->metrics();
  EXPECT_GT(metrics.spec_decode_num_accepted_tokens.value,
            0.2 * metrics.spec_decode_num_draft_tokens.value);
}

INSTANTIATE_TEST_SUITE_P(Models, Drafters,
                         testing::Values("penstock-stories-15m-q8_0.gguf",
                                         "penstock-stories-1m-q8_0.gguf",
                                         "penstock-stories-sliding-4m-q8_0.gguf",
                                         "penstock-stories-ternary-4m-tq2_0.gguf"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace_if(
                               name, [](char c) { return std::isalnum(c) == 0; }, '_');
                           return name;
                         });

Error error_of(EngineConfig config) {
  config.threads = 1;
  config.max_model_len = 128;
  config.kv_cache_memory = int64_t{16} << 20;
  const auto engine = Engine::open(config);
  EXPECT_FALSE(engine.has_value());
  return engine ? Error{} : engine.error();
}

TEST(DrafterErrors, SayWhatIsWrong) {
  EngineConfig config;
  config.model = kModels + "/penstock-stories-15m-q8_0.gguf";
  config.spec = "tarot";
  EXPECT_THAT(error_of(config).message, testing::HasSubstr("draft, ngram"));
  config.spec = "draft";
  EXPECT_THAT(error_of(config).message, testing::HasSubstr("draft_model"));
  config.draft_model = kModels + "/no-such-file.gguf";
  EXPECT_EQ(error_of(config).code, ErrorCode::kNotFound);
  config.draft_model = tests_dir().string() + "/golden/models/llama3";
  EXPECT_THAT(error_of(config).message, testing::HasSubstr("vocabulary of 4096 tokens"));
  config.spec = "ngram";
  EXPECT_THAT(error_of(config).message, testing::HasSubstr("spec draft"));
  config.draft_model.clear();
  config.spec = "medusa";
  EXPECT_THAT(error_of(config).message, testing::HasSubstr("expected the heads"));
  config.spec_heads = kModels;
  EXPECT_THAT(error_of(config).message, testing::HasSubstr("config.json"));
  config.spec_heads = kModels + "/penstock-stories-15m-medusa";
  config.model = kModels + "/penstock-stories-1m-q8_0.gguf";
  EXPECT_THAT(error_of(config).message, testing::HasSubstr("the target has width 128"));
  config.spec_heads.clear();
  config.spec = "early-exit";
  EXPECT_THAT(error_of(config).message, testing::HasSubstr("was not trained with an exit"));
  config.spec_exit_layer = 3;
  EXPECT_THAT(error_of(config).message,
              testing::HasSubstr("expected 1 to 2 layers to draft with, got 3"));
  config.spec_length = "many";
  EXPECT_THAT(error_of(config).message, testing::HasSubstr("spec_length"));
}

}  // namespace
}  // namespace penstock
