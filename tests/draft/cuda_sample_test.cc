// Draws on CUDA's emulated device are those of Sampler::draw, bit for bit: PENSTOCK_DRAWS of them (a million: minutes).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <vector>

#include "ops/ops.h"
#include "sampling/sampler.h"

namespace penstock {
namespace {

struct Asked {
  SampleRow row;
  std::vector<LogitEdit> edits;
  std::vector<uint32_t> mask;
};

class Draws {
 public:
  explicit Draws(Ops& ops) : ops_(ops), random_(5) {}

  // Of 3 rows of logits, some of which are not numbers or impossible.
  void compare(int vocab, int n_draws) {
    std::vector<float> logits(3 * static_cast<size_t>(vocab));
    std::normal_distribution<float> normal(0.0f, 3.0f);
    for (float& logit : logits) logit = normal(random_);
    for (size_t i = 0; i < logits.size(); i += 7) logits[i] = -std::numeric_limits<float>::infinity();
    logits[static_cast<size_t>(vocab) + 2] = std::numeric_limits<float>::quiet_NaN();
    std::fill(logits.begin() + 2 * vocab, logits.begin() + 2 * vocab + vocab / 2, 2.5f);  // equals
    ops_.begin_step(nullptr);
    const Tensor tensor = ops_.new_tensor(3, vocab, TensorRole::kLogits);
    ops_.write_rows(logits, tensor);
    std::vector<Asked> asked;
    for (int i = 0; i < n_draws; ++i) asked.push_back(ask(vocab, i));
    std::vector<SampleRow> rows;
    for (Asked& each : asked) {
      each.row.edits = each.edits.data(), each.row.n_edits = static_cast<int32_t>(each.edits.size());
      each.row.mask = each.mask.empty() ? nullptr : each.mask.data();
      rows.push_back(each.row);
    }
    std::vector<SampleResult> results(rows.size());
    ops_.sample(tensor, rows, results);
    ops_.wait(ops_.submit());
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto from = logits.begin() + ptrdiff_t{rows[i].row} * vocab;
      std::vector<float> own(from, from + vocab);
      const SampleResult want = sampler_.draw(rows[i], own);
      ASSERT_TRUE(results[i].drawn);
      ASSERT_EQ(results[i].token, want.token) << "draw " << i << " of " << vocab;
      // A token that was no number until an edit set it has no log-probability: on both sides.
      const bool neither = std::isnan(results[i].logprob) && std::isnan(want.logprob);
      ASSERT_TRUE(neither || results[i].logprob == want.logprob)
          << results[i].logprob << " instead of " << want.logprob << ", draw " << i;
      ASSERT_EQ(results[i].rank, want.rank) << i;
      ASSERT_EQ(results[i].likeliest, want.likeliest) << i;
      n_possible_ += want.token != kNoToken ? 1 : 0;
    }
  }
  int64_t n_possible() const { return n_possible_; }

 private:
  Asked ask(int vocab, int i) {
    Asked asked;
    asked.row.row = static_cast<int32_t>(random_() % 3);
    asked.row.report = i % 4 == 0, asked.row.likeliest = i % 8 == 0;
    asked.row.temperature = i % 5 == 0 ? 0.0f : 0.3f + static_cast<float>(random_() % 100) / 50.0f;
    asked.row.u = std::uniform_real_distribution<double>(0, 1)(random_);
    if (i % 3 == 0) {
      asked.mask.resize(static_cast<size_t>(vocab + 31) / 32);
      for (uint32_t& word : asked.mask) word = i % 9 == 0 ? 0x10u : static_cast<uint32_t>(random_());
    }
    for (uint16_t phase = 0; i % 2 == 0 && phase < 3; ++phase) {
      for (int e = 0; e < 5; ++e) {
        const auto kind = static_cast<LogitEdit::Kind>(phase);
        const float value = kind == LogitEdit::Kind::kPenalize ? 1.3f : static_cast<float>(e) - 2.0f;
        asked.edits.push_back({static_cast<TokenId>((e * 7 + i) % vocab), kind, phase, value});
      }
    }
    return asked;
  }

  Ops& ops_;
  std::mt19937 random_;
  Sampler sampler_;
  int64_t n_possible_ = 0;
};

TEST(CudaSample, DrawsAreTheHosts) {
  const auto ops = make_ops("cuda_emulated", {.n_threads = 1});
  if (!ops) GTEST_SKIP() << ops.error().message;
  const char* const wanted = std::getenv("PENSTOCK_DRAWS");
  const int n = wanted != nullptr ? std::atoi(wanted) : 6000;
  Draws draws(**ops);
  for (int done = 0; done < n; done += 1000) {
    draws.compare(61, 800);
    draws.compare(1500, 180);
    draws.compare(20'011, 20);  // more pieces than the block's threads take at once
  }
  EXPECT_GT(draws.n_possible(), n / 2);
}

TEST(CudaSample, LeavesFiltersToTheHost) {
  const auto ops = make_ops("cuda_emulated", {.n_threads = 1});
  if (!ops) GTEST_SKIP() << ops.error().message;
  (*ops)->begin_step(nullptr);
  const Tensor logits = (*ops)->new_tensor(1, 40, TensorRole::kLogits);
  (*ops)->clear(logits);
  std::vector<SampleRow> rows(5);
  for (SampleRow& row : rows) row.temperature = 1.0f;
  rows[0].top_k = 3, rows[1].top_p = 0.5f, rows[2].min_p = 0.1f;
  TokenLogprob top[2];
  rows[3].n_top = 2, rows[3].top = top;
  std::vector<SampleResult> results(rows.size());
  (*ops)->sample(logits, rows, results);
  (*ops)->wait((*ops)->submit());
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(results[i].drawn, i == 4) << i;
}

// A step may begin before the draws of the one before are told.
TEST(CudaSample, TheNextStepTakesTokensByWhoDrewThem) {
  const auto made = make_ops("cuda_emulated", {.n_threads = 1});
  if (!made) GTEST_SKIP() << made.error().message;
  Ops& ops = **made;
  constexpr int kVocab = 40, kCols = 16;
  std::vector<float> values(size_t{kVocab} * kCols), logits(2 * kVocab, 0.0f);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  logits[17] = 1.0f, logits[kVocab + 31] = 1.0f;
  const auto table = ops.pack({QuantType::kF32, kVocab, kCols, std::as_bytes(std::span(values))}).value();
  ops.begin_step(nullptr);
  const Tensor tensor = ops.new_tensor(2, kVocab, TensorRole::kLogits);
  ops.write_rows(logits, tensor);
  const SampleRow rows[] = {{.row = 0}, {.row = 1}};
  SampleResult results[2];
  ops.sample(tensor, rows, results);
  const StepTicket first = ops.submit();
  const TokenId tokens[] = {-2, 5, -1};
  const int32_t positions[] = {0, 1, 2};
  const Batch batch{.tokens = tokens, .positions = positions};
  ops.begin_step(&batch);
  const Tensor out = ops.new_tensor(3, kCols);
  ops.embed_tokens(*table, 1.0f, out);
  ops.wait(first);
  ops.wait(ops.submit());
  std::vector<float> got(size_t{3} * kCols);
  ops.read_rows(out, got);
  EXPECT_EQ(results[0].token, 17);
  EXPECT_EQ(results[1].token, 31);
  const int want[] = {31, 5, 17};
  for (int t = 0; t < 3; ++t) EXPECT_EQ(got[static_cast<size_t>(t) * kCols + 3], want[t] * kCols + 3) << t;
}

}  // namespace
}  // namespace penstock
