// Vectors of encoders and decoders against transformers' and sentence-transformers'
// (tools/make_tiny_encoders.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "penstock/embed.h"
#include "penstock/engine.h"
#include "support/test_data.h"

namespace penstock::embedding_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using Vectors = std::vector<std::vector<float>>;

const fs::path kGolden = tests_dir() / "golden";

std::unique_ptr<EmbeddingModel> open_model(const fs::path& path, int step_tokens = 0,
                                           bool invariant = false) {
  EngineConfig config;
  config.model = path.string();
  config.threads = 2;
  config.max_num_batched_tokens = step_tokens;
  config.batch_invariant = invariant;
  auto opened = EmbeddingModel::open(config);
  EXPECT_TRUE(opened.has_value()) << opened.error().message;
  return std::move(opened).value();
}

std::string open_error(const fs::path& path) {
  EngineConfig config;
  config.model = path.string();
  const auto opened = EmbeddingModel::open(config);
  return opened ? "" : opened.error().message;
}

json golden_of(const fs::path& folder) {
  std::ifstream file(folder / "golden.json");
  return json::parse(file);
}

EmbedOptions with(Pooling pooling) {
  EmbedOptions options;
  options.pooling = pooling;
  options.normalize = false;
  return options;
}

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    most = std::max<double>(most, std::fabs(a[i] - b[i]));
  return most;
}

std::vector<std::string> folders(const char* kind) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kGolden / kind))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

class Encoders : public ::testing::TestWithParam<std::string> {
 protected:
  static std::vector<fs::path> forms() {
    const fs::path folder = kGolden / "encoders" / GetParam();
    std::vector<fs::path> forms = {folder};
    if (fs::exists(folder / "model.gguf")) forms.push_back(folder / "model.gguf");
    return forms;
  }
  static std::vector<Prompt> sequences() {
    std::vector<Prompt> all;
    for (const json& row : golden_of(kGolden / "encoders" / GetParam()))
      all.emplace_back(row["ids"].get<std::vector<TokenId>>());
    return all;
  }
};

TEST_P(Encoders, PooledStatesAreTransformers) {
  const json golden = golden_of(kGolden / "encoders" / GetParam());
  for (const fs::path& path : forms()) {
    const auto model = open_model(path);
    for (const auto& [name, pooling] :
         {std::pair{"mean", Pooling::kMean}, {"cls", Pooling::kCls}, {"last", Pooling::kLast}}) {
      const Vectors vectors = model->embed(sequences(), with(pooling)).value();
      ASSERT_EQ(vectors.size(), golden.size());
      for (size_t i = 0; i < vectors.size(); ++i) {
        const auto wanted = golden[i][name].get<std::vector<float>>();
        EXPECT_LT(difference(vectors[i], wanted), 1e-4) << path << " " << name << " sequence " << i;
      }
    }
  }
}

// Steps are those of one engine, whoever takes them.
TEST_P(Encoders, SeveralEnginesGiveTheVectorsOfOne) {
  const std::vector<Prompt> own = sequences();
  std::vector<Prompt> many;
  for (int i = 0; i < 8; ++i) many.insert(many.end(), own.begin(), own.end());
  EngineConfig config;
  config.model = (kGolden / "encoders" / GetParam()).string();
  config.threads = 1, config.max_num_batched_tokens = 24;
  const auto one = EmbeddingModel::open(config).value();
  config.data_parallel_size = 3;
  const auto three = EmbeddingModel::open(config).value();
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(three->embed(many, with(Pooling::kMean)).value(),
              one->embed(many, with(Pooling::kMean)).value());
  EXPECT_EQ(three->embed_tokens(many, {}).value(), one->embed_tokens(many, {}).value());
  EmbedOptions stopped = with(Pooling::kMean);
  stopped.on_progress = [](size_t n_done, size_t) { return n_done == 0; };
  const auto ended = three->embed(many, stopped);
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ErrorCode::kCancelled);
  many[many.size() / 2] = std::vector<TokenId>{-1};
  EXPECT_THAT(three->embed(many, with(Pooling::kMean)).error().message,
              HasSubstr("sequence " + std::to_string(many.size() / 2)));
}

