// Configurations as they are published (tools/make_published.py): each is read as it is, and opens
// with tensors of the names that its checkpoint has, at small sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "formats/mapped_source.h"
#include "model/arch/names.h"
#include "model/arch/read_config.h"
#include "model/runner.h"
#include "model/towers/tower.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using nlohmann::json;

const std::filesystem::path kPublished = tests_dir() / "golden" / "published";

// Tensors of random numbers, which share their bytes; the large ones, of other modalities, have
// none. Constants of hashes of n-grams are integers, those that the configuration alone has.
class MadeUp final : public WeightSource {
 public:
  MadeUp(json config, const json& tensors) : config_(std::move(config)) {
    static const std::vector<float> numbers = [] {
      std::vector<float> values(1 << 20);
      std::mt19937 random(7);
      std::normal_distribution<float> normal(0.0f, 0.1f);
      std::ranges::generate(values, [&] { return normal(random); });
      return values;
    }();
    if (auto alone = read_config(*this)) alone_ = std::move(*alone);
    for (const auto& [name, shape] : tensors.items()) {
      TensorInfo tensor{name, QuantType::kF32, shape.get<std::vector<int64_t>>(), {}};
      const auto n = static_cast<size_t>(tensor.n_elements());
      if (const std::vector<int64_t>* own = constants(name)) {
        tensor.type = QuantType::kI64;
        tensor.bytes = std::as_bytes(std::span(*own));
      } else if (name.ends_with("tid2eid")) {  // any expert
        static const std::vector<int32_t> zeros(1 << 12);
        tensor.type = QuantType::kI32;
        tensor.bytes = std::as_bytes(std::span(zeros).first(n));
      } else if (n <= numbers.size()) {
        tensor.bytes = std::as_bytes(std::span(numbers).first(n));
      }
      tensors_.push_back(std::move(tensor));
    }
  }
  MadeUp(const MadeUp&) = delete;  // tensors refer to alone_
  MadeUp& operator=(const MadeUp&) = delete;
  Naming naming() const override { return Naming::kHuggingFace; }
  const std::filesystem::path& path() const override { return kPublished; }
  const json& config() const override { return config_; }
  const json& generation_config() const override { return nothing_; }
  std::span<const TensorInfo> tensors() const override { return tensors_; }
  std::optional<std::string> side_file(std::string_view) const override { return {}; }
  void drop(const TensorInfo&) const override {}

 private:
  // Returns the integers of a tensor of that name, nullptr of another one.
  const std::vector<int64_t>* constants(std::string_view name) const {
    for (size_t i = 0; i < alone_.layers.size(); ++i) {
      if (alone_.layers[i].ngrams < 0) continue;
      const NgramHashes& hashes =
          alone_.ngrams.hashes[static_cast<size_t>(alone_.layers[i].ngrams)];
      const std::string stem = "." + std::to_string(i) + ".ple.ple_embedding.";
      if (name.ends_with(stem + "layer_multipliers")) return &hashes.multipliers;
      if (name.ends_with(stem + "ngram_heads_vocab_sizes")) return &hashes.sizes;
      if (name.ends_with(stem + "ngram_heads_offsets")) return &hashes.offsets;
    }
    return nullptr;
  }

  json config_, nothing_ = json::object();
  ModelConfig alone_;
  std::vector<TensorInfo> tensors_;
};

class Published : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::ifstream file(kPublished / (GetParam() + ".json"));
    file_ = json::parse(file);
  }
  json file_;
};

TEST_P(Published, IsReadAsItIs) {
  const MadeUp source(file_["config"], json::object());
  const auto config = read_config(source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_GT(config->n_parameters(), 1'000'000);
}

TEST_P(Published, OpensWithTheTensorsOfItsCheckpoint) {
  const auto ops = make_ops("cpu", {.n_threads = 1}).value();
  const MadeUp source(file_["reduced"], file_["tensors"]);
  const auto model = Model::load(source, *ops);
  ASSERT_TRUE(model) << model.error().message;
  if (!(*model)->config().attention.causal) return;
  testing::Runner runner(**model, *ops, 4);
  const std::vector<int> tokens = {1, 2, 3};
  for (const auto& row : runner.run(0, tokens))
    EXPECT_TRUE(std::ranges::all_of(row, [](float logit) { return std::isfinite(logit); }));
}

// A tensor of the text model that nobody knows would change what it computes.
TEST_P(Published, IsRefusedWithATensorTooMany) {
  const auto ops = make_ops("cpu", {.n_threads = 1}).value();
  json tensors = file_["tensors"];
  const ModelConfig config = read_config(MadeUp(file_["reduced"], tensors)).value();
  const NameTable names = tensor_names(config, Naming::kHuggingFace);
  const auto prefix = std::ranges::find_if(names.prefixes, [&](std::string_view begin) {
    return tensors.contains(std::string(begin) + std::string(names.embedding) + ".weight");
  });
  ASSERT_NE(prefix, names.prefixes.end());
  tensors[std::string(*prefix) + with_index(names.layer, 0) + "unheard_of.weight"] = {4, 4};
  const auto model = Model::load(MadeUp(file_["reduced"], tensors), *ops);
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message, ::testing::HasSubstr("unheard_of"));
}

// The files whose tensors are enough for a tower's configuration; sizes of published towers are in
// published_towers_test.cc.
TEST(PublishedFiles, HaveTowers) {
  for (const char* name :
       {"aya_vision", "cohere2_vision", "glm46v", "glm4v", "idefics3", "internvl", "lfm2_vl",
        "llama4", "llava", "llava_next", "llava_onevision", "mistral3", "smolvlm"}) {
    SCOPED_TRACE(name);
    std::ifstream stream(kPublished / (std::string(name) + ".json"));
    const json file = json::parse(stream);
    const MadeUp source(file["config"], file["tensors"]);
    const auto tower = Tower::read_config(source);
    ASSERT_TRUE(tower) << tower.error().message;
    EXPECT_TRUE(tower->has_value());
  }
}

std::vector<std::string> published_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kPublished))
    names.push_back(entry.path().stem().string());
  std::ranges::sort(names);
  return names;
}

INSTANTIATE_TEST_SUITE_P(
    All, Published, ::testing::ValuesIn(published_names()), [](const auto& info) {
      std::string name = info.param;
      std::ranges::replace_if(
          name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
      return name;
    });

}  // namespace
}  // namespace penstock
