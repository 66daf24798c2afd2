// The models in models/: every one loads, and its held-out perplexity is what models/eval.json (and
// its card) says. The protocol is training/README.md's; the ids come from training/report.py, so
// that only the model is tested here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "formats/weight_source.h"
#include "model/runner.h"
#include "support/test_data.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::Rows;
using testing::Runner;

const fs::path kShipped = models_dir();

json read_eval() {
  std::ifstream file(kShipped / "eval.json");
  return json::parse(file);
}

// One story a line, `<s>` first.
std::vector<std::vector<int>> read_stories() {
  std::ifstream file(tests_dir() / "golden" / "heldout_tinystories.ids");
  std::vector<std::vector<int>> stories;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::vector<int>& ids = stories.emplace_back();
    for (int id = 0; words >> id;) ids.push_back(id);
  }
  return stories;
}

double log_probability(const std::vector<float>& logits, int id) {
  const double top = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float z : logits) sum += std::exp(z - top);
  return logits[static_cast<size_t>(id)] - top - std::log(sum);
}

// Sum over the shares of the probability that both rows give to a token.
double overlap(const std::vector<float>& a, const std::vector<float>& b) {
  const auto normalizer = [](const std::vector<float>& z) {
    double sum = 0;
    for (const float x : z) sum += std::exp(x);
    return std::log(sum);
  };
  const double na = normalizer(a), nb = normalizer(b);
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::min(std::exp(a[i] - na), std::exp(b[i] - nb));
  return sum;
}

struct Opened {
  std::unique_ptr<Ops> ops;
  std::unique_ptr<WeightSource> source;
  std::unique_ptr<Model> model;
};

Opened load(const fs::path& path) {
  Opened loaded{
      .ops = make_ops("cpu", {.n_threads = 1}).value(), .source = nullptr, .model = nullptr};
  auto source = open_weights(path);
  EXPECT_TRUE(source) << source.error().message;
  loaded.source = std::move(source).value();
  auto model = Model::load(*loaded.source, *loaded.ops);
  EXPECT_TRUE(model) << model.error().message;
  loaded.model = std::move(model).value();
  return loaded;
}

std::vector<std::string> language_models() {
  std::vector<std::string> names;
  const json eval = read_eval();
  for (const auto& [name, record] : eval.at("files").items()) {
    if (record.contains("perplexity")) names.push_back(name);
  }
  return names;
}

class ShippedModel : public ::testing::TestWithParam<std::string> {};

// Expects the model at path to have the recorded perplexity, to a part.
void expect_perplexity(const fs::path& path, const json& record, double tolerance) {
  const Opened loaded = load(path);
  double sum = 0;
  int64_t n = 0;
  for (const std::vector<int>& ids : read_stories()) {
    Runner runner(*loaded.model, *loaded.ops);
    const Rows logits = runner.run(0, ids);
    for (size_t i = 1; i < ids.size(); ++i) sum += log_probability(logits[i - 1], ids[i]);
    n += static_cast<int64_t>(ids.size()) - 1;
  }
  EXPECT_EQ(n, record.at("tokens").get<int64_t>());
  const double expected = record.at("perplexity").get<double>();
  EXPECT_NEAR(std::exp(-sum / static_cast<double>(n)), expected, tolerance * expected);
}

TEST_P(ShippedModel, HeldOutPerplexityIsTheRecordedOne) {
  // Recorded in F32; here activations may be rounded to 8 bits.
  expect_perplexity(kShipped / GetParam(), read_eval().at("files").at(GetParam()), 0.01);
}

TEST(ShippedModels, Bf16DirectoryMeasuresAsItsGguf) {
  expect_perplexity(kShipped / "penstock-stories-1m-bf16",
                    read_eval().at("files").at("penstock-stories-1m-q8_0.gguf"), 0.005);
}