TEST_P(Encoders, SequencesDoNotSeeEachOther) {
  for (const fs::path& path : forms()) {
    const std::vector<Prompt> all = sequences();
    const auto model = open_model(path, 0, true);
    const Vectors together = model->embed(all, with(Pooling::kMean)).value();
    for (size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(model->embed(std::span(&all[i], 1), with(Pooling::kMean)).value()[0], together[i]);
    // Steps of 10 tokens: a longer sequence is a step by itself.
    EXPECT_EQ(open_model(path, 10, true)->embed(all, with(Pooling::kMean)).value(), together);
  }
}

TEST_P(Encoders, VectorsOfTokensAreWhatIsPooled) {
  for (const fs::path& path : forms()) {
    const std::vector<Prompt> all = sequences();
    const auto model = open_model(path, 10);
    const Vectors pooled = model->embed(all, with(Pooling::kMean)).value();
    const Vectors of_tokens = model->embed_tokens(all, with(Pooling::kMean)).value();
    for (size_t i = 0; i < all.size(); ++i) {
      const size_t n = std::get<std::vector<TokenId>>(all[i]).size(), dim = pooled[i].size();
      ASSERT_EQ(of_tokens[i].size(), n * dim);
      std::vector<float> mean(dim);
      for (size_t k = 0; k < of_tokens[i].size(); ++k)
        mean[k % dim] += of_tokens[i][k] / static_cast<float>(n);
      EXPECT_LT(difference(mean, pooled[i]), 1e-5) << path << " sequence " << i;
    }
  }
}

TEST_P(Encoders, GiveNoText) {
  for (const fs::path& path : forms()) {
    EngineConfig config;
    config.model = path.string();
    const auto engine = Engine::open(config);
    EXPECT_THAT(engine ? "" : engine.error().message, HasSubstr("penstock embed"));
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, Encoders, ::testing::ValuesIn(folders("encoders")),
                         [](const auto& info) { return info.param; });

class Sentences : public ::testing::TestWithParam<std::string> {};

TEST_P(Sentences, AreSentenceTransformers) {
  const fs::path folder = kGolden / "sentences" / GetParam();
  const auto model = open_model(folder);
  EXPECT_EQ(model->info().max_tokens, 32);
  for (const json& row : golden_of(folder)) {
    EmbedOptions options;
    options.truncate = true;
    if (row["prompt_name"].is_string()) options.prompt_name = row["prompt_name"].get<std::string>();
    const Prompt text = row["text"].get<std::string>();
    const auto vectors = model->embed(std::span(&text, 1), options);
    ASSERT_TRUE(vectors.has_value()) << vectors.error().message;
    EXPECT_EQ(model->info().dimensions, static_cast<int>(vectors->at(0).size()));
    EXPECT_LT(difference(vectors->at(0), row["embedding"].get<std::vector<float>>()), 1e-5)
        << row["text"];
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, Sentences, ::testing::ValuesIn(folders("sentences")),
                         [](const auto& info) { return info.param; });

// Decoders go in pieces; a piece more or less changes nothing. The last state's logits are those of
// the engine.
TEST(Embedding, DecodersInPieces) {
  std::vector<TokenId> ids;
  for (int i = 0; i < 61; ++i) ids.push_back((i * 7 + 3) % 50);
  const std::vector<Prompt> inputs = {ids, std::vector<TokenId>{5, 6, 7}};
  for (const char* name : {"llama2", "qwen3", "lfm2", "qwen3_5_text", "gemma4", "deepseek_v3"}) {
    const Vectors whole =
        open_model(kGolden / "models" / name)->embed(inputs, with(Pooling::kMean)).value();
    const Vectors pieces =
        open_model(kGolden / "models" / name, 9)->embed(inputs, with(Pooling::kMean)).value();
    for (size_t i = 0; i < whole.size(); ++i)
      EXPECT_LT(difference(whole[i], pieces[i]), 1e-4) << name;
    const auto last = open_model(kGolden / "models" / name)->embed(inputs).value();
    EXPECT_GT(difference(whole[0], last[0]), 1e-3) << "a decoder's last state is taken";
  }
}

TEST(Embedding, DimensionsAreCutBeforeNormalising) {
  const auto model = open_model(kGolden / "sentences" / "mean_normalized");
  const std::vector<Prompt> inputs = {std::string("the cat")};
  EmbedOptions options;
  options.normalize = false;
  const std::vector<float> all = model->embed(inputs, options).value()[0];
  options.normalize = true;
  options.dimensions = 5;
  const std::vector<float> few = model->embed(inputs, options).value()[0];
  ASSERT_EQ(few.size(), 5u);
  double length = 0;
  for (size_t i = 0; i < few.size(); ++i) length += double{all[i]} * all[i];
  for (size_t i = 0; i < few.size(); ++i) EXPECT_NEAR(few[i], all[i] / std::sqrt(length), 1e-6);
}

TEST(Embedding, TokensThatAreGivenBackAreReadTheSame) {
  const auto model = open_model(kGolden / "sentences" / "cls_with_prompts");
  const std::vector<Prompt> texts = {std::string("the cat sat on a mat"),
                                     std::vector<TokenId>{2, 6, 7, 8, 3}};
  for (const int most : {0, 4}) {
    EmbedOptions options;
    options.truncate_to = most;
    const auto tokens = model->encode(texts, options);
    ASSERT_TRUE(tokens) << tokens.error().message;
    if (most > 0) {
      EXPECT_EQ((*tokens)[0].size(), 4u);
      EXPECT_EQ((*tokens)[0].back(), 3);  // [SEP] stays
      EXPECT_EQ((*tokens)[1], (std::vector<TokenId>{2, 6, 7, 8}));
    }
    const std::vector<Prompt> ids(tokens->begin(), tokens->end());
    EXPECT_EQ(model->embed(ids).value(), model->embed(texts, options).value());
  }
  EmbedOptions options;
  options.truncate_to = 100000;
  EXPECT_THAT(model->encode(texts, options).error().message,
              HasSubstr("truncate_to: expected at most"));
}

TEST(Embedding, ErrorsNameTheInput) {
  const auto model = open_model(kGolden / "encoders" / "bert");
  const auto error = [&](std::vector<Prompt> inputs, EmbedOptions options = {}) {
    const auto got = model->embed(inputs, options);
    return got ? "" : got.error().message;
  };
  const std::vector<TokenId> good = {1, 2, 3};
  EXPECT_THAT(error({good, std::vector<TokenId>{}}),
              HasSubstr("sequence 1: expected at least one token"));
  EXPECT_THAT(error({good, std::vector<TokenId>{4, 53}}),
              HasSubstr("token id 53: expected 0 to 52"));
  EXPECT_THAT(error({good, std::vector<TokenId>{-1}}), HasSubstr("token id -1"));
  EXPECT_THAT(error({std::vector<TokenId>(49, 3)}),
              HasSubstr("expected at most 48 tokens, got 49"));
  EXPECT_THAT(error({good, std::string("text")}),
              HasSubstr("input 1: the checkpoint has no tokenizer"));
  EmbedOptions options;
  options.dimensions = 25;
  EXPECT_THAT(error({good}, options), HasSubstr("dimensions: expected at most 24, got 25"));
  options = {};
  options.prompt_name = "query";
  EXPECT_THAT(error({good}, options), HasSubstr("prompt_name"));
  const auto sentences = open_model(kGolden / "sentences" / "max");
  const std::vector<Prompt> longest = {std::string(400, '1') +
                                       std::string(" the the the the the the the the the the the "
                                                   "the the the the the the the the the the the "
                                                   "the the the the the the the the the the the")};
  const auto got = sentences->embed(longest);
  EXPECT_THAT(got ? "" : got.error().message, HasSubstr("input 0: expected at most 32 tokens"));
}

// Modules that are not known, and files that do not fit.
TEST(Embedding, ModulesAreRefusedByName) {
  const fs::path dir = fs::path(::testing::TempDir()) / "penstock_modules";
  const auto changed = [&](const char* file, const json& content) {
    fs::remove_all(dir);
    fs::copy(kGolden / "sentences" / "dense", dir, fs::copy_options::recursive);
    std::ofstream(dir / file) << content.dump();
    return open_error(dir);
  };
  const auto module = [](const char* type, const char* path) {
    return json{{"type", type}, {"path", path}};
  };
  EXPECT_THAT(changed("modules.json", json::array({module("a.LSTM", "1_LSTM")})),
              HasSubstr("a.LSTM is not known"));
  EXPECT_THAT(changed("modules.json", json::array({7})), HasSubstr("expected objects with a type"));
  EXPECT_THAT(changed("modules.json", json::array({module("a.Pooling", "../x")})),
              HasSubstr("is missing"));
  EXPECT_THAT(changed("1_Pooling/config.json", {{"pooling_mode", "median"}}), HasSubstr("median"));
  EXPECT_THAT(changed("1_Pooling/config.json", {{"pooling_mode_best_tokens", true}}),
              HasSubstr("pooling_mode_best"));
  EXPECT_THAT(changed("2_Dense/config.json", {{"in_features", 23}, {"out_features", 30}}),
              HasSubstr("in_features 24"));
  EXPECT_THAT(changed("2_Dense/config.json", {{"in_features", 24}, {"out_features", 31}}),
              HasSubstr("linear.weight"));
  EXPECT_THAT(changed("2_Dense/config.json", {{"in_features", 24},
                                              {"out_features", 30},
                                              {"activation_function", "torch.nn.ReLU"}}),
              HasSubstr("activation_function"));
  EXPECT_THAT(changed("2_Dense/config.json",
                      {{"in_features", 24}, {"out_features", 30}, {"activation_function", 7}}),
              HasSubstr("activation_function"));
  EXPECT_THAT(changed("config_sentence_transformers.json", {{"default_prompt_name", "x"}}),
              HasSubstr("default_prompt_name"));
  fs::remove_all(dir);
}

}  // namespace
}  // namespace penstock::embedding_test
