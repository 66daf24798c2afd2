// Real checkpoints in the data folder: the same model from every format, known texts, known
// perplexities.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unordered_map>

#include "formats/weight_source.h"
#include "model/runner.h"
#include "support/plain_ops.h"
#include "support/test_data.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::max_difference;
using testing::Rows;
using testing::Runner;

struct Loaded {
  std::unique_ptr<Ops> ops;
  std::unique_ptr<WeightSource> source;
  std::unique_ptr<Model> model;
};

Loaded load(const fs::path& path) {
  Loaded loaded;
  loaded.ops = make_ops("cpu", {.n_threads = 1}).value();
  auto source = open_weights(path);
  EXPECT_TRUE(source) << source.error().message;
  loaded.source = std::move(source).value();
  auto model = Model::load(*loaded.source, *loaded.ops);
  EXPECT_TRUE(model) << model.error().message;
  loaded.model = std::move(model).value();
  return loaded;
}

// Just enough of SentencePiece BPE for plain stories: joins the pair with the best score until none
// is left.
class StoryTokenizer {
 public:
  explicit StoryTokenizer(const nlohmann::json& metadata) {
    for (const auto& piece : metadata.at("tokenizer.ggml.tokens"))
      pieces_.push_back(piece.get<std::string>());
    for (const auto& score : metadata.at("tokenizer.ggml.scores"))
      scores_.push_back(score.get<float>());
    for (size_t i = 0; i < pieces_.size(); ++i) ids_.emplace(pieces_[i], static_cast<int>(i));
  }

  std::vector<int> encode(const std::string& text) const {
    std::string spaced = "\xe2\x96\x81";
    for (const char c : text) c == ' ' ? spaced += "\xe2\x96\x81" : spaced += c;
    std::vector<std::string> parts;
    for (size_t i = 0; i < spaced.size();) {
      const auto lead = static_cast<unsigned char>(spaced[i]);
      const size_t n = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
      parts.push_back(spaced.substr(i, n));
      i += n;
    }
    while (true) {
      float best = -1e30f;
      size_t at = parts.size();
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto found = ids_.find(parts[i] + parts[i + 1]);
        if (found != ids_.end() && scores_[found->second] > best)
          best = scores_[found->second], at = i;
      }
      if (at == parts.size()) break;
      parts[at] += parts[at + 1];
      parts.erase(parts.begin() + static_cast<long>(at) + 1);
    }
    std::vector<int> ids = {1};
    for (const std::string& part : parts) {
      const auto found = ids_.find(part);
      if (found != ids_.end()) {
        ids.push_back(found->second);
      } else {
        for (const char c : part)
          ids.push_back(ids_.at(fmt::format("<0x{:02X}>", static_cast<unsigned char>(c))));
      }
    }
    return ids;
  }

  std::string decode(std::span<const int> ids) const {
    std::string text;
    for (const int id : ids) text += pieces_[id];
    for (size_t at; (at = text.find("\xe2\x96\x81")) != std::string::npos;)
      text.replace(at, 3, " ");
    return text;
  }

 private:
  std::vector<std::string> pieces_;
  std::vector<float> scores_;
  std::unordered_map<std::string, int> ids_;
};

TEST(Stories260K, GgufAndDirectoryGiveTheSameLogits) {
  REQUIRE_TEST_DATA("models/stories260K-f32.gguf");
  const Loaded gguf = load(test_data_dir() / "models/stories260K-f32.gguf");
  const Loaded hf = load(test_data_dir() / "models/stories260K-hf");
  const std::vector<int> ids =
      StoryTokenizer(gguf.source->config()).encode("Once upon a time, there was a cat who");
  Runner a(*gguf.model, *gguf.ops), b(*hf.model, *hf.ops);
  EXPECT_LE(max_difference(a.run(0, ids), b.run(0, ids)), 1e-3f);
}

struct Story {
  const char* file;
  const char* continuation;  // greedy, after "Once upon a time"
  double perplexity;         // per token over stories, each on its own, BOS first
};

void PrintTo(const Story& story, std::ostream* out) { *out << story.file; }

class Stories : public ::testing::TestWithParam<Story> {};

// The known continuation is the model's choice token by token. Rounding (8-bit activations) may
// turn a near tie: "saw" and "went" of stories3M are 0.01 apart in F32.
TEST_P(Stories, GreedyText) {
  REQUIRE_TEST_DATA(fs::path("models") / GetParam().file);
  const Loaded loaded = load(test_data_dir() / "models" / GetParam().file);
  const StoryTokenizer tokenizer(loaded.source->config());
  Runner runner(*loaded.model, *loaded.ops);
  const std::vector<int> ids =
      tokenizer.encode(std::string("Once upon a time") + GetParam().continuation);
  const size_t n_prompt = tokenizer.encode("Once upon a time").size();
  const Rows logits = runner.run(0, ids);
  int n_first = 0;
  for (size_t i = n_prompt; i < ids.size(); ++i) {
    const std::vector<float>& row = logits[i - 1];
    const float behind = *std::ranges::max_element(row) - row[ids[i]];
    EXPECT_LE(behind, 0.25f) << tokenizer.decode(std::span<const int>(&ids[i], 1)) << " at " << i;
    n_first += behind == 0 ? 1 : 0;
  }
  EXPECT_GE(n_first + 2, static_cast<int>(ids.size() - n_prompt));
}

TEST_P(Stories, Perplexity) {
  REQUIRE_TEST_DATA(fs::path("models") / GetParam().file);
  REQUIRE_TEST_DATA("corpora/tinystories_real_merged.txt");
  const Loaded loaded = load(test_data_dir() / "models" / GetParam().file);
  const StoryTokenizer tokenizer(loaded.source->config());
  Runner runner(*loaded.model, *loaded.ops, 4096);
  std::ifstream file(test_data_dir() / "corpora/tinystories_real_merged.txt");
  std::string line, story;
  double sum = 0;
  int64_t count = 0;
  for (int n = 0; n < 20 && std::getline(file, line);) {
    if (line != "<|endoftext|>") {
      story += (story.empty() ? "" : "\n") + line;
      continue;
    }
    std::vector<int> ids = tokenizer.encode(story);
    if (ids.size() > 500) ids.resize(500);
    const Rows logits = runner.run(n++, ids);
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const float top = *std::ranges::max_element(logits[i]);
      double total = 0;
      for (const float logit : logits[i]) total += std::exp(static_cast<double>(logit - top));
      sum += std::log(total) + top - logits[i][ids[i + 1]];
      ++count;
    }
    story.clear();
  }
  const double perplexity = std::exp(sum / static_cast<double>(count));
  RecordProperty("perplexity", std::to_string(perplexity));
  EXPECT_NEAR(perplexity, GetParam().perplexity, 0.1 * GetParam().perplexity) << count << " tokens";
}

INSTANTIATE_TEST_SUITE_P(
    Real, Stories,
    ::testing::Values(
        Story{"stories260K-f32.gguf", ", there was a little girl named Lily.", 3.66},
        Story{"stories3M-q8_0.gguf",
              ", there was a little girl named Lily. She loved to play outside in the sunshine. "
              "One day, she went to the park with her mom.",
              3.44},
        Story{
            "bitllama-3m-tq2_0.gguf",
            ", there was a little girl named Lily. She loved to play outside and explore the world "
            "around her. One day, she saw a big, red ball.",
            3.36}),
    [](const auto& info) {
      std::string name = info.param.file;
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
      return name;
    });

// tools/dump_reference.py: the last rows of logits that transformers computes with the decoded
// weights.
class QuantizedFile : public ::testing::TestWithParam<std::string> {};

TEST_P(QuantizedFile, LogitsNearTheDecodedWeights) {
  const std::string name = GetParam();
  const std::string relative = name == "tiny-hf" ? "quant/tiny-hf" : "quant/gguf/" + name + ".gguf";
  REQUIRE_TEST_DATA(relative);
  std::ifstream file(tests_dir() / "golden" / "quant" / (name + ".bin"), std::ios::binary);
  int32_t header[3] = {};
  file.read(reinterpret_cast<char*>(header), sizeof header);
  std::vector<int> ids(static_cast<size_t>(header[0]));
  file.read(reinterpret_cast<char*>(ids.data()), header[0] * 4);
  std::vector<float> expected(static_cast<size_t>(header[1]) * header[2]);
  file.read(reinterpret_cast<char*>(expected.data()),
            static_cast<std::streamsize>(expected.size() * 4));
  ASSERT_TRUE(file.good());

  const Loaded loaded = load(test_data_dir() / relative);
  Runner runner(*loaded.model, *loaded.ops);
  const Rows rows = runner.run(0, ids);
  double error = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double got = rows[rows.size() - header[1] + i / header[2]][i % header[2]];
    error += (got - expected[i]) * (got - expected[i]);
    norm += static_cast<double>(expected[i]) * expected[i];
  }
  RecordProperty("relative_error", std::to_string(std::sqrt(error / norm)));
  EXPECT_LE(std::sqrt(error / norm), 0.03);  // activations in 8 bits
}

