// Draws on CUDA's emulated device are those of Sampler::draw, bit for bit: a million of them by one
// thread each, some thousands by a block of threads, as on a GPU (PENSTOCK_DRAWS: how many).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "ops/cuda/cuda_ops.h"
#include "ops/ops.h"
#include "sampling/sampler.h"

namespace penstock {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int kRows = 3;

struct Asked {
  SampleRow row;
  std::vector<LogitEdit> edits;
  std::vector<uint32_t> mask;
  std::vector<TokenLogprob> top;
};

// Draws from logits [kRows, vocab].
using DrawAll = std::function<void(std::span<const float> logits, std::span<const SampleRow>,
                                   std::span<SampleResult>)>;

class Draws {
 public:
  explicit Draws(DrawAll draw_all) : draw_all_(std::move(draw_all)), random_(5) {}

  void compare(int vocab, int n_draws) {
    std::vector<float> logits = random_logits(vocab);
    std::vector<Asked> asked;
    for (int i = 0; i < n_draws; ++i) asked.push_back(ask(vocab));
    std::vector<SampleRow> rows;
    for (Asked& each : asked) {
      each.row.edits = each.edits.data(),
      each.row.n_edits = static_cast<int32_t>(each.edits.size());
      each.row.mask = each.mask.empty() ? nullptr : each.mask.data();
      each.row.top = each.top.data();
      rows.push_back(each.row);
    }
    std::vector<SampleResult> results(rows.size());
    draw_all_(logits, rows, results);
    for (size_t i = 0; i < rows.size(); ++i) {
      ++n_;
      const auto from = logits.begin() + ptrdiff_t{rows[i].row} * vocab;
      std::vector<float> own(from, from + vocab);
      std::vector<TokenLogprob> top(asked[i].top.size());
      SampleRow row = rows[i];
      row.top = top.data();
      const SampleResult want = sampler_.draw(row, own);
      if (!results[i].drawn) {
        ++n_left_;
        ASSERT_TRUE(may_be_left(row, vocab)) << say(row, vocab);
        continue;
      }
      n_possible_ += want.token != kNoToken ? 1 : 0;
      ASSERT_EQ(results[i].token, want.token) << say(row, vocab);
      ASSERT_TRUE(same(results[i].logprob, want.logprob)) << say(row, vocab);
      ASSERT_EQ(results[i].rank, want.rank) << say(row, vocab);
      ASSERT_TRUE(same(results[i].likeliest, want.likeliest)) << say(row, vocab);
      ASSERT_EQ(results[i].n_top, want.n_top) << say(row, vocab);
      for (int k = 0; k < want.n_top; ++k) {
        ASSERT_EQ(asked[i].top[k].token, top[k].token) << k << " " << say(row, vocab);
        ASSERT_TRUE(same(asked[i].top[k].logprob, top[k].logprob)) << k << " " << say(row, vocab);
        ASSERT_EQ(asked[i].top[k].rank, top[k].rank) << k;
      }
    }
  }
  int64_t n() const { return n_; }
  int64_t n_left() const { return n_left_; }
  int64_t n_possible() const { return n_possible_; }

 private:
  // What is no number until an edit sets it has no log-probability: on both sides.
  static bool same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }
  // More tokens may be left than are listed; of fewer, rounding may leave a sum of all below top-p
  // of them.
  static bool may_be_left(const SampleRow& row, int vocab) {
    if (row.temperature == 0) return false;
    const bool mass_alone = row.top_p < 1 && row.top_k == 0 && row.min_p == 0;
    if (mass_alone) return vocab > 1024 || row.top_p > 0.999f;
    return (row.top_k == 0 || row.top_k > 1024) && vocab > 1024 && (row.top_k > 0 || row.min_p > 0);
  }
  static std::string say(const SampleRow& row, int vocab) {
    return "vocab " + std::to_string(vocab) + ", row " + std::to_string(row.row) +
           ", temperature " + std::to_string(row.temperature) + ", min_p " +
           std::to_string(row.min_p) + ", top_k " + std::to_string(row.top_k) + ", top_p " +
           std::to_string(row.top_p) + ", u " + std::to_string(row.u);
  }

