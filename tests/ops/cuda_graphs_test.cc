// Steps that are recorded and played again (step_graphs.h), on the emulated device.
#include "ops/cuda/step_graphs.h"

#include <gtest/gtest.h>

#include <functional>

#include "ops/cuda/cuda_ops.h"
#include "ops/ops_under_test.h"

#ifdef PENSTOCK_CUDA_EMULATION
namespace penstock::cuda {
namespace {

TEST(CudaGraphs, RowsAreTheLeastOfAFewNumbers) {
  const std::pair<int, int> kCases[] = {{0, 0},     {1, 1},     {2, 2},    {3, 4},
                                        {5, 8},     {9, 16},    {17, 24},  {33, 48},
                                        {129, 192}, {193, 256}, {256, 256}};
  for (const auto& [n, rows] : kCases) EXPECT_EQ(StepGraphs::rows_for(n), rows) << n;
}

class CudaGraphsTest : public testing::Test {
 protected:
  static constexpr int kRows = 3, kCols = 40;

  // A step of kRows tokens of one sequence: its fn is `operations`, over a tensor that it takes.
  StepOutputs step(const std::function<void(Tensor)>& operations, const void* model = nullptr) {
    const TokenId tokens[kRows] = {};
    const int32_t positions[] = {0, 1, 2}, offsets[] = {0, kRows}, lens[] = {kRows};
    const Batch batch{
        .tokens = tokens, .positions = positions, .seq_offsets = offsets, .seq_lens = lens};
    const StepShape shape = ops_.begin_step(&batch);
    EXPECT_EQ(shape.tokens, 4);
    before_.resize(static_cast<size_t>(shape.tokens) * kCols, ++value_);
    return ops_.run({.model = model, .shape = shape}, [&] {
      ++n_asked_;
      const Tensor x = ops_.new_tensor(shape.tokens, kCols);
      ops_.clear(x);
      operations(x);
      return StepOutputs{.hidden = x};
    });
  }
  float first_of(Tensor x) {
    std::vector<float> values(static_cast<size_t>(x.rows) * static_cast<size_t>(x.cols));
    ops_.read_rows(x, values);
    return values[0];
  }

