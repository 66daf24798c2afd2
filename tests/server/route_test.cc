#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "server/routes/route_request.h"
#include "server/routes/table/route_score.h"
#include "server/routes/table/route_table.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

RouteFeatures look(std::string question) {
  RouteFeatures features;
  features.question = std::move(question);
  look_at_question(features);
  return features;
}

TEST(RouteFeatures, Code) {
  EXPECT_TRUE(look("Fix this: ```x = 1```").code);
  EXPECT_TRUE(look("Write a Python function that sorts.").code);
  EXPECT_TRUE(look("int main() { return 0; } void f() { x->y != z; }").code);
  EXPECT_TRUE(look("SELECT name FROM users WHERE id = 3").code);
  EXPECT_FALSE(look("Tell me a story about a dog.").code);
  EXPECT_FALSE(look("What should I eat before the race?").code);
}

TEST(RouteFeatures, Mathematics) {
  EXPECT_TRUE(look("What is 3 + 4?").mathematics);
  EXPECT_TRUE(look("Tom has 3 apples and buys 4. How many has he?").mathematics);
  EXPECT_TRUE(look("2*x^2 = 8").mathematics);
  EXPECT_FALSE(look("Who was president in 1990?").mathematics);
  EXPECT_FALSE(look("Tell me a story about two dogs.").mathematics);
}

TEST(RouteFeatures, Language) {
  EXPECT_EQ(look("What is the capital of France?").language, "en");
  EXPECT_EQ(look("Wie ist das Wetter und was ist die Stadt?").language, "de");
  EXPECT_EQ(look("Quelle est la capitale et une ville des Alpes?").language, "fr");
  EXPECT_EQ(look("讲一个故事").language, "zh");
  EXPECT_EQ(look("お話をしてください").language, "ja");
  EXPECT_EQ(look("이야기 해주세요").language, "ko");
  EXPECT_EQ(look("Расскажи мне историю").language, "ru");
  EXPECT_EQ(look("").language, "");
  EXPECT_EQ(look("\xf0\xff\x80").language, "") << "whatever is no text";
}

TEST(RouteTable, TheFirstRuleThatHoldsDecides) {
  RouteConfig config{.name = "auto", .small = "s", .large = "l", .otherwise = "s"};
  RouteRule both;
  both.code = true;
  both.min_characters = 10;
  both.model = "l";
  RouteRule timed;
  timed.max_seconds = 2;
  timed.model = "s";
  config.rules = {both, timed};
  RouteFeatures features;
  EXPECT_FALSE(decide_by_rules(config, features));
  features.code = true;
  EXPECT_FALSE(decide_by_rules(config, features)) << "one of two conditions";
  features.characters = 10;
  features.seconds = 1;
  auto decision = decide_by_rules(config, features);
  ASSERT_TRUE(decision);
  EXPECT_EQ(decision->model, "l");
  EXPECT_EQ(decision->reason, "rule 1: length, code");
  EXPECT_FALSE(decision->may_cascade);
  features.code = false;
  decision = decide_by_rules(config, features);
  ASSERT_TRUE(decision);
  EXPECT_EQ(decision->reason, "rule 2: time");
  EXPECT_EQ(decide_by_score(config, 0.5, 0.5).model, "l");
  EXPECT_TRUE(decide_by_score(config, 0.4, 0.5).may_cascade);
  EXPECT_EQ(decide_otherwise(config).model, "s");
}

// What a client wrote, and what a model wrote about it, is text: marks in it are not filled again.
TEST(RouteCheck, MarksInTextsAreText) {
  EXPECT_EQ(check_prompt("Q {question} A {answer} {question}", "{answer}", "{question}x"),
            "Q {answer} A {question}x {answer}");
  EXPECT_EQ(check_prompt("none", "a", "b"), "none");
  std::string question;
  for (int i = 0; i < 20'000; ++i) question += "{answer}";
  EXPECT_EQ(check_prompt("{question}", question, std::string(100'000, 'a')), question);
}

// At the minimum of the loss its gradient is zero.
TEST(RouteScore, TrainsToTheMinimum) {
  std::vector<std::vector<float>> vectors;
  std::vector<bool> labels;
  uint32_t state = 3;
  const auto random = [&] {
    state = state * 1664525 + 1013904223;
    return static_cast<float>(state >> 8) / (1 << 24) - 0.5f;
  };
  for (int i = 0; i < 400; ++i) {
    vectors.push_back({random(), random(), random()});
    labels.push_back(2 * vectors[i][0] - vectors[i][1] + random() > 0.2f);
  }
  constexpr double kRidge = 0.5;
  const auto score = RouteScore::train(vectors, labels, kRidge);
  ASSERT_TRUE(score);
  // Weights by what the score says: log-odds are linear.
  const auto log_odds = [&](std::vector<float> v) {
    const double p = (*score)(v);
    return std::log(p / (1 - p));
  };
  const double bias = log_odds({0, 0, 0});
  double gradient[4] = {};
  for (size_t i = 0; i < vectors.size(); ++i) {
    const double error = (*score)(vectors[i]) - (labels[i] ? 1 : 0);
    for (int j = 0; j < 3; ++j) gradient[j] += error * static_cast<double>(vectors[i][j]);
    gradient[3] += error;
  }
  EXPECT_NEAR(gradient[3], 0, 1e-5);
  for (int j = 0; j < 3; ++j) {
    std::vector<float> unit(3, 0);
    unit[j] = 1;
    EXPECT_NEAR(gradient[j] + kRidge * (log_odds(unit) - bias), 0, 1e-5);
  }
}

TEST(RouteScore, IsKeptInAFile) {
  const std::string file =
      (fs::temp_directory_path() / ("route_" + std::to_string(::getpid()))).string();
  const std::vector<std::vector<float>> vectors = {{1, 0}, {0, 1}, {0.9f, 0.1f}, {0.2f, 0.9f}};
  auto score = RouteScore::train(vectors, {true, false, true, false}, 0.1);
  ASSERT_TRUE(score);
  score->threshold = 0.7;
  ASSERT_TRUE(score->save(file));
  const auto read = RouteScore::load(file);
  ASSERT_TRUE(read);
  EXPECT_EQ((*read)(vectors[0]), (*score)(vectors[0]));
  EXPECT_EQ(read->threshold, 0.7);
  EXPECT_EQ(read->dimensions(), 2u);
  EXPECT_TRUE(score->save(file));  // an earlier score is replaced
  const auto fails = [&](const char* text) {
    std::ofstream(file) << text;
    return RouteScore::load(file).error().code;
  };
  EXPECT_EQ(fails("{}"), ErrorCode::kCorruptFile);
  EXPECT_EQ(fails(R"({"format": "penstock-route-score", "version": 2})"), ErrorCode::kUnsupported);
  EXPECT_EQ(
      fails(
          R"({"format": "penstock-route-score", "version": 1, "bias": 0, "threshold": 1, "weights": ["x"]})"),
      ErrorCode::kCorruptFile);
  // Another file is not, such as the examples.
  const auto size = fs::file_size(file);
  EXPECT_EQ(RouteScore::check_place(file).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(score->save(file).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(fs::file_size(file), size);
  fs::remove(file);
  EXPECT_EQ(RouteScore::load(file).error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(RouteScore::check_place(file));
  // A score is replaced by one that is whole: who reads the earlier one reads on in it. A link stays one.
  ASSERT_TRUE(score->save(file));
  fs::create_symlink(file, file + ".link");
  std::ifstream earlier(file);
  score->threshold = 0.25;
  ASSERT_TRUE(score->save(file + ".link"));
  std::stringstream text;
  text << earlier.rdbuf();
  EXPECT_THAT(text.str(), testing::HasSubstr("0.7"));
  EXPECT_TRUE(fs::is_symlink(file + ".link"));
  EXPECT_EQ(RouteScore::load(file)->threshold, 0.25);
  EXPECT_FALSE(fs::exists(file + ".partial"));
  // One that cannot be written leaves the earlier one.
  fs::create_directory(file + ".partial");
  EXPECT_EQ(score->save(file).error().code, ErrorCode::kIo);
  EXPECT_TRUE(RouteScore::load(file));
  // A link in the place of the temporary file is not followed.
  fs::remove(file + ".partial");
  fs::create_symlink(file + ".planted", file + ".partial");
  EXPECT_EQ(score->save(file).error().code, ErrorCode::kIo);
  EXPECT_FALSE(fs::exists(file + ".planted"));
  for (const char* end : {"", ".partial", ".link"}) fs::remove(file + end);
}

TEST(RouteScore, Outcomes) {
  const std::vector<std::pair<double, bool>> scored = {
      {0.9, true}, {0.8, false}, {0.7, true}, {0.1, false}};
  EXPECT_DOUBLE_EQ(route_auc(scored), 0.75);
  EXPECT_DOUBLE_EQ(route_auc({{0.5, true}, {0.5, false}}), 0.5);
  const auto outcomes = route_outcomes(scored, 4);
  ASSERT_EQ(outcomes.size(), 5u);
  EXPECT_DOUBLE_EQ(outcomes[1].threshold, 0.7);
  EXPECT_DOUBLE_EQ(outcomes[1].to_large, 0.75);
  EXPECT_DOUBLE_EQ(outcomes[1].found, 1);
  EXPECT_DOUBLE_EQ(outcomes[4].to_large, 0);
}

}  // namespace
}  // namespace penstock
