// Classification heads against transformers' (tools/make_tiny_encoders.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "formats/weight_source.h"

#include "penstock/embed.h"
#include "support/test_data.h"

namespace penstock::classify_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const fs::path kClassifiers = tests_dir() / "golden" / "classifiers";

Result<std::unique_ptr<EmbeddingModel>> open_classifier(const fs::path& path) {
  EngineConfig config;
  config.model = path.string();
  config.threads = 2;
  return EmbeddingModel::open(config);
}

std::vector<std::string> classifier_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kClassifiers))
    names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

json golden_classes(const std::string& name) {
  std::ifstream file(kClassifiers / name / "golden.json");
  return json::parse(file);
}

std::vector<Prompt> prompts_of(const json& golden) {
  std::vector<Prompt> prompts;
  for (const json& row : golden) prompts.emplace_back(row["ids"].get<std::vector<TokenId>>());
  return prompts;
}

void expect_near(const std::vector<float>& got, const json& expected, double most,
                 const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], expected[i].get<double>(), most) << what << ", class " << i;
}

class Classifiers : public ::testing::TestWithParam<std::string> {};

TEST_P(Classifiers, AreTransformers) {
  const json golden = golden_classes(GetParam());
  for (const char* file : {"", "model.gguf"}) {
    const fs::path path = kClassifiers / GetParam() / file;
    if (!fs::exists(path)) continue;
    auto model = open_classifier(path);
    ASSERT_TRUE(model) << model.error().message;
    ASSERT_EQ((*model)->info().labels.size(), golden[0]["logits"].size());
    const auto logits = (*model)->classify(prompts_of(golden), {.use_activation = false});
    ASSERT_TRUE(logits) << logits.error().message;
    for (size_t i = 0; i < golden.size(); ++i)
      expect_near((*logits)[i], golden[i]["logits"], 1e-4, path.string());
    if (*file != '\0') continue;  // GGUF files do not say what makes probabilities
    const auto probabilities = (*model)->classify(prompts_of(golden));
    ASSERT_TRUE(probabilities) << probabilities.error().message;
    for (size_t i = 0; i < golden.size(); ++i)
      expect_near((*probabilities)[i], golden[i]["probs"], 1e-5, path.string());
  }
}

TEST_P(Classifiers, ABatchIsEachAlone) {
  const auto prompts = prompts_of(golden_classes(GetParam()));
  auto model = open_classifier(kClassifiers / GetParam());
  ASSERT_TRUE(model) << model.error().message;
  const auto together = (*model)->classify(prompts);
  ASSERT_TRUE(together);
  for (size_t i = 0; i < prompts.size(); ++i)
    EXPECT_THAT((*model)->classify(std::span(&prompts[i], 1)).value(), ElementsAre((*together)[i]));
}

INSTANTIATE_TEST_SUITE_P(Tiny, Classifiers, ::testing::ValuesIn(classifier_names()),
                         [](const auto& info) { return info.param; });

class CrossEncoders : public ::testing::TestWithParam<std::string> {};

TEST_P(CrossEncoders, AreSentenceTransformers) {
  const fs::path folder = tests_dir() / "golden" / "cross_encoders" / GetParam();
  std::ifstream file(folder / "golden.json");
  const json golden = json::parse(file);
  auto model = open_classifier(folder);
  ASSERT_TRUE(model) << model.error().message;
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const json& row : golden) pairs.emplace_back(row["first"], row["second"]);
  const auto too_long = (*model)->score(pairs);
  ASSERT_FALSE(too_long);
  EXPECT_THAT(too_long.error().message, HasSubstr("pair 3: expected at most 40 tokens"));
  const auto scores = (*model)->score(pairs, {.truncate = true});
  ASSERT_TRUE(scores) << scores.error().message;
  for (size_t i = 0; i < golden.size(); ++i)
    EXPECT_NEAR((*scores)[i], golden[i]["score"].get<double>(), 1e-5) << "pair " << i;
  // In two parts, as servers do it.
  std::vector<std::string> first, second;
  for (const auto& [one, other] : pairs) first.push_back(one), second.push_back(other);
  const auto all = (*model)->pair_tokens(first, second, {.truncate = true}).value();
  EXPECT_EQ((*model)->score_tokens(all).value(), *scores);
  const auto of_one = (*model)->pair_tokens({first.data(), 1}, second, {.truncate = true}).value();
  ASSERT_EQ(of_one.size(), second.size());
  EXPECT_EQ(of_one[0].tokens, all[0].tokens);
  for (auto& [one, other] : pairs) one = first[0];
  EXPECT_EQ((*model)->score_tokens(of_one).value(),
            (*model)->score(pairs, {.truncate = true}).value());
  EXPECT_THAT((*model)->pair_tokens({first.data(), 2}, {second.data(), 3}).error().message,
              HasSubstr("expected one first text or 3, got 2"));
  EXPECT_THAT((*model)->pair_tokens(first, second).error().message,
              HasSubstr("pair 3: expected at most 40"));
}

