// Steps that are recorded and played again (step_graphs.h), on the emulated device.
#include "ops/cuda/step_graphs.h"

#include <gtest/gtest.h>

#include <functional>

#include "ops/cuda/cuda_ops.h"

#ifdef PENSTOCK_CUDA_EMULATION
namespace penstock::cuda {
namespace {

TEST(CudaGraphs, RowsAreTheLeastOfAFewNumbers) {
  const std::pair<int, int> kCases[] = {{0, 0},   {1, 1},   {2, 2},     {3, 4},     {5, 8},    {9, 16},
                                        {17, 24}, {33, 48}, {129, 192}, {193, 256}, {256, 256}};
  for (const auto& [n, rows] : kCases) EXPECT_EQ(StepGraphs::rows_for(n), rows) << n;
}

class CudaGraphsTest : public testing::Test {
 protected:
  static constexpr int kRows = 3, kCols = 40;

  // A step of kRows tokens of one sequence: its fn is `operations`, over a tensor that it takes.
  StepOutputs step(const std::function<void(Tensor)>& operations, const void* model = nullptr) {
    const TokenId tokens[kRows] = {};
    const int32_t positions[] = {0, 1, 2}, offsets[] = {0, kRows}, lens[] = {kRows};
    const Batch batch{.tokens = tokens, .positions = positions, .seq_offsets = offsets, .seq_lens = lens};
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
    ops_.add(x, {const_cast<float*>(device_data(memory.get())), DType::kF32, x.rows, kCols, 0}, 2.0f);
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
      const StepOutputs outputs = step([&](Tensor x) { ops_.add(x, x, static_cast<float>(m)); }, &models[m]);
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
  // An operation that brings something from the host; and a state, which must not change twice in a step.
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
    const Batch batch{.tokens = std::span(tokens).first(static_cast<size_t>(n)),
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

}  // namespace
}  // namespace penstock::cuda
#endif
