#include "frontend/params_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace penstock {
namespace {

using json = nlohmann::ordered_json;

TEST(ParamsJson, EveryFieldSurvivesTheRoundTrip) {
  SamplingParams params;
  params.n = 3;
  params.temperature = 0.25f;
  params.seed = 18446744073709551615u;
  params.stop = {"a", "b"};
  params.logit_bias = {{5, -1.5f}, {70, 100.0f}};
  params.logprobs = 4;
  params.ignore_eos = true;
  params.allowed_token_ids = {1, 2, 3};
  SamplingParams read;
  ASSERT_TRUE(params_from_json(json::parse(params_to_json(params).dump()), read));
  EXPECT_EQ(params_to_json(read), params_to_json(params));
  EXPECT_NE(params_to_json(read), params_to_json(SamplingParams()));
}

TEST(ParamsJson, EveryFieldAcceptsNull) {
  json object = json::object();
  const SamplingParams defaults;
  SamplingParams::visit(defaults, [&](const char* field, const auto&, const char*, const auto&) {
    object[field] = nullptr;
  });
  SamplingParams read;
  ASSERT_TRUE(params_from_json(object, read));
  EXPECT_EQ(params_to_json(read), params_to_json(defaults));
}

// A list of none would read as no limit.
TEST(ParamsJson, NoAllowedTokensAreRefused) {
  SamplingParams read;
  const Status status = params_from_json({{"allowed_token_ids", json::array()}}, read);
  EXPECT_EQ(status ? "" : status.error().message,
            "allowed_token_ids: expected at least one token id, got []");
}

TEST(ParamsJson, EveryFieldRefusesAWrongType) {
  const SamplingParams defaults;
  SamplingParams::visit(defaults, [&](const char* field, const auto&, const char*, const auto&) {
    for (const json& value : {json(json::array({json::object()})), json({{"x", "y"}})}) {
      SamplingParams read;
      const Status status = params_from_json({{field, value}}, read);
      ASSERT_FALSE(status) << field << " took " << value;
      EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
      EXPECT_THAT(status.error().message, testing::StartsWith(std::string(field) + ": expected"));
    }
  });
}

TEST(ParamsJson, StructuredOutputsSurviveTheRoundTrip) {
  SamplingParams params, read;
  EXPECT_EQ(params_to_json(params)["structured_outputs"], nullptr);
  params.structured_outputs = StructuredOutputs{.json = R"({"type":"null"})",
                                                .choice = {"a", "b"},
                                                .json_object = true,
                                                .disable_any_whitespace = true,
                                                .whitespace_pattern = ""};
  ASSERT_TRUE(params_from_json(params_to_json(params), read));
  EXPECT_EQ(read.structured_outputs, params.structured_outputs);
  ASSERT_TRUE(params_from_json({{"structured_outputs", {{"json", {{"type", "null"}}}}}}, read));
  EXPECT_EQ(read.structured_outputs, StructuredOutputs{.json = R"({"type":"null"})"});
  ASSERT_TRUE(
      params_from_json({{"structured_outputs", {{"regex", "a"}, {"json", nullptr}}}}, read));
  EXPECT_EQ(read.structured_outputs, StructuredOutputs{.regex = "a"});
}

TEST(ParamsJson, WrongStructuredOutputsNameTheField) {
  const std::pair<json, const char*> wrong[] = {
      {5, "structured_outputs: expected an object, got 5"},
      {{{"regex", 5}}, "structured_outputs.regex: expected a string, got 5"},
      {{{"json", 5}}, "structured_outputs.json: expected an object or its text, got 5"},
      {{{"choice", {5}}}, "structured_outputs.choice: expected a list of strings, got 5"},
      {{{"json_object", "yes"}},
       "structured_outputs.json_object: expected true or false, got \"yes\""},
      {{{"xml", "a"}}, "structured_outputs.xml: there is no such field"}};
  for (const auto& [value, message] : wrong) {
    const auto read = structured_outputs_from_json(value);
    ASSERT_FALSE(read) << value;
    EXPECT_EQ(read.error().message, message);
  }
}

TEST(ParamsJson, StopIsOneStringOrAList) {
  SamplingParams read;
  ASSERT_TRUE(params_from_json({{"stop", "end"}}, read));
  EXPECT_THAT(read.stop, testing::ElementsAre("end"));
}

TEST(ParamsJson, NumbersOutOfRangeAreRefused) {
  SamplingParams read;
  EXPECT_FALSE(params_from_json({{"max_tokens", 3000000000}}, read));
  EXPECT_FALSE(params_from_json({{"max_tokens", 1.5}}, read));
  EXPECT_TRUE(params_from_json({{"max_tokens", 8.0}}, read));
  EXPECT_EQ(read.max_tokens, 8);
}

}  // namespace
}  // namespace penstock
