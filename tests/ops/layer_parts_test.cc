// The parts of a layer that a backend may do in one: what the operations in a row give.
#include <cmath>

#include "ops/ops_under_test.h"

namespace penstock {
namespace {

constexpr int kDim = 96, kWide = 160;

class LayerParts : public testing::TestWithParam<OpsUnderTest> {
 protected:
  void SetUp() override {
    ops_ = GetParam().make();
    norm_weight_ = ops_->pack_vector(random_floats(kDim, 1)).value();
    bias_ = ops_->pack_vector(random_floats(kWide, 2)).value();
    wide_ = weight(kWide, kDim, 3), other_ = weight(kWide, kDim, 4),
    narrow_ = weight(kDim, kWide, 5);
  }
  std::unique_ptr<Weight> weight(int rows, int cols, unsigned seed) {
    const std::vector<float> values = random_floats(static_cast<size_t>(rows) * cols, seed, 0.1f);
    return ops_->pack({QuantType::kF32, rows, cols, std::as_bytes(std::span(values))}).value();
  }
  Tensor random(int rows, int cols, unsigned seed) {
    return tensor_of(*ops_, random_floats(static_cast<size_t>(rows) * cols, seed), rows, cols);
  }
  void expect_equal(Tensor got, Tensor expected) {
    const Values a = read(*ops_, got), b = read(*ops_, expected);
    ASSERT_EQ(a.all.size(), b.all.size());
    for (size_t i = 0; i < a.all.size(); ++i)
      ASSERT_NEAR(a.all[i], b.all[i], 1e-4 * (1 + std::fabs(b.all[i])));
  }

  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Vector> norm_weight_, bias_;
  std::unique_ptr<Weight> wide_, other_, narrow_;
};

TEST_P(LayerParts, AreTheOperationsInARow) {
  for (const int n : {1, 3, 20, 70}) {
    for (const bool with_norm : {true, false}) {
      ops_->begin_step(nullptr);
      const NormParams params{norm_weight_.get(), nullptr, 1e-6f, false};
      // As a layer does it: read h, add to the stream, read the next h.
      const Tensor x = random(n, kDim, 11), normed = ops_->new_tensor(n, kDim);
      const NormedInput h = with_norm ? NormedInput{x, params, normed} : NormedInput{x, {}, x};
      const Tensor plain = ops_->new_tensor(n, kWide), gate = ops_->new_tensor(n, kWide),
                   up = ops_->new_tensor(n, kWide), delta = ops_->new_tensor(n, kDim);
      ops_->prepare(h);
      const LinearTarget one{wide_.get(), bias_.get(), plain};
      ops_->norm_linear(h, {&one, 1});
      ops_->gated_linear(h, {wide_.get(), nullptr, gate}, {other_.get(), bias_.get(), up},
                         Activation::kSilu, gate);
      ops_->linear_add(gate, {narrow_.get(), nullptr, delta}, x, 0.5f, &h);
      const Tensor after = ops_->new_tensor(n, kWide);
      const LinearTarget again{wide_.get(), nullptr, after};
      ops_->norm_linear(h, {&again, 1});

      const Tensor y = random(n, kDim, 11), y_normed = ops_->new_tensor(n, kDim);
      const auto norm = [&] {
        if (with_norm) ops_->norm(y, params, y_normed);
        return with_norm ? y_normed : y;
      };
      const Tensor e_plain = ops_->new_tensor(n, kWide), e_gate = ops_->new_tensor(n, kWide),
                   e_up = ops_->new_tensor(n, kWide), e_delta = ops_->new_tensor(n, kDim),
                   e_after = ops_->new_tensor(n, kWide);
      const LinearTarget first[] = {{wide_.get(), bias_.get(), e_plain},
                                    {wide_.get(), nullptr, e_gate},
                                    {other_.get(), bias_.get(), e_up}};
      ops_->linear(norm(), first);
      ops_->activate_mul(e_gate, e_up, Activation::kSilu, e_gate);
      const LinearTarget down{narrow_.get(), nullptr, e_delta}, last{wide_.get(), nullptr, e_after};
      ops_->linear(e_gate, {&down, 1});
      ops_->add(y, e_delta, 0.5f);
      ops_->linear(norm(), {&last, 1});

      SCOPED_TRACE(::testing::Message() << n << " rows, norm " << with_norm);
      expect_equal(plain, e_plain);
      expect_equal(gate, e_gate);
      expect_equal(x, y);
      expect_equal(after, e_after);
      expect_equal(ops_->materialize(h), with_norm ? y_normed : y);
    }
  }
}

// Without ranks the sum over them is one's own.
TEST_P(LayerParts, OneRankHasEverything) {
  EXPECT_EQ(ops_->shard().n_ranks, 1);
  ops_->begin_step(nullptr);
  const Tensor x = random(3, kDim, 1);
  const Values before = read(*ops_, x);
  ops_->all_reduce(x);
  ops_->all_gather(x);
  EXPECT_EQ(read(*ops_, x).all, before.all);
}

INSTANTIATE_TEST_SUITE_P(Backends, LayerParts, testing::ValuesIn(ops_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock
