// Structured outputs through the whole engine: texts obey, whatever draws, drafts, beams or shares.
#include <gmock/gmock.h>

#include <regex>

#include "formats/weight_source.h"
#include "frontend/grammar_cache.h"
#include "grammar/grammar.h"
#include "grammar/token_matcher.h"
#include "penstock/llm.h"
#include "support/test_data.h"
#include "text/tokenizer.h"

namespace penstock {
namespace {

using testing::HasSubstr;

const std::string kSchema =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":12},"age":{"type":"integer","minimum":1,"maximum":99},"kind":{"enum":["cat","dog"]}},"required":["name","kind"],"additionalProperties":false})";
const std::string kTellMe = "Once upon a time, there was a little";

std::unique_ptr<LLM> open_model(const std::string& spec) {
  EngineConfig config;
  config.model = models_dir().string() + "/penstock-stories-15m-q8_0.gguf";
  if (spec == "medusa") config.spec_heads = models_dir().string() + "/penstock-stories-15m-medusa";
  if (spec == "draft")
    config.draft_model = models_dir().string() + "/penstock-stories-1m-q8_0.gguf";
  config.spec = spec;
  config.max_num_seqs = 8;
  config.batch_invariant = true;
  config.threads = 1;
  auto opened = LLM::open(config);
  EXPECT_TRUE(opened.has_value()) << opened.error().message;
  return std::move(opened).value();
}

LLM& plain_model() {
  static const std::unique_ptr<LLM> llm = open_model("off");
  return *llm;
}

SamplingParams with(StructuredOutputs outputs, float temperature, int max_tokens = 120) {
  SamplingParams params;
  params.max_tokens = max_tokens;
  params.temperature = temperature;
  params.seed = 5;
  params.structured_outputs = std::move(outputs);
  return params;
}

bool allowed(const std::string& schema, const std::string& text) {
  static const auto vocabulary = grammar::Vocabulary::make(std::vector<std::string>{"x", ""}, {1});
  grammar::Matcher matcher(grammar::Grammar::compile({.text = schema}, vocabulary).value());
  return matcher.append_bytes(text) && matcher.may_end();
}

void expect_obeys(const RequestOutput& result, const std::string& schema) {
  for (const CompletionOutput& output : result.outputs) {
    EXPECT_EQ(output.finish_reason, FinishReason::kStop) << output.text;
    EXPECT_TRUE(allowed(schema, output.text)) << output.text;
  }
}

TEST(Structured, SchemasAreObeyed) {
  for (const float temperature : {0.0f, 1.0f, 3.0f}) {
    auto params = with({.json = kSchema, .disable_any_whitespace = true}, temperature);
    params.n = temperature == 0 ? 1 : 4;
    expect_obeys(plain_model().generate(kTellMe, params).value(), kSchema);
  }
}

TEST(Structured, BeamsForkTheState) {
  auto params = with({.json = kSchema, .disable_any_whitespace = true}, 0);
  params.use_beam_search = true;
  params.n = params.beam_width = 3;
  expect_obeys(plain_model().generate(kTellMe, params).value(), kSchema);
}

TEST(Structured, OtherForms) {
  const auto text = [](StructuredOutputs outputs) {
    return plain_model().generate(kTellMe, with(std::move(outputs), 1)).value().outputs[0].text;
  };
  // Bounded: a model may write one letter forever.
  const std::string code = "[0-9]{3}-[a-f]{1,9}x";
  EXPECT_TRUE(std::regex_match(text({.regex = code}), std::regex(code)));
  EXPECT_THAT(text({.choice = {"red", "green", "blue"}}), testing::AnyOf("red", "green", "blue"));
  EXPECT_TRUE(std::regex_match(
      text({.grammar = "root ::= \"<\" word (\" \" word){2} \">\"\nword ::= [a-z]{1,5}"}),
      std::regex("<[a-z]{1,5}( [a-z]{1,5}){2}>")));
  EXPECT_THAT(text({.json = R"({"type":"array","items":{"type":"null"},"maxItems":3})",
                    .disable_any_whitespace = true}),
              testing::Not(HasSubstr(" ")));
}

// A drafter changes nothing but the speed.
TEST(Structured, SpeculationGivesTheSameTokens) {
  for (const std::string spec : {"ngram", "draft", "early-exit", "medusa", "grammar", ""}) {
    const auto drafted = open_model(spec);
    for (const float temperature : {0.0f, 1.0f}) {
      for (const bool any_whitespace : {false, true}) {
        const auto params =
            with({.json = kSchema, .disable_any_whitespace = !any_whitespace}, temperature);
        const auto with_drafts = drafted->generate(kTellMe, params).value();
        if (!any_whitespace) expect_obeys(with_drafts, kSchema);
        EXPECT_EQ(with_drafts.outputs[0].token_ids,
                  plain_model().generate(kTellMe, params).value().outputs[0].token_ids)
            << spec << ", temperature " << temperature << ", white space " << any_whitespace;
      }
    }
    EXPECT_GT(drafted->engine().metrics().grammar_forced_tokens.value, 0) << spec;
  }
}

// The rest of a text that nothing else can follow, in the tokens that the tokenizer writes for the
// whole text.
TEST(Structured, ForcedTextIsSpelledAsTheTokenizerDoes) {
  const auto source =
      open_weights(models_dir().string() + "/penstock-stories-15m-q8_0.gguf").value();
  const auto tokenizer = Tokenizer::load(*source).value();
  GrammarCache cache(*tokenizer);
  const std::string text =
      R"({"little girl":"Lily","friends and family":["dog","cat"],"happy":true})";
  const auto matcher = cache.compile({.choice = {text, "x"}}).value().matcher->fork();
  const std::vector<TokenId> tokens = tokenizer->encode("\n" + text, {.add_special = false});
  const auto is_break = [&](TokenId token) {
    return tokenizer->token_bytes(token).ends_with('\n');
  };
  const std::vector<TokenId> own(std::find_if(tokens.begin(), tokens.end(), is_break) + 1,
                                 tokens.end());
  ASSERT_TRUE(matcher->append(own[0]));
  std::vector<TokenId> forced(own.size());
  forced.resize(static_cast<size_t>(matcher->forced(forced)));
  EXPECT_EQ(forced, std::vector<TokenId>(own.begin() + 1, own.end()));
}

TEST(Structured, TextsAreCompleteWithinMaxTokens) {
  const std::string schema =
      R"({"type":"object","properties":{"names":{"type":"array","items":{"type":"object","properties":{"first":{"type":"string","minLength":3},"age":{"type":"integer"}},"required":["first","age"]}},"done":{"type":"boolean"}},"required":["names","done"]})";
  const auto drafted = open_model("ngram");
  for (LLM* llm : {&plain_model(), drafted.get()}) {
    for (const int max_tokens : {26, 40, 60, 100}) {
      for (const float temperature : {0.0f, 1.0f, 3.0f}) {
        auto params =
            with({.json = schema, .complete_within_max_tokens = true}, temperature, max_tokens);
        params.n = temperature == 0 ? 1 : 4;
        expect_obeys(llm->generate(kTellMe, params).value(), schema);
      }
    }
  }
  const auto refused = plain_model().generate(
      kTellMe, with({.json = schema, .complete_within_max_tokens = true}, 0, 20));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("max_tokens and the context leave 20"));
}

TEST(Structured, MinTokensYieldToACompleteText) {
  auto params = with({.choice = {"yes"}}, 0);
  params.min_tokens = 50;
  const auto result = plain_model().generate(kTellMe, params).value();
  EXPECT_EQ(result.outputs[0].text, "yes");
  EXPECT_EQ(result.outputs[0].finish_reason, FinishReason::kStop);
}

TEST(Structured, WhatCannotBeEnforcedIsRefused) {
  const auto error = [](StructuredOutputs outputs) {
    const auto result = plain_model().generate(kTellMe, with(std::move(outputs), 0));
    return result ? "" : result.error().message;
  };
  EXPECT_THAT(error({.json = R"({"properties":{"a":{"pattern":"(?<=x)a"}}})"}),
              HasSubstr("structured_outputs.json: #/properties/a/pattern"));
  EXPECT_THAT(error({.json = "{}", .regex = "a"}), HasSubstr("expected one of"));
  EXPECT_THAT(error({.grammar = "root ::= x"}), HasSubstr("structured_outputs.grammar: line 1"));
  EXPECT_THAT(error({}), HasSubstr("got 0"));
}

}  // namespace
}  // namespace penstock
