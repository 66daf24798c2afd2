// Parts of a layer in one kernel each (kernels/layer.h) give the bits of one operation after the
// other.
#include <gmock/gmock.h>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/kernels/limits.h"
#include "ops/ops_under_test.h"

#ifdef PENSTOCK_CUDA_EMULATION
#include "emulation/cuda/trouble.h"

namespace penstock::cuda {
namespace {

constexpr int kDim = 256, kWidth = 64;
enum class Normed { kNo, kRms, kLayerNorm };

class CudaLayer : public testing::Test {
 protected:
  std::unique_ptr<Weight> weight(QuantType type, int rows, int cols) {
    const std::vector<float> values =
        random_floats(static_cast<size_t>(rows) * cols, ++seed_, 0.1f);
    std::vector<std::byte> bytes(quant_bytes(type, static_cast<int64_t>(values.size())));
    quantize_row(type, values.data(), bytes.data(), static_cast<int64_t>(values.size()));
    return ops_->pack({type, rows, cols, bytes}).value();
  }
  void load(QuantType type) {
    seed_ = 0;
    for (const int rows : {48, 16, 40, 20, 24}) targets_.push_back(weight(type, rows, kDim));
    gate_ = weight(type, kWidth, kDim), up_ = weight(type, kWidth, kDim);
    down_ = weight(QuantType::kQ8_0, kDim, kWidth);
    norm_weight_ = ops_->pack_vector(random_floats(kDim, 101)).value();
    norm_bias_ = ops_->pack_vector(random_floats(kDim, 102)).value();
    bias_ = ops_->pack_vector(random_floats(kDim, 103)).value();
  }
  // All that a layer's parts give. As a layer does it: read h, add to the stream, read the next h.
  std::vector<float> parts(int n, Normed normed, Activation f, bool fuses, bool streams = true) {
    static_cast<CudaOps&>(*ops_).fuse(fuses);
    static_cast<CudaOps&>(*ops_).stream(streams);
    ops_->begin_step(nullptr);
    fail_emulated_call(0, EmulatedCalls::kLaunches);
    const Tensor x = tensor_of(*ops_, random_floats(static_cast<size_t>(n) * kDim, 11), n, kDim);
    NormedInput h{x, {}, x};
    if (normed != Normed::kNo) {
      const bool layer_norm = normed == Normed::kLayerNorm;
      h.norm = {norm_weight_.get(), layer_norm ? norm_bias_.get() : nullptr, 1e-6f, layer_norm};
      h.values = ops_->new_tensor(n, kDim);
    }
    std::vector<LinearTarget> targets;
    for (const auto& target : targets_)
      targets.push_back({target.get(), targets.size() % 2 == 0 ? bias_.get() : nullptr,
                         ops_->new_tensor(n, target->rows())});
    const Tensor gate = ops_->new_tensor(n, kWidth), up = ops_->new_tensor(n, kWidth),
                 delta = ops_->new_tensor(n, kDim);
    ActivationFunction function = f;
    function.parameters[0] = 1.5f, function.parameters[1] = 0.25f;
    ops_->prepare(h);
    ops_->norm_linear(h, targets);
    ops_->gated_linear(h, {gate_.get(), nullptr, gate}, {up_.get(), bias_.get(), up}, function,
                       gate);
    ops_->linear_add(gate, {down_.get(), bias_.get(), delta}, x, 0.37f, &h);
    n_launches_ = fail_emulated_call(0);
    std::vector<float> all;
    for (const LinearTarget& target : targets) append(target.out, all);
    append(gate, all), append(x, all), append(ops_->materialize(h), all);
    return all;
  }
  // A GPU, on which this runs too, does not count them.
  void expect_launches(int n) {
    if (!static_cast<CudaOps&>(*ops_).device().emulated()) return;
    EXPECT_EQ(n_launches_, n);
  }
  // Which streams weights for any number of rows (WideProducts takes more than four of codes
  // otherwise).
  void be_batch_invariant() {
    ops_ = make_ops("cuda_emulated", {.n_threads = 1, .batch_invariant = true}).value();
  }
  void append(Tensor x, std::vector<float>& to) {
    const std::vector<float> values = read(*ops_, x).all;
    to.insert(to.end(), values.begin(), values.end());
  }

