// Products of many rows (kernels/wide_product.h) against the values of the file in doubles.
#include <cmath>

#include "ops/cuda/cuda_ops.h"
#include "ops/ops_under_test.h"

#ifdef PENSTOCK_CUDA_EMULATION

namespace penstock::cuda {
namespace {

struct Matrix {
  std::unique_ptr<Weight> weight;
  int rows = 0, cols = 0;
  std::vector<float> values;  // what it stands for
};

class CudaWide : public testing::Test {
 protected:
  WideProducts& wide() { return static_cast<CudaOps&>(*ops_).wide(); }

  Matrix matrix(QuantType type, int rows, int cols) {
    Matrix m{nullptr, rows, cols, random_floats(static_cast<size_t>(rows) * cols, 3)};
    const size_t row_bytes = quant_bytes(type, cols);
    std::vector<std::byte> bytes(static_cast<size_t>(rows) * row_bytes);
    for (int r = 0; r < rows; ++r) {
      float* const row = &m.values[static_cast<size_t>(r) * cols];
      quantize_row(type, row, &bytes[static_cast<size_t>(r) * row_bytes], cols);
      dequantize_row(type, &bytes[static_cast<size_t>(r) * row_bytes], row, cols);
    }
    m.weight = ops_->pack({type, rows, cols, bytes}).value();
    return m;
  }
  // Of codes with zeros or without, perhaps with an order of inputs.
  Matrix grouped(int bits, int group, bool zeros, bool ordered, int rows, int cols) {
    GroupedMatrix g;
    g.rows = rows, g.cols = cols, g.bits = bits, g.group_size = group;
    g.layout = CodeLayout::kWordsByRow;
    std::vector<std::byte> codes(GroupedMatrix::packed_bytes(g.layout, rows, cols, bits));
    std::minstd_rand generator(7);
    for (std::byte& b : codes) b = static_cast<std::byte>(generator() >> 8);
    g.packed = codes;
    const auto n = static_cast<size_t>(rows) * static_cast<size_t>(g.n_groups());
    for (const float scale : random_floats(n, 11)) g.scales.push_back(to_float(to_half(scale)));
    g.uniform_zero = static_cast<int16_t>(1 << (bits - 1));
    for (size_t i = 0; zeros && i < n; ++i)
      g.zeros.push_back(static_cast<int16_t>(i * 7 % (1 << bits)));
    for (int i = 0; ordered && i < cols; ++i) g.input_order.push_back(i * 5 % cols);
    Matrix m{ops_->pack_grouped(g, 0, rows).value(), rows, cols, {}};
    m.values.resize(static_cast<size_t>(rows) * cols);
    g.dequantize(0, rows, m.values.data());
    return m;
  }
  // How far the products of n rows with all matrices are from those in doubles, for their length,
  // the most.
  double error(const std::vector<const Matrix*>& matrices, int n, bool biased) {
    const int cols = matrices[0]->cols;
    ops_->begin_step(nullptr);
    const std::vector<float> x = random_floats(static_cast<size_t>(n) * cols, 5);
    std::vector<LinearTarget> targets;
    std::vector<std::vector<float>> biases;
    std::vector<std::unique_ptr<Vector>> packed;
    for (const Matrix* m : matrices) {
      biases.push_back(random_floats(static_cast<size_t>(m->rows), 9));
      packed.push_back(ops_->pack_vector(biases.back()).value());
      targets.push_back(
          {m->weight.get(), biased ? packed.back().get() : nullptr, ops_->new_tensor(n, m->rows)});
    }
    ops_->linear(tensor_of(*ops_, x, n, cols), targets);
    double most = 0;
    for (size_t i = 0; i < matrices.size(); ++i) {
      const Values got = read(*ops_, targets[i].out);
      double error = 0, size = 0;
      for (int t = 0; t < n; ++t) {
        for (int r = 0; r < matrices[i]->rows; ++r) {
          const float* const w = &matrices[i]->values[static_cast<size_t>(r) * cols];
          double sum = biased ? biases[i][static_cast<size_t>(r)] : 0.0;
          for (int k = 0; k < cols; ++k)
            sum += static_cast<double>(w[k]) * x[static_cast<size_t>(t) * cols + k];
          error += (got.at(t, r) - sum) * (got.at(t, r) - sum), size += sum * sum;
        }
      }
      most = std::max(most, std::sqrt(error / size));
    }
    return most;
  }

