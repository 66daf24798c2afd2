// Perplexity of a file by the packed kernels and of the same weights as F32.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "formats/temp_dir.h"
#include "model/runner.h"
#include "quantize/quantize.h"
#include "support/test_data.h"

namespace penstock::testing {

inline std::vector<std::vector<int>> story_tokens(const std::string& vocabulary) {
  std::ifstream file(tests_dir() / "golden" / "story_tokens.json");
  return nlohmann::json::parse(file).at(vocabulary).get<std::vector<std::vector<int>>>();
}

inline double log_likelihood(const std::vector<float>& logits, int token) {
  const float most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - most));
  return logits[static_cast<size_t>(token)] - most - std::log(sum);
}

// Of the stories, each in one step. batch_invariant: by the kernels that decoding uses, for any
// number of rows.
inline double perplexity(const std::filesystem::path& path,
                         const std::vector<std::vector<int>>& stories, bool batch_invariant) {
  constexpr size_t kMost = 500;
  const auto ops = make_ops("cpu", {.n_threads = 1, .batch_invariant = batch_invariant}).value();
  const auto source = open_weights(path).value();
  const auto model = Model::load(*source, *ops).value();
  Runner runner(*model, *ops, 256);
  double sum = 0, n = 0;
  for (size_t s = 0; s < stories.size(); ++s) {
    const std::span<const int> story(stories[s].data(), std::min(stories[s].size(), kMost));
    const Rows rows = runner.run(static_cast<int>(s), story);
    for (size_t i = 0; i + 1 < story.size(); ++i) sum -= log_likelihood(rows[i], story[i + 1]);
    n += static_cast<double>(story.size() - 1);
  }
  return std::exp(sum / n);
}

// The packed kernels may round activations to 8 bits; that must not cost more than half a percent.
inline void expect_packed_quality(const std::filesystem::path& file, const TempDir& dir,
                                  const std::vector<std::vector<int>>& stories) {
  QuantizeJob job;
  job.in = file;
  job.out = file.extension() == ".gguf" ? dir / "plain.gguf" : dir / "plain";
  job.threads = 1;
  job.recipe.type = "f32";
  const auto done = quantize(job);
  ASSERT_TRUE(done) << done.error().message;
  const double plain = perplexity(job.out, stories, true);
  EXPECT_TRUE(std::isfinite(plain));
  for (const bool batch_invariant : {false, true}) {
    const double packed = perplexity(file, stories, batch_invariant),
                 percent = 100 * (packed / plain - 1);
    ::testing::Test::RecordProperty(batch_invariant ? "rows_percent" : "batch_percent",
                                    std::to_string(percent));
    EXPECT_LE(std::fabs(percent), 0.5)
        << "perplexity " << packed << ", of F32 " << plain
        << (batch_invariant ? ", by the kernels of single rows" : "");
  }
}

}  // namespace penstock::testing