INSTANTIATE_TEST_SUITE_P(Tiny, QuantizedFile,
                         ::testing::Values("tiny-hf", "tiny-iq3_s", "tiny-iq4_nl", "tiny-iq4_xs",
                                           "tiny-mxfp4_moe", "tiny-q2_k", "tiny-q3_k_m",
                                           "tiny-q4_1", "tiny-q4_k_m", "tiny-q5_1", "tiny-q5_k_m",
                                           "tiny-q6_k", "tiny-tq1_0", "tiny-tq2_0"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name)
                             c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

// Checkpoints of other quantizers, with the logits of the tool that made them (some round
// activations too).
class Prequantized : public ::testing::TestWithParam<std::string> {};

TEST_P(Prequantized, LogitsNearTheirOwn) {
  const fs::path relative = fs::path("quant") / ("tiny-" + GetParam());
  REQUIRE_TEST_DATA(relative / "oracle.safetensors");
  const auto oracle = open_weights(test_data_dir() / relative / "oracle.safetensors");
  ASSERT_TRUE(oracle) << oracle.error().message;
  const TensorInfo* ids = (*oracle)->find("input_ids");
  const TensorInfo* logits = (*oracle)->find("logits");
  ASSERT_TRUE(ids != nullptr && logits != nullptr && logits->type == QuantType::kF32);
  std::vector<int> tokens;
  for (int64_t i = 0; i < ids->n_elements(); ++i)
    tokens.push_back(static_cast<int>(reinterpret_cast<const int64_t*>(ids->bytes.data())[i]));

  const Loaded loaded = load(test_data_dir() / relative);
  Runner runner(*loaded.model, *loaded.ops);
  const Rows rows = runner.run(0, tokens);
  const float* expected = reinterpret_cast<const float*>(logits->bytes.data());
  double error = 0, norm = 0;
  for (const std::vector<float>& row : rows) {
    for (const float got : row) {
      error += (got - *expected) * (got - *expected);
      norm += static_cast<double>(*expected) * *expected;
      ++expected;
    }
  }
  RecordProperty("relative_error", std::to_string(std::sqrt(error / norm)));
  // That tool rounds activations to 8 bits of floating point (3 of mantissa); this decoder keeps
  // them.
  EXPECT_LE(std::sqrt(error / norm), GetParam() == "ct-fp8_dyn" ? 0.12 : 0.05);
}

// Of the same weights in F32 on the CPU.
TEST_P(Prequantized, EmulatedCudaGivesTheSameLogits) {
  const fs::path relative = fs::path("quant") / ("tiny-" + GetParam());
  REQUIRE_TEST_DATA(relative / "config.json");
  const auto made = make_ops("cuda_emulated", {.n_threads = 1});
  if (!made) GTEST_SKIP() << made.error().message;
  PlainOps plain;
  const int tokens[] = {3, 1, 41, 5, 9, 26, 5, 35};
  Rows rows[2];
  for (Ops* const ops : {static_cast<Ops*>(&plain), made->get()}) {
    const auto source = open_weights(test_data_dir() / relative).value();
    const auto model = Model::load(*source, *ops);
    ASSERT_TRUE(model) << model.error().message;
    rows[ops == &plain ? 0 : 1] = Runner(**model, *ops).run(0, tokens);
  }
  double error = 0, norm = 0;
  for (size_t i = 0; i < rows[0].size(); ++i) {
    for (size_t j = 0; j < rows[0][i].size(); ++j)
      error += std::pow(rows[1][i][j] - rows[0][i][j], 2), norm += std::pow(rows[0][i][j], 2);
  }
  RecordProperty("relative_error", std::to_string(std::sqrt(error / norm)));
  // As in cuda_types_test.cc; LLM.int8's activations are rounded to 8 bits by the CPU only.
  const double limit = GetParam() == "bnb-int8"                      ? 3e-2
                       : GetParam().starts_with("ct-w8a8")           ? 1e-2
                       : GetParam().find("nf4") != std::string::npos ? 5e-3
                                                                     : 1e-4;
  EXPECT_LE(std::sqrt(error / norm), limit);
}

INSTANTIATE_TEST_SUITE_P(Tiny, Prequantized,
                         ::testing::Values("gptq4", "gptq4_actorder", "gptq4_g32", "gptq8",
                                           "awq_gemm", "autoawq", "bnb-int8", "bnb-nf4_dq", "nf4",
                                           "ct-fp8_dyn", "ct-mxfp4", "ct-nvfp4", "ct-w4a16_awq",
                                           "ct-w4a16_gptq", "ct-w8a16", "ct-w8a8_rtn",
                                           "ct-w8a8_sq"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace penstock