  std::unique_ptr<Ops> ops_ = make_ops("cuda_emulated", {.n_threads = 1}).value();
};

TEST_F(CudaWide, OfEveryTypeAreThoseOfTheValues) {
  for (const QuantTypeInfo& type : quant_types()) {
    if (!can_quantize(type.type)) continue;
    const Matrix m = matrix(type.type, 150, type.block_size == 1 ? 200 : 256);
    EXPECT_LT(error({&m}, 67, false), 4e-3) << type.name;
    for (const int n : {5, 9})
      EXPECT_LT(error({&m}, n, true), 2e-5) << type.name << ", " << n << " rows";
  }
}

TEST_F(CudaWide, OfGroupsAreThoseOfTheValues) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {16, 32, 64, 96, 192}) {
      for (const bool zeros : {false, true}) {
        const Matrix m = grouped(bits, group, zeros, bits == 4, 40, 192);
        EXPECT_LT(error({&m}, 18, true), 2e-5)
            << bits << " bits, groups of " << group << ", zeros " << zeros;
        EXPECT_LT(error({&m}, 65, true), 4e-3)
            << bits << " bits, groups of " << group << ", zeros " << zeros;
      }
    }
  }
}

TEST_F(CudaWide, OfAnyShapeAndBlock) {
  const Matrix bf16 = matrix(QuantType::kBF16, 131, 132),
               ordered = grouped(4, 32, true, true, 17, 132),
               other = matrix(QuantType::kF8E4M3, 300, 132),
               codes = matrix(QuantType::kQ4_K, 260, 512);
  for (const auto& [tokens, splits] : {std::pair(64, 1), {128, 2}, {256, 3}}) {
    wide().cut({tokens, splits});
    EXPECT_LT(error({&codes}, 80, true), 4e-3) << "blocks of " << tokens;
    for (const int n : {65, 127, 129, 300})
      EXPECT_LT(error({&bf16, &ordered, &other}, n, true), 4e-3)
          << n << " rows, blocks of " << tokens;
  }
  for (const auto& [tokens, splits] : {std::pair(16, 5), {32, 1}, {64, 2}}) {
    wide().cut({tokens, splits});
    for (const int n : {5, 9, 16, 33, 64})
      EXPECT_LT(error({&bf16, &ordered, &other}, n, true), 2e-5)
          << n << " rows, blocks of " << tokens;
    EXPECT_LT(error({&codes}, 40, true), 2e-5) << "blocks of " << tokens;
  }
}

// Gate and up in one kernel, which rounds what becomes of them for the product behind it: the bits
// of one operation after the other, and fewer kernels.
TEST_F(CudaWide, GatedAreThoseOfOneOperationAfterTheOther) {
  constexpr int kCols = 256, kHidden = 192;
  ActivationFunction clamped = Activation::kClampedSilu;
  clamped.parameters[0] = 1.7f, clamped.parameters[1] = 0.5f;
  struct Layer {
    Matrix gate, up, down;
    bool ordered = false;  // the inputs of down, which are rounded anew
  };
  std::vector<Layer> layers;
  for (const QuantType type : {QuantType::kBF16, QuantType::kQ8_0, QuantType::kQ4_0,
                               QuantType::kQ4_K, QuantType::kQ5_K, QuantType::kQ6_K})
    layers.push_back({matrix(type, kHidden, kCols), matrix(type, kHidden, kCols),
                      matrix(QuantType::kQ8_0, 40, kHidden)});
  for (const bool zeros : {false, true})
    layers.push_back({grouped(4, 64, zeros, false, kHidden, kCols),
                      grouped(4, 64, zeros, false, kHidden, kCols),
                      grouped(4, 64, zeros, true, 40, kHidden), true});
  auto& device = static_cast<CudaOps&>(*ops_).device();
  int n_runs = 0;
  for (const auto& [gate, up, down, ordered] : layers) {
    for (const int tokens : {128, 256}) {
      wide().cut({tokens, 1});
      for (const int n : {65, 300}) {
        ops_->begin_step(nullptr);
        const bool biased = tokens == 128;
        const auto bias = ops_->pack_vector(random_floats(kHidden, 9)).value();
        const Tensor x =
            tensor_of(*ops_, random_floats(static_cast<size_t>(n) * kCols, 5), n, kCols);
        const auto target = [&](const Matrix& m) {
          return LinearTarget{m.weight.get(), biased && m.rows == kHidden ? bias.get() : nullptr,
                              ops_->new_tensor(n, m.rows)};
        };
        const ActivationFunction f = n_runs++ % 2 == 0 ? ActivationFunction() : clamped;
        const LinearTarget apart[] = {target(gate), target(up)},
                           together[] = {target(gate), target(up)};
        const LinearTarget last[] = {target(down), target(down)};
        ops_->linear(x, apart);
        ops_->activate_mul(apart[0].out, apart[1].out, f, apart[0].out);
        ops_->linear(apart[0].out, {&last[0], 1});
        const Tensor out = ops_->new_tensor(n, kHidden);
        const uint64_t before = device.n_launches();
        ops_->gated_linear({x, {}, x}, together[0], together[1], f, out);
        ops_->linear(out, {&last[1], 1});
        EXPECT_EQ(device.n_launches() - before, ordered ? 4u : 3u);
        EXPECT_EQ(read(*ops_, out).all, read(*ops_, apart[0].out).all) << n << " rows";
        EXPECT_EQ(read(*ops_, last[1].out).all, read(*ops_, last[0].out).all) << n << " rows";
        // What has changed meanwhile is rounded again.
        ops_->gated_linear({x, {}, x}, together[0], together[1], f, out);
        ops_->scale(out, 2.0f, 0.0f);
        ops_->linear(out, {&last[1], 1});
        EXPECT_NE(read(*ops_, last[1].out).all, read(*ops_, last[0].out).all);
      }
    }
  }
}