  int pick(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  float between(float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random_);
  }

  // One row with what is impossible and what is no number, one with many equals.
  std::vector<float> random_logits(int vocab) {
    std::vector<float> logits(kRows * static_cast<size_t>(vocab));
    const float spread = pick(4) == 0 ? between(0.0f, 0.5f) : between(0.5f, 8.0f),
                center = between(-40.0f, 40.0f);
    for (float& logit : logits) {  // near enough to a normal distribution
      const uint64_t bits = random_() | uint64_t{random_()} << 32;
      float sum = 0;
      for (int i = 0; i < 4; ++i) sum += static_cast<float>(bits >> (16 * i) & 0xffff) / 65536.0f;
      logit = center + spread * (sum - 2.0f) * 1.7f;
    }
    for (int i = 0; i < vocab; i += 7) logits[static_cast<size_t>(i)] = -kInf;
    logits[2] = std::numeric_limits<float>::quiet_NaN();
    const auto equals = logits.begin() + vocab;
    const float grain = pick(2) == 0 ? spread : spread / 4;
    std::for_each(equals, equals + vocab,
                  [&](float& logit) { logit = grain * std::round(logit / grain); });
    return logits;
  }

  Asked ask(int vocab) {
    Asked asked;
    SampleRow& row = asked.row;
    row.row = pick(kRows);
    row.report = pick(4) == 0, row.likeliest = pick(8) == 0;
    row.n_top = pick(6) == 0 ? 1 + pick(SampleRow::kMostTop) : 0;
    asked.top.resize(static_cast<size_t>(row.n_top));
    row.temperature = pick(8) == 0 ? 0.0f : between(0.05f, 2.5f);
    row.u = std::uniform_real_distribution<double>(0, 1)(random_);
    const int filters = pick(8);
    if ((filters & 1) != 0)
      row.min_p = pick(2) == 0 ? between(0.0f, 1.0f) : std::exp(-between(1.0f, 20.0f));
    if ((filters & 2) != 0) row.top_k = 1 + (pick(4) == 0 ? pick(1200) : pick(80));
    if ((filters & 4) != 0) row.top_p = pick(16) == 0 ? 0.0f : between(0.0f, 1.0f);
    if (pick(3) == 0) {
      asked.mask.resize(static_cast<size_t>(vocab + 31) / 32);
      const bool few = pick(3) == 0;
      for (uint32_t& word : asked.mask) word = few ? 0x10u : static_cast<uint32_t>(random_());
    }
    for (uint16_t phase = 0; filters == pick(8) && phase < 3; ++phase) {
      const int first = pick(vocab);
      for (int e = 0; e < 5; ++e) {
        const auto kind = static_cast<LogitEdit::Kind>(phase);
        const float value =
            kind == LogitEdit::Kind::kPenalize ? 1.3f : static_cast<float>(e) - 2.0f;
        asked.edits.push_back({static_cast<TokenId>((e * 7 + first) % vocab), kind, phase, value});
      }
    }
    return asked;
  }

  DrawAll draw_all_;
  std::mt19937 random_;
  Sampler sampler_;
  int64_t n_ = 0, n_left_ = 0, n_possible_ = 0;
};

// As many draws from many tokens as take about as long as those from few.
void compare_all(Draws& draws, int n) {
  for (int done = 0; done < n && !testing::Test::HasFatalFailure(); done += 1000) {
    for (int i = 0; i < 8; ++i) draws.compare(29 + 9 * i, 100);
    draws.compare(150, 120);
    draws.compare(900, 50);
    draws.compare(1500, 25);
    if (done % 5000 == 0) draws.compare(5003, 5);
    if (done % 25'000 == 0) draws.compare(20'011, 3);  // more pieces than are added at once
  }
  EXPECT_GE(draws.n(), n * 99 / 100);
  EXPECT_GT(draws.n_possible(), n / 2);
  EXPECT_LT(draws.n_left(), n / 100);
  EXPECT_GT(draws.n_left(), 0);
}

TEST(CudaSample, DrawsAreTheHosts) {
  const auto made = make_ops("cuda_emulated", {.n_threads = 1});
  if (!made) GTEST_SKIP() << made.error().message;
  Ops& ops = **made;
  Draws draws([&](std::span<const float> logits, std::span<const SampleRow> rows,
                  std::span<SampleResult> results) {
    ops.begin_step(nullptr);
    const Tensor tensor =
        ops.new_tensor(kRows, static_cast<int>(logits.size()) / kRows, TensorRole::kLogits);
    ops.write_rows(logits, tensor);
    ops.sample(tensor, rows, results);
    ops.wait(ops.submit());
  });
  const char* const wanted = std::getenv("PENSTOCK_DRAWS");
  compare_all(draws, wanted != nullptr ? std::atoi(wanted) : 3000);
}

#ifdef PENSTOCK_CUDA_EMULATION
TEST(CudaSample, AMillionDrawsAreTheHosts) {
  using namespace cuda;
  const std::unique_ptr<Device> device = make_emulated_device();
  StepMemory memory(*device);
  DeviceDraws on_device(*device, memory);
  on_device.draw_alone();
  Draws draws([&](std::span<const float> logits, std::span<const SampleRow> rows,
                  std::span<SampleResult> results) {
    memory.reset();
    const int vocab = static_cast<int>(logits.size()) / kRows;
    void* const values = memory.take(logits.size_bytes()).value();
    device->copy_in(values, logits.data(), logits.size_bytes());
    on_device.sample({values, DType::kF32, kRows, vocab, vocab}, rows, results);
    on_device.wait(on_device.end_step());
  });
  compare_all(draws, 1'000'000);
}
#endif

TEST(CudaSample, LeavesLongListsToTheHost) {
  const auto ops = make_ops("cuda_emulated", {.n_threads = 1});
  if (!ops) GTEST_SKIP() << ops.error().message;
  (*ops)->begin_step(nullptr);
  const Tensor logits = (*ops)->new_tensor(1, 2000, TensorRole::kLogits);
  (*ops)->clear(logits);
  std::vector<SampleRow> rows(6);
  for (SampleRow& row : rows) row.temperature = 1.0f;
  rows[0].top_k = 1025, rows[1].top_p = 0.6f, rows[2].min_p = 0.1f;
  rows[3].top_k = 1024, rows[4].top_p = 0.5f;
  std::vector<SampleResult> results(rows.size());
  (*ops)->sample(logits, rows, results);
  (*ops)->wait((*ops)->submit());
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(results[i].drawn, i >= 3) << i;
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
  const auto table =
      ops.pack({QuantType::kF32, kVocab, kCols, std::as_bytes(std::span(values))}).value();
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
  for (int t = 0; t < 3; ++t)
    EXPECT_EQ(got[static_cast<size_t>(t) * kCols + 3], want[t] * kCols + 3) << t;
}