  std::unique_ptr<Ops> made_ = make_ops("cuda_emulated", {.n_threads = 1}).value();
  Ops& ops_ = *made_;
  StepGraphs& graphs_ = static_cast<CudaOps&>(ops_).graphs();
  std::vector<float> before_;
  float value_ = 0;
  int n_asked_ = 0;
};

TEST_F(CudaGraphsTest, TheFirstStepIsComputedTheSecondRecordedTheRestPlayed) {
  // Where what is read lies is in the recording, what lies there is not.
  const auto memory = ops_.pack_vector(std::vector<float>(kCols, 1.0f)).value();
  const auto add = [&](Tensor x) {
    ops_.scale(x, 1.0f, 0.0f);
    ops_.add(x, {const_cast<float*>(device_data(memory.get())), DType::kF32, x.rows, kCols, 0},
             2.0f);
  };
  const void* place = nullptr;
  for (int i = 0; i < 5; ++i) {
    const StepOutputs outputs = step(add);
    EXPECT_EQ(first_of(outputs.hidden), 2.0f);
    if (i >= 2) {
      EXPECT_EQ(outputs.hidden.data, place);
    }
    place = outputs.hidden.data;
    EXPECT_EQ(graphs_.n_played(), i);
  }
  EXPECT_EQ(n_asked_, 2);
  EXPECT_EQ(graphs_.n_recorded(), 1);
}

TEST_F(CudaGraphsTest, WhatARecordingPointedToIsGone) {
  auto one = ops_.pack_vector(std::vector<float>(kCols, 1.0f)).value();
  const auto add = [&](Tensor x) {
    ops_.add(x, {const_cast<float*>(device_data(one.get())), DType::kF32, x.rows, kCols, 0}, 1.0f);
  };
  for (int i = 0; i < 3; ++i) step(add);
  EXPECT_EQ(n_asked_, 2);
  one = ops_.pack_vector(std::vector<float>(kCols, 7.0f)).value();  // the old one is given back
  EXPECT_EQ(first_of(step(add).hidden), 7.0f);
  EXPECT_EQ(first_of(step(add).hidden), 7.0f);
  EXPECT_EQ(n_asked_, 3);
  EXPECT_EQ(graphs_.n_recorded(), 2);
}

TEST_F(CudaGraphsTest, KeysAndPlacesAreKeptApart) {
  const int models[2] = {};
  for (int round = 0; round < 4; ++round) {
    for (int m = 0; m < 2; ++m) {
      const StepOutputs outputs =
          step([&](Tensor x) { ops_.add(x, x, static_cast<float>(m)); }, &models[m]);
      EXPECT_EQ(first_of(outputs.hidden), 0.0f);
    }
  }
  EXPECT_EQ(graphs_.n_recorded(), 2);
  // Of more steps than are kept the oldest are forgotten, and are recorded again.
  std::vector<int> many(StepGraphs::kMostRecordings + 1);
  for (int round = 0; round < 2; ++round)
    for (const int& model : many) step([&](Tensor x) { ops_.clear(x); }, &model);
  EXPECT_EQ(graphs_.n_recorded(), 2);
}

TEST_F(CudaGraphsTest, WhatCannotBeRecordedIsComputedEveryTime) {
  // An operation that brings something from the host; and a state, which must not change twice in a
  // step.
  const auto state = ops_.pack_vector(std::vector<float>(kCols, 1.0f)).value();
  const Tensor kept{const_cast<float*>(device_data(state.get())), DType::kF32, 1, kCols, kCols};
  std::vector<float> values;
  for (int i = 1; i <= 4; ++i) {
    const StepOutputs outputs = step([&](Tensor x) {
      ops_.add(kept, kept, 1.0f);
      values.assign(static_cast<size_t>(x.rows) * kCols, static_cast<float>(i));
      ops_.write_rows(values, x);
      ops_.add(x, {kept.data, DType::kF32, x.rows, kCols, 0}, 1.0f);
    });
    EXPECT_EQ(first_of(outputs.hidden), static_cast<float>(i + (1 << i)));
  }
  EXPECT_EQ(graphs_.n_recorded(), 0);
  EXPECT_EQ(graphs_.n_played(), 0);
}

TEST_F(CudaGraphsTest, PromptsAndAdaptersAreComputedAsTheyCome) {
  const std::vector<TokenId> tokens(300);
  const int32_t slots[] = {0}, lens[] = {1};
  const auto shape_of = [&](int n, bool adapters) {
    const int32_t offsets[] = {0, n};
    const Batch batch{
        .tokens = std::span(tokens).first(static_cast<size_t>(n)),
        .seq_offsets = offsets,
        .seq_lens = lens,
        .adapters = adapters ? std::span<const int32_t>(slots) : std::span<const int32_t>()};
    return ops_.begin_step(&batch).tokens;
  };
  EXPECT_EQ(shape_of(33, false), 48);
  EXPECT_EQ(shape_of(33, true), 33);
  EXPECT_EQ(shape_of(65, false), 65);
  EXPECT_EQ(shape_of(300, false), 300);
  graphs_.enable(false);
  EXPECT_EQ(shape_of(33, false), 33);
}

// What some steps of two models that take turns give, of one layer and of two. Their products read
// tiles in a memory that changes places with another one at every gated product.
struct GatedSteps {
  std::vector<std::vector<float>> outputs;
  uint64_t n_first_launches = 0;  // of the first step
  int64_t n_recorded = 0, n_played = 0;
};

GatedSteps gated_steps(bool gates, bool graphs) {
  constexpr int kSequences = 70;  // rows enough for inputs that are rounded
  constexpr int kVocab = 8, kCols = 64, kHidden = 128;
  const std::unique_ptr<Ops> ops = make_ops("cuda_emulated", {.n_threads = 1}).value();
  auto& cuda = static_cast<CudaOps&>(*ops);
  // by itself it would be of 64 rows, for which there is no gated product
  cuda.wide().cut({128, 1});
  cuda.wide().gate(gates);
  cuda.graphs().enable(graphs);
  const auto matrix = [&](int rows, int cols, unsigned seed) {
    const std::vector<float> values = random_floats(static_cast<size_t>(rows) * cols, seed, 0.5f);
    std::vector<std::byte> bytes(quant_bytes(QuantType::kBF16, static_cast<int>(values.size())));
    quantize_row(QuantType::kBF16, values.data(), bytes.data(), static_cast<int>(values.size()));
    return ops->pack({QuantType::kBF16, rows, cols, bytes}).value();
  };
  const auto table = matrix(kVocab, kCols, 1), gate = matrix(kHidden, kCols, 2),
             up = matrix(kHidden, kCols, 3), down = matrix(kCols, kHidden, 4);
  GatedSteps steps;
  const int models[2] = {};
  for (int i = 0; i < 8; ++i) {
    std::vector<TokenId> tokens(kSequences);
    std::vector<int32_t> offsets(1);
    for (int t = 0; t < kSequences; ++t)
      tokens[static_cast<size_t>(t)] = (t + i) % kVocab, offsets.push_back(t + 1);
    const std::vector<int32_t> positions(kSequences), lens(kSequences, 1);
    const Batch batch{
        .tokens = tokens, .positions = positions, .seq_offsets = offsets, .seq_lens = lens};
    const StepShape shape = ops->begin_step(&batch);
    const StepOutputs out = ops->run({.model = &models[i % 2], .shape = shape}, [&] {
      const Tensor x = ops->new_tensor(shape.tokens, kCols);
      ops->embed_tokens(*table, 1.0f, x);
      for (int layer = 0; layer <= i % 2; ++layer) {
        const auto target = [&](const Weight& w) {
          return LinearTarget{&w, nullptr, ops->new_tensor(shape.tokens, w.rows())};
        };
        const Tensor hidden = ops->new_tensor(shape.tokens, kHidden);
        const LinearTarget last = target(*down);
        ops->gated_linear({x, {}, x}, target(*gate), target(*up), ActivationFunction(), hidden);
        ops->linear(hidden, {&last, 1});
        ops->add(x, last.out, 1.0f);
      }
      return StepOutputs{.hidden = x};
    });
    if (i == 0) steps.n_first_launches = cuda.device().n_launches();
    steps.outputs.push_back(read(*ops, out.hidden).all);
    steps.outputs.back().resize(size_t{kSequences} * kCols);  // rows behind them are nobody's
  }
  steps.n_recorded = cuda.graphs().n_recorded(), steps.n_played = cuda.graphs().n_played();
  return steps;
}

TEST(CudaGraphsOfGates, PlayedTheyGiveTheBitsOfOneOperationAfterTheOther) {
  const GatedSteps apart = gated_steps(false, false), computed = gated_steps(true, false),
                   played = gated_steps(true, true);
  EXPECT_NE(apart.outputs[0], apart.outputs[2]);
  EXPECT_EQ(apart.n_first_launches - computed.n_first_launches, 3u);
  EXPECT_EQ(played.n_first_launches, computed.n_first_launches);
  EXPECT_EQ(computed.outputs, apart.outputs);
  EXPECT_EQ(played.outputs, apart.outputs);
  EXPECT_EQ(played.n_recorded, 2);
  EXPECT_EQ(played.n_played, 6);
}

}  // namespace
}  // namespace penstock::cuda
#endif