// FP16 reaches from 2^-24 to 65,504: each row has a power of two of its own.
TEST_F(CudaWide, OfHalvesAreForRowsOfAnySize) {
  constexpr int kCols = 200;
  const Matrix m = matrix(QuantType::kF16, 150, kCols);
  for (const int n : {70, 20}) {
    ops_->begin_step(nullptr);
    std::vector<float> x = random_floats(static_cast<size_t>(n) * kCols, 5);
    const auto size_of = [](int t) {
      return t % 5 == 4 ? 0.0f : std::ldexp(1.0f, 60 * (t % 5) - 100);
    };
    for (int t = 0; t < n; ++t)
      for (int k = 0; k < kCols; ++k) x[static_cast<size_t>(t) * kCols + k] *= size_of(t);
    const LinearTarget target[] = {{m.weight.get(), nullptr, ops_->new_tensor(n, m.rows)}};
    ops_->linear(tensor_of(*ops_, x, n, kCols), target);
    const Values got = read(*ops_, target[0].out);
    for (int t = 0; t < n; ++t) {
      double error = 0, size = 1e-300;
      for (int r = 0; r < m.rows; ++r) {
        double sum = 0;
        for (int k = 0; k < kCols; ++k)
          sum += static_cast<double>(m.values[static_cast<size_t>(r) * kCols + k]) *
                 x[static_cast<size_t>(t) * kCols + k];
        error += (got.at(t, r) - sum) * (got.at(t, r) - sum), size += sum * sum;
      }
      EXPECT_LT(std::sqrt(error / size), n > 64 ? 6e-4 : 2e-6) << n << " rows, row " << t;
    }
  }
}

// Up to 64 rows, and all where bits may not depend on others, nothing is rounded.
// What was fastest on an H200 (132 multiprocessors; bench/results/cuda-h200-2026-11-26.json, BF16
// and Q4_K), or within 7 % of it. The cuts of 64 rows are the 4 splits, or none, that were there
// beside what was chosen then.
TEST(CudaWideCuts, AreThoseThatWereFastestOnAnH200) {
  struct Row {
    int rows, outputs, inputs, tokens, splits;
  };
  constexpr Row kRows[] = {
      {16, 4096, 4096, 16, 16},   {64, 4096, 4096, 64, 4},     {128, 4096, 4096, 64, 2},
      {256, 4096, 4096, 64, 1},   {1024, 4096, 4096, 256, 1},  {2048, 4096, 4096, 256, 1},
      {16, 14336, 4096, 16, 4},   {64, 14336, 4096, 64, 1},    {128, 14336, 4096, 128, 1},
      {256, 14336, 4096, 256, 1}, {1024, 14336, 4096, 256, 1}, {2048, 14336, 4096, 256, 1},
      {16, 4096, 14336, 16, 16},  {64, 4096, 14336, 64, 4},    {128, 4096, 14336, 128, 4},
      {256, 4096, 14336, 128, 2}, {1024, 4096, 14336, 256, 1}, {2048, 4096, 14336, 256, 1},
  };
  for (const Row& row : kRows) {
    const WideProducts::Cut cut =
        WideProducts::best_cut({row.rows, row.outputs, row.inputs / 64}, 132, true);
    EXPECT_EQ(std::pair(cut.tokens, cut.splits), std::pair(row.tokens, row.splits))
        << row.rows << " rows, " << row.outputs << " x " << row.inputs;
  }
  // Without wgmma blocks are of 64 rows at most, of two parts 32; and inputs of few units are not
  // split into nothing.
  EXPECT_EQ(WideProducts::best_cut({2048, 4096, 64}, 108, false), (WideProducts::Cut{64, 1}));
  EXPECT_EQ(WideProducts::best_cut({64, 14336, 64}, 108, false).tokens, 32);
  for (const int rows : {9, 64, 65, 300})
    EXPECT_EQ(WideProducts::best_cut({rows, 128, 4}, 132, true).splits, 1);
}

TEST_F(CudaWide, AreForManyRows) {
  {
    const Matrix m = matrix(QuantType::kQ4_K, 20, 256);
    EXPECT_LT(error({&m}, 64, false), 2e-5);
    EXPECT_GT(error({&m}, 65, false), 2e-4);
  }
  ops_ = make_ops("cuda_emulated", {.n_threads = 1, .batch_invariant = true}).value();
  const Matrix same = matrix(QuantType::kQ4_K, 20, 256);
  EXPECT_LT(error({&same}, 65, false), 2e-5);
}

}  // namespace
}  // namespace penstock::cuda

#endif