// The same tokens without the types of pairs: another score where the checkpoint has types, the
// same where it has none.
TEST_P(CrossEncoders, SecondTextsAreOfTheirOwnType) {
  auto model = open_classifier(tests_dir() / "golden" / "cross_encoders" / GetParam()).value();
  const std::vector<std::pair<std::string, std::string>> pairs = {{"the cat", "sat on a mat."}};
  const auto tokens = model->encode_pairs(pairs);
  ASSERT_TRUE(tokens) << tokens.error().message;
  const std::vector<Prompt> prompts = {(*tokens)[0]};
  const float without = model->classify(prompts).value()[0][0],
              with = model->score(pairs).value()[0];
  if (GetParam() == "bert") {
    EXPECT_GT(std::abs(with - without), 1e-3);
  } else {
    EXPECT_EQ(with, without);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, CrossEncoders,
                         ::testing::Values("bert", "roberta", "modernbert", "deberta_v3"),
                         [](const auto& info) { return info.param; });

// llama.cpp's form of Qwen3-Reranker: rows of "yes" and "no", and a template of pairs.
TEST(Rerankers, OfGgufFilesAreTransformers) {
  for (const char* name : {"qwen3_reranker", "qwen3_reranker_tied"}) {
    const fs::path folder = tests_dir() / "golden" / "cross_encoders" / name;
    std::ifstream file(folder / "golden.json");
    const json golden = json::parse(file);
    auto model = open_classifier(folder / "model.gguf");
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ((*model)->info().labels.size(), 1u);
    std::vector<std::pair<std::string, std::string>> pairs;
    for (const json& row : golden) pairs.emplace_back(row["first"], row["second"]);
    const auto tokens = (*model)->encode_pairs(pairs);
    ASSERT_TRUE(tokens) << tokens.error().message;
    const auto scores = (*model)->score(pairs).value();
    const auto logits = (*model)->score(pairs, {.use_activation = false}).value();
    for (size_t i = 0; i < golden.size(); ++i) {
      EXPECT_NEAR(logits[i], golden[i]["logit"].get<double>(), 1e-3) << "pair " << i;
      EXPECT_EQ((*tokens)[i].size(), golden[i]["n_tokens"].get<size_t>()) << "pair " << i;
      EXPECT_NEAR(scores[i], golden[i]["score"].get<double>(), 1e-5) << "pair " << i;
    }
    // Cut at the document's end: what is behind it stays.
    const size_t most = (*tokens)[1].size() - 5;
    const auto cut = (*model)->encode_pairs(pairs, {.truncate_to = static_cast<int>(most)}).value();
    EXPECT_LE(cut[1].size(), most);
    EXPECT_GE(cut[1].size() + 4, most);
    EXPECT_EQ(cut[1].back(), (*tokens)[1].back());
    const auto none = (*model)->encode_pairs(pairs, {.truncate_to = 10});
    EXPECT_THAT(none ? "" : none.error().message, HasSubstr("without its document"));
    // It is read with each document.
    const std::vector<std::string> query = {std::string(20'000, 'a')}, documents(2000, "b");
    const auto much = (*model)->pair_tokens(query, documents, {.truncate = true});
    EXPECT_THAT(much ? "" : much.error().message, HasSubstr("read with each of 2000 documents"));
  }
}

TEST(Classifier, ScoresNeedOneClass) {
  const std::vector<std::pair<std::string, std::string>> pairs = {{"a", "b"}};
  EXPECT_THAT(open_classifier(kClassifiers / "bert").value()->score(pairs).error().message,
              HasSubstr("has 3"));
  EXPECT_THAT(open_classifier(kClassifiers / "llama").value()->score(pairs).error().message,
              HasSubstr("no tokenizer"));
}

// A copy of a checkpoint whose configuration is changed.
class Changed {
 public:
  Changed(const std::string& name, const json& patch)
      : folder_(fs::temp_directory_path() / ("classifier-" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
    fs::copy(kClassifiers / name, folder_, fs::copy_options::recursive);
    fs::remove(folder_ / "model.gguf");
    std::ifstream in(folder_ / "config.json");
    json config = json::parse(in);
    config.merge_patch(patch);
    std::ofstream(folder_ / "config.json") << config;
  }
  ~Changed() { fs::remove_all(folder_); }
  std::string error() const {
    const std::vector<Prompt> one = {std::vector<TokenId>{5, 6}};
    const auto classes = open()->classify(one);
    return classes ? "" : classes.error().message;
  }
  std::unique_ptr<EmbeddingModel> open() const { return open_classifier(folder_).value(); }

 private:
  fs::path folder_;
};

TEST(Classifier, LabelsAndActivationsOfTheCheckpoint) {
  const Changed named(
      "bert", {{"id2label", {{"0", "bad"}, {"1", "fair"}, {"2", "good"}}},
               {"sentence_transformers", {{"activation_fn", "torch.nn.modules.linear.Identity"}}}});
  const auto model = named.open();
  EXPECT_THAT(model->info().labels, ElementsAre("bad", "fair", "good"));
  const json golden = golden_classes("bert");
  expect_near(model->classify(prompts_of(golden)).value()[0], golden[0]["logits"], 1e-4,
              "identity");
}

// A head of tokens is one matrix that each token's state goes through.
TEST(Classifier, ClassesOfTokens) {
  const Changed tokens("bert", {{"architectures", {"BertForTokenClassification"}}});
  const auto model = tokens.open();
  EXPECT_TRUE(model->info().labels_tokens);
  const auto source = open_weights(kClassifiers / "bert").value();
  const int n_classes = static_cast<int>(model->info().labels.size()),
            dim = model->info().dimensions;
  const auto weight =
      read_values(*source, "classifier.weight", std::array<int64_t, 2>{n_classes, dim}).value();
  const auto bias =
      read_values(*source, "classifier.bias", std::array<int64_t, 1>{n_classes}).value();
  const std::vector<Prompt> prompts = prompts_of(golden_classes("bert"));
  const auto states = model->embed_tokens(prompts, {.normalize = false}).value();
  const auto logits = model->classify_tokens(prompts, {.use_activation = false}).value();
  const auto probabilities = model->classify_tokens(prompts).value();
  for (size_t i = 0; i < prompts.size(); ++i) {
    const size_t n_tokens = std::get<std::vector<TokenId>>(prompts[i]).size();
    ASSERT_EQ(logits[i].size(), n_tokens * static_cast<size_t>(n_classes));
    for (size_t t = 0; t < n_tokens; ++t) {
      float sum = 0;
      for (int c = 0; c < n_classes; ++c) {
        double wanted = bias[static_cast<size_t>(c)];
        for (int d = 0; d < dim; ++d)
          wanted += double{weight[c * dim + d]} * states[i][t * dim + d];
        EXPECT_NEAR(logits[i][t * n_classes + c], wanted, 1e-5);
        sum += probabilities[i][t * n_classes + c];
      }
      EXPECT_NEAR(sum, 1, 1e-5);
    }
  }
  EXPECT_THAT(model->classify(prompts).error().message, HasSubstr("classifies tokens"));
  const auto of_texts = open_classifier(kClassifiers / "bert").value();
  EXPECT_THAT(of_texts->classify_tokens(prompts).error().message, HasSubstr("what is pooled"));
}

// The score of a decoder's last token is the score of the text: one matrix reads both.
TEST(Classifier, ADecodersHeadReadsTokensToo) {
  const auto model = open_classifier(kClassifiers / "llama").value();
  const std::vector<Prompt> prompts = prompts_of(golden_classes("llama"));
  const auto texts = model->classify(prompts).value(),
             tokens = model->classify_tokens(prompts).value();
  for (size_t i = 0; i < prompts.size(); ++i) {
    const size_t n = texts[i].size();
    for (size_t c = 0; c < n; ++c)
      EXPECT_NEAR(tokens[i][tokens[i].size() - n + c], texts[i][c], 1e-5);
  }
}

TEST(Classifier, WhatIsWrongIsNamed) {
  EXPECT_THAT(Changed("bert", {{"architectures", {"DebertaForSequenceClassification"}}}).error(),
              HasSubstr("DebertaForSequenceClassification"));
  EXPECT_THAT(Changed("bert", {{"architectures", {"RobertaForSequenceClassification"}}}).error(),
              HasSubstr("classifier.dense.weight"));
  EXPECT_THAT(Changed("modernbert", {{"classifier_pooling", "max"}}).error(),
              HasSubstr("classifier_pooling"));
  EXPECT_THAT(
      Changed("bert", {{"sentence_transformers", {{"activation_fn", "torch.nn.ReLU"}}}}).error(),
      HasSubstr("torch.nn.ReLU"));
  EXPECT_THAT(Changed("bert", {{"architectures", {"BertModel"}}}).error(),
              HasSubstr("no classification head"));
}

}  // namespace
}  // namespace penstock::classify_test