// Draws that are a part of their steps: one after the other, each step submitted before the one
// before has told its tokens, which it takes by reference. What is drawn how changes from step to
// step, in recorded steps too.
TEST(CudaSample, StepsDrawThemselvesAndGoOnByReference) {
  const auto made = make_ops("cuda_emulated", {.n_threads = 1});
  if (!made) GTEST_SKIP() << made.error().message;
  Ops& ops = **made;
  const cuda::StepGraphs& graphs = static_cast<cuda::CudaOps&>(ops).graphs();
  constexpr int kVocab = 64, kSeqs = 3, kSteps = 20;
  std::mt19937 random(11);
  std::vector<float> values(size_t{kVocab} * kVocab);
  for (float& value : values) value = std::normal_distribution<float>(0.0f, 2.0f)(random);
  // The logits behind a token are its row.
  const auto table =
      ops.pack({QuantType::kF32, kVocab, kVocab, std::as_bytes(std::span(values))}).value();

  Sampler sampler;
  std::vector<TokenId> want(kSeqs, 5), tokens(kSeqs, 5);
  struct Step {
    std::vector<LogitEdit> edits[kSeqs];
    std::vector<SampleRow> rows;
    std::vector<SampleResult> results;
    std::vector<TokenLogprob> top = std::vector<TokenLogprob>(kSeqs * size_t{4});
    StepTicket ticket = 0;
  } steps[2];
  std::vector<SampleResult> wanted[2];
  const auto check = [&](int i) {
    ops.wait(steps[i % 2].ticket);
    for (int s = 0; s < kSeqs; ++s) {
      const SampleResult &got = steps[i % 2].results[static_cast<size_t>(s)],
                         &own = wanted[i % 2][static_cast<size_t>(s)];
      EXPECT_TRUE(got.drawn) << i << " " << s;
      EXPECT_EQ(got.token, own.token) << i << " " << s;
      EXPECT_EQ(got.logprob, own.logprob) << i << " " << s;
      EXPECT_EQ(got.rank, own.rank) << i << " " << s;
      EXPECT_EQ(got.n_top, own.n_top) << i << " " << s;
    }
  };
  for (int i = 0; i < kSteps; ++i) {
    Step& step = steps[i % 2];
    step.rows.assign(kSeqs, {}), step.results.assign(kSeqs, {}), wanted[i % 2].clear();
    for (int s = 0; s < kSeqs; ++s) {
      SampleRow& row = step.rows[static_cast<size_t>(s)];
      row.row = s, row.u = std::uniform_real_distribution<double>(0, 1)(random);
      row.temperature = (i + s) % 4 == 0 ? 0.0f : 0.5f + 0.1f * static_cast<float>(i);
      row.top_k = i % 3 == 1 ? 5 : 0, row.top_p = i % 5 == 2 ? 0.7f : 1.0f,
      row.min_p = s == 2 ? 0.05f : 0;
      row.report = i % 2 == 0, row.n_top = i % 7 == 3 ? 4 : 0, row.top = step.top.data() + 4 * s;
      auto& edits = step.edits[s];
      edits.clear();
      if (s > 0) edits.push_back({(i * 7) % kVocab, LogitEdit::Kind::kAdd, 0, 2.5f});
      if (i % 2 == 1) edits.push_back({(i * 3) % kVocab, LogitEdit::Kind::kPenalize, 1, 1.5f});
      row.edits = edits.data(), row.n_edits = static_cast<int32_t>(edits.size());
      const float* const from =
          values.data() + static_cast<ptrdiff_t>(want[static_cast<size_t>(s)]) * kVocab;
      std::vector<float> logits(from, from + kVocab);
      std::vector<TokenLogprob> top(4);
      SampleRow own = row;
      own.top = top.data();
      wanted[i % 2].push_back(sampler.draw(own, logits));
      want[static_cast<size_t>(s)] = wanted[i % 2].back().token;
    }
    const int32_t positions[] = {i, i, i}, offsets[] = {0, 1, 2, 3}, lens[] = {i + 1, i + 1, i + 1},
                  outputs[] = {0, 1, 2};
    const Batch batch{.tokens = tokens,
                      .positions = positions,
                      .seq_offsets = offsets,
                      .seq_lens = lens,
                      .output_rows = outputs,
                      .draws = step.rows,
                      .drawn = step.results};
    const StepShape shape = ops.begin_step(&batch);
    ops.run({.shape = shape, .n_layers = 1}, [&] {
      const Tensor logits = ops.new_tensor(shape.tokens, kVocab, TensorRole::kLogits);
      ops.embed_tokens(*table, 1.0f, logits);
      return StepOutputs{.logits = logits};
    });
    step.ticket = ops.submit();
    for (int s = 0; s < kSeqs; ++s) tokens[static_cast<size_t>(s)] = -1 - s;
    if (i > 0) check(i - 1);
  }
  check(kSteps - 1);
  EXPECT_EQ(graphs.n_recorded(), 1);
  EXPECT_EQ(graphs.n_played(), kSteps - 1);
}

}  // namespace
}  // namespace penstock