TEST_P(ShippedModel, EarlyExitAcceptanceIsTheRecordedOne) {
  const json record = read_eval().at("files").at(GetParam());
  if (!record.contains("exit_acceptance")) return;  // it has no early exit
  const Opened loaded = load(kShipped / GetParam());
  const int exit_layer = record.at("exit_layer").get<int>();
  double sum = 0;
  int64_t n = 0;
  for (const std::vector<int>& ids : read_stories()) {
    Runner all(*loaded.model, *loaded.ops), early(*loaded.model, *loaded.ops);
    const Rows p = all.run(0, ids), q = early.step({{0, ids}}, {.n_layers = exit_layer});
    for (size_t i = 0; i + 1 < ids.size(); ++i) sum += overlap(p[i], q[i]);
    n += static_cast<int64_t>(ids.size()) - 1;
  }
  EXPECT_NEAR(sum / static_cast<double>(n), record.at("exit_acceptance").get<double>(), 0.01);
}

INSTANTIATE_TEST_SUITE_P(Models, ShippedModel, ::testing::ValuesIn(language_models()),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace_if(
                               name,
                               [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); },
                               '_');
                           return name;
                         });

// How often one half of a story finds its other half among those of all stories, by the mean of the
// states.
TEST(ShippedModels, EmbeddingRetrievalIsTheRecordedOne) {
  const std::string name = "penstock-embed-2m-q8_0.gguf";
  const json record = read_eval().at("files").at(name);
  const Opened loaded = load(kShipped / name);
  EXPECT_EQ(loaded.source->config().value("llama.pooling_type", 0), 1)
      << "a server has to pool by the mean too";
  std::vector<std::vector<double>> vectors[2];
  for (const std::vector<int>& ids : read_stories()) {
    const std::vector<int> body(ids.begin() + 1,
                                ids.begin() + std::min<std::ptrdiff_t>(std::ssize(ids), 511));
    const auto middle = body.begin() + std::ssize(body) / 2;
    for (const int side : {0, 1}) {
      std::vector<int> half = {ids[0]};
      half.insert(half.end(), side == 0 ? body.begin() : middle, side == 0 ? middle : body.end());
      Runner runner(*loaded.model, *loaded.ops);
      runner.run(0, half);
      std::vector<double> mean(runner.hidden()[0].size());
      for (const auto& state : runner.hidden()) {
        for (size_t i = 0; i < mean.size(); ++i) mean[i] += state[i];
      }
      const double length =
          std::sqrt(std::inner_product(mean.begin(), mean.end(), mean.begin(), 0.0));
      for (double& value : mean) value /= length;
      vectors[side].push_back(std::move(mean));
    }
  }
  const size_t n = vectors[0].size();
  double hits = 0, same = 0, other = 0;
  std::vector<std::vector<double>> scores(n, std::vector<double>(n));
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      scores[i][j] = std::inner_product(vectors[0][i].begin(), vectors[0][i].end(),
                                        vectors[1][j].begin(), 0.0);
      (i == j ? same : other) += scores[i][j];
    }
  }
  for (size_t i = 0; i < n; ++i) {
    hits +=
        std::ranges::max_element(scores[i]) - scores[i].begin() == static_cast<std::ptrdiff_t>(i);
    const auto column =
        std::ranges::max_element(scores, {}, [&](const auto& row) { return row[i]; });
    hits += column - scores.begin() == static_cast<std::ptrdiff_t>(i);
  }
  const double count = static_cast<double>(n);
  EXPECT_NEAR(same / count, record.at("similarity_same").get<double>(), 0.005);
  EXPECT_NEAR(other / (count * (count - 1)), record.at("similarity_other").get<double>(), 0.005);
  EXPECT_NEAR(hits / (2 * count), record.at("retrieval_top1").get<double>(), 0.02);
}

TEST(ShippedModels, AreRecordedHaveACardAndFit) {
  const json files = read_eval().at("files");
  uintmax_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kShipped)) {
    if (entry.is_regular_file()) bytes += entry.file_size();
    if (entry.path().extension() != ".gguf") continue;
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(files.contains(name)) << name << " is not in models/eval.json";
  }
  for (const auto& [name, record] : files.items()) {
    EXPECT_TRUE(fs::exists(kShipped / name)) << name;
    EXPECT_TRUE(fs::exists(kShipped / record.at("card").get<std::string>())) << name;
  }
  EXPECT_LE(bytes, 40u << 20);
  EXPECT_LE(fs::file_size(kShipped / "penstock-stories-15m-q8_0.gguf"), 20u << 20);
}

}  // namespace
}  // namespace penstock