  std::unique_ptr<Ops> ops_ = make_ops("cuda_emulated", {.n_threads = 1}).value();
  std::vector<std::unique_ptr<Weight>> targets_;
  std::unique_ptr<Weight> gate_, up_, down_;
  std::unique_ptr<Vector> norm_weight_, norm_bias_, bias_;
  unsigned seed_ = 0;
  int64_t n_launches_ = 0;
};

TEST_F(CudaLayer, PartsInOneGiveTheBitsOfTheirOperations) {
  using enum QuantType;
  be_batch_invariant();
  for (const QuantType type : {kBF16, kQ8_0, kQ4_K, kQ5_1, kQ4_0, kQ5_K, kQ6_K, kIQ4_NL, kMXFP4}) {
    targets_.clear(), load(type);
    for (const int n : {1, 3, 8}) {
      for (const Normed normed : {Normed::kNo, Normed::kRms, Normed::kLayerNorm}) {
        const Activation f = n == 3 ? Activation::kClampedSilu : Activation::kSilu;
        const std::vector<float> expected = parts(n, normed, f, false);
        expect_launches(normed == Normed::kNo ? 10 : 11);
        EXPECT_EQ(parts(n, normed, f, true), expected)
            << quant_info(type).name << ", " << n << " rows, norm " << static_cast<int>(normed);
        expect_launches(4);
        const std::vector<float> apart = parts(n, normed, f, true, false);  // other sums
        ASSERT_EQ(apart.size(), expected.size());
        for (size_t i = 0; i < apart.size(); ++i)
          ASSERT_NEAR(apart[i], expected[i], 2e-4)
              << quant_info(type).name << ", " << n << " rows, not through shared memory, " << i;
      }
    }
  }
}

// Of two codings that files mix there is a kernel; others are launched one after the other, or not
// at all.
TEST_F(CudaLayer, WeightsOfSeveralCodingsGiveTheBitsOfTheirOperations) {
  using enum QuantType;
  be_batch_invariant();
  load(kQ4_K);
  targets_.clear();
  for (const QuantType type : {kQ4_K, kQ6_K, kQ5_K, kQ8_0, kQ4_K, kQ6_K, kQ5_K, kBF16})
    targets_.push_back(weight(type, targets_.size() % 2 == 0 ? 256 : 40, kDim));
  for (const bool gated_alike : {true, false}) {
    if (!gated_alike) up_ = weight(kQ6_K, kWidth, kDim);
    for (const int n : {1, 3, 8}) {
      const std::vector<float> expected = parts(n, Normed::kRms, Activation::kSilu, false);
      EXPECT_EQ(parts(n, Normed::kRms, Activation::kSilu, true), expected) << n << " rows";
    }
  }
}

// As other GPUs have it: blocks take fewer rows then.
TEST_F(CudaLayer, LessSharedMemoryGivesTheSameBits) {
  be_batch_invariant();
  Device& device = static_cast<CudaOps&>(*ops_).device();
  if (!device.emulated()) GTEST_SKIP() << "a GPU has what it has";
  load(QuantType::kQ4_K);
  const std::vector<float> expected = parts(8, Normed::kRms, Activation::kSilu, true);
  for (const int kib : {120, 84}) {
    device.limit_shared_bytes(kib << 10);
    EXPECT_EQ(parts(8, Normed::kRms, Activation::kSilu, true), expected) << kib;
  }
  EXPECT_TRUE(device.status());
  device.launch(DoNothing{}, Grid{1, 1, 100 << 10});  // and what asks for more is refused
  EXPECT_THAT(device.status().error().message,
              testing::HasSubstr("expected at most 86016 bytes of shared memory, got 102400"));
}

// More rows, and weights that are not multiplied by mma, are one operation after the other.
TEST_F(CudaLayer, WhatDoesNotFitIsComputedAsItIs) {
  const auto expect_apart = [&](int n, int n_launches) {
    const std::vector<float> expected = parts(n, Normed::kRms, Activation::kSilu, false);
    EXPECT_EQ(parts(n, Normed::kRms, Activation::kSilu, true), expected) << n << " rows";
    expect_launches(n_launches);
  };
  load(QuantType::kQ8_0);
  expect_apart(9, 14);  // three times x is rounded before
  expect_apart(5, 15);  // and both that read a norm take it
  targets_.clear(), load(QuantType::kBF16);
  parts(8, Normed::kRms, Activation::kSilu, true);
  expect_launches(3 + 3);  // the last weight is of codes
  expect_apart(9, 14);
  targets_.clear(), load(QuantType::kF16);
  const std::vector<float> expected = parts(2, Normed::kRms, Activation::kSilu, false);
  EXPECT_EQ(parts(2, Normed::kRms, Activation::kSilu, true), expected);
}

}  // namespace
}  // namespace penstock::cuda
#endif
