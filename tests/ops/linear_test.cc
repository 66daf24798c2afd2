// Ops::linear, embed and moe on every backend and configuration, against sums in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "ops/ops_under_test.h"
#include "quant/quant_type.h"

namespace penstock {
namespace {

struct Matrix {
  QuantType type;
  int rows, cols;
  std::vector<std::byte> bytes;
  std::vector<float> values;

  QuantizedMatrix view() const { return {type, rows, cols, bytes}; }
  const float* row(int r) const { return &values[static_cast<size_t>(r) * cols]; }
};

Matrix make_matrix(QuantType type, int rows, int cols, unsigned seed) {
  Matrix m{type, rows, cols, std::vector<std::byte>(rows * quant_bytes(type, cols)),
           std::vector<float>(static_cast<size_t>(rows) * cols)};
  const auto values =
      random_floats(m.values.size(), seed, 1.0f / std::sqrt(static_cast<float>(cols)));
  for (int r = 0; r < rows; ++r) {
    std::byte* to = m.bytes.data() + r * quant_bytes(type, cols);
    quantize_row(type, values.data() + static_cast<size_t>(r) * cols, to, cols);
    dequantize_row(type, to, m.values.data() + static_cast<size_t>(r) * cols, cols);
  }
  return m;
}

double dot(const float* a, const float* b, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

class LinearTest : public testing::TestWithParam<OpsUnderTest> {};

TEST_P(LinearTest, TargetsOfAnyTypeShareOneInput) {
  const auto ops = GetParam().make();
  constexpr int kCols = 512;
  const Matrix matrices[] = {
      make_matrix(QuantType::kF32, 40, kCols, 1), make_matrix(QuantType::kQ4_0, 33, kCols, 2),
      make_matrix(QuantType::kBF16, 17, kCols, 3), make_matrix(QuantType::kQ6_K, 100, kCols, 4)};
  std::vector<std::unique_ptr<Weight>> weights;
  std::vector<std::unique_ptr<Vector>> biases;  // of every other one
  const auto bias = random_floats(100, 5);
  for (const Matrix& m : matrices) {
    weights.push_back(ops->pack(m.view()).value());
    const bool with_bias = biases.size() % 2 == 0;
    biases.push_back(with_bias ? ops->pack_vector(std::span(bias).first(m.rows)).value() : nullptr);
  }
  for (int n_rows : {1, 3, 6, 17, 40}) {
    ops->begin_step(nullptr);
    const auto x = random_floats(static_cast<size_t>(n_rows) * kCols, 6);
    const Tensor input = tensor_of(*ops, x, n_rows, kCols);
    std::vector<LinearTarget> targets;
    for (size_t i = 0; i < std::size(matrices); ++i) {
      targets.push_back(
          {weights[i].get(), biases[i].get(), ops->new_tensor(n_rows, matrices[i].rows)});
    }
    ops->linear(input, targets);
    for (size_t i = 0; i < std::size(matrices); ++i) {
      const Values out = read(*ops, targets[i].out);
      double error = 0, size = 0;
      for (int m = 0; m < n_rows; ++m) {
        for (int n = 0; n < matrices[i].rows; ++n) {
          const double sum = dot(matrices[i].row(n), &x[static_cast<size_t>(m) * kCols], kCols);
          const double got = out.at(m, n) - (i % 2 == 0 ? bias[n] : 0.0f);
          error += (got - sum) * (got - sum);
          size += sum * sum;
        }
      }
      // F32 weights are exact; otherwise activations are rounded to 8 bits within groups of 32, or
      // to BF16.
      const double bound = matrices[i].type == QuantType::kF32 ? 2e-6 : 0.008;
      EXPECT_LT(std::sqrt(error / size), bound)
          << quant_info(matrices[i].type).name << " rows " << n_rows;
    }
  }
}

TEST_P(LinearTest, EveryHeadHasItsWeight) {
  const auto ops = GetParam().make();
  constexpr int kHeads = 5, kCols = 96, kRows = 40, kPadding = 7;
  for (const QuantType type : {QuantType::kF32, QuantType::kBF16, QuantType::kQ8_0}) {
    std::vector<Matrix> matrices;
    std::vector<std::unique_ptr<Weight>> weights;
    for (unsigned h = 0; h < kHeads; ++h) {
      matrices.push_back(make_matrix(type, kRows, kCols, h));
      weights.push_back(ops->pack(matrices.back().view()).value());
    }
    for (const int n_tokens : {1, 3, 70}) {
      ops->begin_step(nullptr);
      const int n = n_tokens * kHeads;
      const auto x = random_floats(static_cast<size_t>(n) * (kCols + kPadding), 6);
      const Tensor input = tensor_of(*ops, x, n, kCols + kPadding);
      const Tensor all = ops->new_tensor(n, kRows + kPadding), copied = ops->new_tensor(n, kRows);
      ops->linear_by_head(input.columns(kPadding, kCols), weights, all.columns(0, kRows));
      ops->copy(all.columns(0, kRows), copied);
      const Values out = read(*ops, copied);
      double error = 0, size = 0;
      for (int r = 0; r < n; ++r) {
        for (int c = 0; c < kRows; ++c) {
          const double sum = dot(matrices[static_cast<size_t>(r % kHeads)].row(c),
                                 &x[static_cast<size_t>(r) * (kCols + kPadding) + kPadding], kCols);
          error += (out.at(r, c) - sum) * (out.at(r, c) - sum);
          size += sum * sum;
        }
      }
      const double bound = type == QuantType::kF32 ? 2e-6 : 0.008;
      EXPECT_LT(std::sqrt(error / size), bound)
          << quant_info(type).name << ", " << n_tokens << " tokens";
    }
  }
}

TEST_P(LinearTest, InvariantModeGivesEachRowTheSameWhateverItsCompany) {
  if (!GetParam().config.batch_invariant) return;
  const auto ops = GetParam().make();
  for (QuantType type : {QuantType::kF32, QuantType::kBF16, QuantType::kF16, QuantType::kQ4_0,
                         QuantType::kQ4_K, QuantType::kQ6_K, QuantType::kQ8_0}) {
    constexpr int kCols = 768, kRows = 70;
    const Matrix m = make_matrix(type, 50, kCols, 7);
    const auto weight = ops->pack(m.view()).value();
    const auto x = random_floats(static_cast<size_t>(kRows) * kCols, 8);
    std::vector<float> together;  // all rows at once
    for (int n_rows : {kRows, 1, 2, 5, 10, 13, 18, 35}) {
      for (int first = 0; first < kRows; first += n_rows) {
        ops->begin_step(nullptr);
        const int n = std::min(n_rows, kRows - first);
        const Tensor input = ops->new_tensor(n, kCols);
        ops->write_rows(std::span(x).subspan(static_cast<size_t>(first) * kCols,
                                             static_cast<size_t>(n) * kCols),
                        input);
        const LinearTarget target{weight.get(), nullptr, ops->new_tensor(n, m.rows)};
        ops->linear(input, {&target, 1});
        const std::vector<float> got = read(*ops, target.out).all;
        if (n_rows == kRows) together = got;
        ASSERT_TRUE(std::ranges::equal(
            got, std::span(together).subspan(static_cast<size_t>(first) * m.rows, got.size())))
            << quant_info(type).name << " " << n_rows;
      }
    }
  }
}

// Many rows go through the matrix units in blocks of rows, and a large output around the caches;
// weights are unpacked before the products or between them.
TEST_P(LinearTest, ManyRowsAreTheSameAsFewAtATime) {
  if (!GetParam().isa.starts_with("amx"))
    return;  // elsewhere rows do not go in such blocks, and this would take long
  constexpr int kCols = 768, kRows = 700, kOutputs = 1520;
  for (QuantType type : {QuantType::kQ4_K, QuantType::kBF16}) {
    const Matrix m = make_matrix(type, kOutputs, kCols, 31);
    const auto x = random_floats(static_cast<size_t>(kRows) * kCols, 32),
               bias = random_floats(kOutputs, 33);
    std::vector<float> unpacked_before;
    for (const char* unpack : {"before", "between"}) {
      setenv("PENSTOCK_UNPACK", unpack, 1);
      const auto ops = GetParam().make();
      unsetenv("PENSTOCK_UNPACK");
      const auto weight = ops->pack(m.view()).value();
      const auto packed_bias = ops->pack_vector(bias).value();
      ops->begin_step(nullptr);
      const LinearTarget all{weight.get(), packed_bias.get(), ops->new_tensor(kRows, kOutputs)};
      const Tensor input = tensor_of(*ops, x, kRows, kCols);
      ops->linear(input, {&all, 1});
      const Values whole = read(*ops, all.out);
      if (unpacked_before.empty()) unpacked_before = whole.all;
      ASSERT_EQ(whole.all, unpacked_before) << quant_info(type).name;
      for (int first = 0; first < kRows; first += 90) {
        const int n = std::min(90, kRows - first);
        const LinearTarget some{weight.get(), packed_bias.get(), ops->new_tensor(n, kOutputs)};
        ops->linear(input.row_range(first, n), {&some, 1});
        ASSERT_TRUE(
            std::ranges::equal(read(*ops, some.out).all,
                               std::span(whole.row(first), static_cast<size_t>(n) * kOutputs)))
            << quant_info(type).name << " " << first << " " << unpack;
      }
      for (int row = 0; row < kRows; row += 37) {
        for (int n = 0; n < kOutputs; n += 11) {
          const double sum = dot(m.row(n), &x[static_cast<size_t>(row) * kCols], kCols);
          ASSERT_NEAR(whole.at(row, n) - bias[n], sum, 0.05) << quant_info(type).name << " " << row;
        }
      }
    }
  }
}

TEST_P(LinearTest, EmbedReadsRowsOfAnyType) {
  const auto ops = GetParam().make();
  for (QuantType type : {QuantType::kF32, QuantType::kQ8_0, QuantType::kQ6_K}) {
    const Matrix m = make_matrix(type, 50, 256, 9);
    const auto table = ops->pack(m.view()).value();
    const int32_t ids[] = {49, 0, 17, 17, 31, 32, 1};
    const int32_t positions[] = {3, 4, 0, 7, 48, 49, 2};
    const int32_t types[] = {0, 0, 1, 1, 1, 2, 0};
    Batch batch{.tokens = ids, .positions = positions};
    ops->begin_step(&batch);
    const Tensor out = ops->new_tensor(7, 256);
    ops->embed_tokens(*table, 1.5f, out);
    Values got = read(*ops, out);
    for (int t = 0; t < 7; ++t) {
      for (int i = 0; i < 256; ++i) ASSERT_FLOAT_EQ(got.at(t, i), m.row(ids[t])[i] * 1.5f);
    }
    ops->embed_positions(*table, out);
    got = read(*ops, out);
    for (int t = 0; t < 7; ++t) {
      for (int i = 0; i < 256; ++i)
        ASSERT_FLOAT_EQ(got.at(t, i), m.row(ids[t])[i] * 1.5f + m.row(positions[t])[i]);
    }
    for (const std::span<const int32_t> each :
         {std::span<const int32_t>(types), {}}) {  // none: all of the first
      batch.token_types = each;
      ops->begin_step(&batch);
      const Tensor sum = ops->new_tensor(7, 256);
      ops->embed_tokens(*table, 0.0f, sum);
      ops->embed_token_types(*table, sum);
      got = read(*ops, sum);
      for (int t = 0; t < 7; ++t) {
        for (int i = 0; i < 256; ++i)
          ASSERT_FLOAT_EQ(got.at(t, i), m.row(each.empty() ? 0 : types[t])[i]);
      }
    }
  }
}

// A rank's share of a matrix: some of its rows, some of its columns, or some of both.
TEST_P(LinearTest, PartsOfAMatrixArePackedWhereTheyLie) {
  const auto ops = GetParam().make();
  for (QuantType type : {QuantType::kF32, QuantType::kF16, QuantType::kBF16, QuantType::kQ4_0,
                         QuantType::kQ8_0, QuantType::kQ4_K, QuantType::kQ6_K}) {
    const Matrix m = make_matrix(type, 50, 1024, 13);
    const QuantizedMatrix parts[] = {m.view().row_range(17, 20), m.view().column_range(256, 512),
                                     m.view().row_range(17, 20).column_range(512, 512),
                                     m.view().column_range(512, 512).row_range(17, 33)};
    const int first_rows[] = {17, 0, 17, 17}, first_cols[] = {0, 256, 512, 512};
    for (size_t p = 0; p < std::size(parts); ++p) {
      const auto table = ops->pack(parts[p]).value();
      ASSERT_EQ(table->rows(), parts[p].rows);
      ASSERT_EQ(table->cols(), parts[p].cols);
      std::vector<TokenId> ids(static_cast<size_t>(table->rows()));
      std::iota(ids.begin(), ids.end(), 0);
      const Batch batch{.tokens = ids};
      ops->begin_step(&batch);
      const Tensor out = ops->new_tensor(table->rows(), table->cols());
      ops->embed_tokens(*table, 1.0f, out);
      const Values got = read(*ops, out);
      for (int r = 0; r < table->rows(); ++r) {
        for (int c = 0; c < table->cols(); ++c)
          ASSERT_NEAR(got.at(r, c), m.row(first_rows[p] + r)[first_cols[p] + c], 2e-6)
              << quant_info(type).name << p;
      }
    }
    QuantizedMatrix cut = m.view();
    cut.bytes = cut.bytes.first(cut.bytes.size() - 1);
    EXPECT_FALSE(ops->pack(cut).has_value());
  }
}

TEST_P(LinearTest, MoeIsTheWeightedSumOfTheChosenExperts) {
  const auto ops = GetParam().make();
  constexpr int kExperts = 6, kDim = 64, kHidden = 96;
  std::vector<Matrix> gate, up, down;
  std::vector<std::unique_ptr<Weight>> gates, ups, downs;
  for (unsigned e = 0; e < kExperts; ++e) {
    gate.push_back(make_matrix(QuantType::kF32, kHidden, kDim, 20 + e));
    up.push_back(make_matrix(QuantType::kF32, kHidden, kDim, 40 + e));
    down.push_back(make_matrix(QuantType::kF32, kDim, kHidden, 60 + e));
    gates.push_back(ops->pack(gate.back().view()).value());
    ups.push_back(ops->pack(up.back().view()).value());
    downs.push_back(ops->pack(down.back().view()).value());
  }
  for (const auto& [n_tokens, top_k, normalize, gated] :
       {std::tuple{1, 1, true, true}, std::tuple{1, 2, true, true}, std::tuple{9, 2, false, true},
        std::tuple{9, 6, true, true}, std::tuple{1, 1, true, false}, std::tuple{9, 2, false, false},
        std::tuple{350, 3, true, true}}) {  // more rows than the CPU computes in one group
    ops->begin_step(nullptr);
    const auto x = random_floats(static_cast<size_t>(n_tokens) * kDim, 11);
    const auto logits = random_floats(static_cast<size_t>(n_tokens) * kExperts, 12);
    MoeParams params{.up = ups, .down = downs};
    if (gated) params.gate = gates;
    params.routing = {.n_active = top_k, .normalize = normalize};
    const Tensor out = ops->new_tensor(n_tokens, kDim);
    ops->moe(tensor_of(*ops, x, n_tokens, kDim), tensor_of(*ops, logits, n_tokens, kExperts),
             params, out);
    const Values got = read(*ops, out);
    for (int t = 0; t < n_tokens; ++t) {
      const float* l = &logits[static_cast<size_t>(t) * kExperts];
      std::vector<int> order(kExperts);
      double total = 0, chosen = 0;
      for (int e = 0; e < kExperts; ++e) order[e] = e, total += std::exp(l[e]);
      std::sort(order.begin(), order.end(), [&](int a, int b) { return l[a] > l[b]; });
      for (int k = 0; k < top_k; ++k) chosen += std::exp(l[order[k]]);
      std::vector<double> expected(kDim);
      for (int k = 0; k < top_k; ++k) {
        const int e = order[k];
        std::vector<float> hidden(kHidden);
        for (int h = 0; h < kHidden; ++h) {
          const double u = dot(up[e].row(h), &x[static_cast<size_t>(t) * kDim], kDim);
          const double g = gated ? dot(gate[e].row(h), &x[static_cast<size_t>(t) * kDim], kDim) : u;
          hidden[h] = static_cast<float>(g / (1 + std::exp(-g)) * (gated ? u : 1.0));
        }
        const double weight = std::exp(l[e]) / (normalize ? chosen : total);
        for (int i = 0; i < kDim; ++i)
          expected[i] += weight * dot(down[e].row(i), hidden.data(), kHidden);
      }
      for (int i = 0; i < kDim; ++i) ASSERT_NEAR(got.at(t, i), expected[i], 2e-5) << t << " " << i;
    }
  }
}

// As experts of their own with equal matrices.
TEST_P(LinearTest, ExpertsThatShareMatricesCountEachWithItsWeight) {
  const auto ops = GetParam().make();
  constexpr int kExperts = 6, kShared = 3, kDim = 64, kHidden = 32;
  std::vector<std::unique_ptr<Weight>> gates[2], ups[2], downs[2];
  for (unsigned e = 0; e < kExperts; ++e) {
    const unsigned own = e / kShared;
    for (int few = 0; few < (e % kShared == 0 ? 2 : 1); ++few) {
      gates[few].push_back(
          ops->pack(make_matrix(QuantType::kF32, kHidden, kDim, 20 + own).view()).value());
      ups[few].push_back(
          ops->pack(make_matrix(QuantType::kF32, kHidden, kDim, 40 + own).view()).value());
      downs[few].push_back(
          ops->pack(make_matrix(QuantType::kF32, kDim, kHidden, 60 + own).view()).value());
    }
  }
  ASSERT_EQ(ups[1].size(), size_t{kExperts / kShared});
  for (const int n_tokens : {1, 9, 300}) {
    ops->begin_step(nullptr);
    const auto x = random_floats(static_cast<size_t>(n_tokens) * kDim, 11);
    const auto logits = random_floats(static_cast<size_t>(n_tokens) * kExperts, 12);
    Values got[2];
    for (const int few : {0, 1}) {
      MoeParams params{.gate = gates[few], .up = ups[few], .down = downs[few]};
      params.routing = {.n_active = 4, .scale = 0.7f, .per_matrix = few == 1 ? kShared : 1};
      const Tensor out = ops->new_tensor(n_tokens, kDim);
      ops->moe(tensor_of(*ops, x, n_tokens, kDim), tensor_of(*ops, logits, n_tokens, kExperts),
               params, out);
      got[few] = read(*ops, out);
    }
    for (int t = 0; t < n_tokens; ++t)
      for (int i = 0; i < kDim; ++i)
        ASSERT_NEAR(got[1].at(t, i), got[0].at(t, i), 2e-5) << t << " " << i;
  }
}

// What experts give is scaled and normed before it is weighed; a choice behind the experts adds nothing.
TEST_P(LinearTest, ResultsOfExpertsAreNormedAndIdleChoicesAddNothing) {
  if (!GetParam().is_cpu()) return;
  const auto ops = GetParam().make();
  constexpr int kExperts = 3, kTokens = 7, kDim = 32, kHidden = 48;
  constexpr float kEps = 0.1f;
  std::vector<Matrix> up, down;
  std::vector<std::unique_ptr<Weight>> ups, downs;
  for (unsigned e = 0; e < kExperts; ++e) {
    up.push_back(make_matrix(QuantType::kF32, kHidden, kDim, 20 + e));
    down.push_back(make_matrix(QuantType::kF32, kDim, kHidden, 40 + e));
    ups.push_back(ops->pack(up.back().view()).value());
    downs.push_back(ops->pack(down.back().view()).value());
  }
  const auto x = random_floats(size_t{kTokens} * kDim, 1), scale = random_floats(kDim, 2);
  const auto logits = random_floats(size_t{kTokens} * (kExperts + 1), 3);
  const auto packed = ops->pack_vector(scale).value();
  MoeParams params{.up = ups, .down = downs};
  params.routing = {.n_active = 2, .score = RouterScore::kSigmoid, .normalize = false};
  params.activation = Activation::kRelu;
  params.result_scale = packed.get(), params.result_eps = kEps, params.idle_rest = true;
  ops->begin_step(nullptr);
  const Tensor out = ops->new_tensor(kTokens, kDim);
  ops->moe(tensor_of(*ops, x, kTokens, kDim), tensor_of(*ops, logits, kTokens, kExperts + 1),
           params, out);
  const Values got = read(*ops, out);
  int n_idle = 0;
  for (int t = 0; t < kTokens; ++t) {
    const float* const l = &logits[static_cast<size_t>(t) * (kExperts + 1)];
    std::vector<int> order = {0, 1, 2, 3};
    std::sort(order.begin(), order.end(), [&](int a, int b) { return l[a] > l[b]; });
    std::vector<double> expected(kDim);
    for (const int e : {order[0], order[1]}) {
      if (e == kExperts) ++n_idle;
      if (e == kExperts) continue;
      std::vector<float> hidden(kHidden);
      for (int h = 0; h < kHidden; ++h)
        hidden[h] = std::max(
            0.0f, static_cast<float>(dot(up[e].row(h), &x[static_cast<size_t>(t) * kDim], kDim)));
      std::vector<double> result(kDim);
      double square = 0;
      for (int i = 0; i < kDim; ++i) {
        result[i] = dot(down[e].row(i), hidden.data(), kHidden) * scale[i];
        square += result[i] * result[i] / kDim;
      }
      for (int i = 0; i < kDim; ++i)
        expected[i] += result[i] / std::sqrt(square + kEps) / (1 + std::exp(-l[e]));
    }
    for (int i = 0; i < kDim; ++i) ASSERT_NEAR(got.at(t, i), expected[i], 2e-5) << t << " " << i;
  }
  EXPECT_GT(n_idle, 0);
}

// Rows that are rounded once for all experts, or, where one expert reads floats, by each of them.
TEST_P(LinearTest, InvariantMoeGivesEachTokenTheSameWhateverItsCompany) {
  if (!GetParam().config.batch_invariant) return;
  const auto ops = GetParam().make();
  constexpr int kExperts = 5, kTokens = 60, kDim = 256, kHidden = 256, kTopK = 2;
  const auto x = random_floats(static_cast<size_t>(kTokens) * kDim, 51);
  const auto logits = random_floats(static_cast<size_t>(kTokens) * kExperts, 52);
  for (const QuantType last : {QuantType::kQ4_0, QuantType::kF32}) {
    std::vector<std::unique_ptr<Weight>> gates, ups, downs;
    unsigned seed = 53;
    for (const QuantType type :
         {QuantType::kQ4_0, QuantType::kQ4_K, QuantType::kQ6_K, QuantType::kQ8_0, last}) {
      gates.push_back(ops->pack(make_matrix(type, kHidden, kDim, ++seed).view()).value());
      ups.push_back(ops->pack(make_matrix(type, kHidden, kDim, ++seed).view()).value());
      downs.push_back(ops->pack(make_matrix(type, kDim, kHidden, ++seed).view()).value());
    }
    for (const bool weigh_input : {false, true}) {
      MoeParams params{.gate = gates, .up = ups, .down = downs};
      params.routing = {.n_active = kTopK, .weigh_input = weigh_input};
      std::vector<float> together;
      for (const int n_tokens : {kTokens, 1, 7, 30}) {
        for (int first = 0; first < kTokens; first += n_tokens) {
          ops->begin_step(nullptr);
          const int n = std::min(n_tokens, kTokens - first);
          const auto rows_of = [&](const std::vector<float>& all, int cols) {
            const auto size = static_cast<size_t>(cols);
            const Tensor tensor = ops->new_tensor(n, cols);
            ops->write_rows(std::span(all).subspan(static_cast<size_t>(first) * size,
                                                   static_cast<size_t>(n) * size),
                            tensor);
            return tensor;
          };
          const Tensor out = ops->new_tensor(n, kDim);
          ops->moe(rows_of(x, kDim), rows_of(logits, kExperts), params, out);
          const std::vector<float> got = read(*ops, out).all;
          if (n_tokens == kTokens) together = got;
          ASSERT_TRUE(std::ranges::equal(
              got, std::span(together).subspan(static_cast<size_t>(first) * kDim, got.size())))
              << quant_info(last).name << " " << weigh_input << " " << n_tokens;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, LinearTest, testing::ValuesIn(ops_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock
