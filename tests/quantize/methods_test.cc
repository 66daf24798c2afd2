// Known answers and properties of the quantizers themselves.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <random>

#include "quantize/methods/gptq.h"
#include "quantize/methods/scaling.h"

namespace penstock {
namespace {

struct Problem {
  int rows, cols;
  std::vector<float> w;
  Eigen::MatrixXf hessian;
  ActivationStats stats;
};

// Correlated inputs of very different sizes, as real layers have them.
Problem make_problem(int rows, int cols, uint32_t seed, ThreadPool& pool) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Problem p{rows, cols, {}, {}, {}};
  for (int i = 0; i < rows * cols; ++i) p.w.push_back(0.05f * normal(random));
  std::vector<float> size(static_cast<size_t>(cols)), x(static_cast<size_t>(cols) * 256);
  for (float& s : size) s = std::exp(normal(random));
  for (int t = 0; t < 256; ++t) {
    const float common = normal(random);
    for (int j = 0; j < cols; ++j)
      x[static_cast<size_t>(t * cols + j)] =
          size[static_cast<size_t>(j)] * (normal(random) + common);
  }
  p.stats.add(pool, {x.data(), DType::kF32, 256, cols, cols}, true, 256);
  p.stats.finish();
  p.hessian = p.stats.hessian;
  return p;
}

TEST(Stats, HessianIsTheSumOfOuterProducts) {
  ThreadPool pool(2);
  const int cols = 150;
  std::vector<float> x(static_cast<size_t>(cols) * 7);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((i * 37 + 11) % 23) - 11.0f;
  ActivationStats stats;
  stats.add(pool, {x.data(), DType::kF32, 4, cols, cols}, true, 7);
  stats.add(pool, {x.data() + 4 * cols, DType::kF32, 3, cols, cols}, true, 7);
  stats.finish();
  EXPECT_EQ(stats.n_rows(), 7);
  for (int a = 0; a < cols; ++a) {
    for (int b = 0; b < cols; ++b) {
      float sum = 0;
      for (int t = 0; t < 7; ++t)
        sum += x[static_cast<size_t>(t * cols + a)] * x[static_cast<size_t>(t * cols + b)];
      ASSERT_EQ(stats.hessian(a, b), sum) << a << ", " << b;
    }
  }
}

RC_GTEST_PROP(Rounding, RepresentableValuesSurvive, ()) {
  const int bits = *rc::gen::inRange(2, 9);
  const bool symmetric = *rc::gen::arbitrary<bool>();
  const int n = *rc::gen::inRange(2, 40);
  GroupCoding coding;
  coding.bits = bits;
  coding.group_size = n;
  coding.symmetric = symmetric;
  const float scale = std::ldexp(1.0f + 0.25f * static_cast<float>(*rc::gen::inRange(0, 4)),
                                 *rc::gen::inRange(-8, 3));
  const int zero = symmetric ? 1 << (bits - 1) : *rc::gen::inRange(0, 1 << bits);
  std::vector<float> x;
  for (int i = 0; i < n; ++i)
    x.push_back(scale * static_cast<float>(*rc::gen::inRange(0, 1 << bits) - zero));
  // The extremes are there, so that the range says what the scale was.
  x[0] = scale * static_cast<float>(-zero);
  x[1] = scale * static_cast<float>((1 << bits) - 1 - zero);
  std::vector<uint8_t> codes(static_cast<size_t>(n));
  GroupScale fitted;
  encode_grouped_row(coding, x.data(), nullptr, n, false, codes.data(), &fitted);
  for (int i = 0; i < n; ++i)
    RC_ASSERT(std::fabs(decode_level(coding, fitted, codes[static_cast<size_t>(i)]) -
                        x[static_cast<size_t>(i)]) <= 1e-3f * scale);
}

RC_GTEST_PROP(Rounding, ErrorIsAtMostHalfAStep, ()) {
  GroupCoding coding;
  coding.bits = *rc::gen::inRange(2, 9);
  coding.group_size = 32;
  coding.symmetric = *rc::gen::arbitrary<bool>();
  coding.scale_type = QuantType::kF32;
  std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
  std::normal_distribution<float> normal;
  std::vector<float> x(32);
  for (float& value : x) value = normal(random);
  const float most =
      std::fabs(*std::ranges::max_element(x, {}, [](float v) { return std::fabs(v); }));
  // Beside the extreme, whose code may not exist, nothing is off by more than half of the widest
  // step.
  const float step = 2 * most / static_cast<float>((1 << coding.bits) - 2);
  std::vector<uint8_t> codes(32);
  GroupScale scale;
  encode_grouped_row(coding, x.data(), nullptr, 32, false, codes.data(), &scale);
  for (int i = 0; i < 32; ++i)
    RC_ASSERT(std::fabs(decode_level(coding, scale, codes[static_cast<size_t>(i)]) -
                        x[static_cast<size_t>(i)]) <= 1.001f * step);
}

TEST(Rounding, ZerosAndOutliersStayFinite) {
  for (const char* book : {"", "nf4", "fp4", "f8"}) {
    for (const bool symmetric : {true, false}) {
      GroupCoding coding;
      coding.group_size = 16;
      coding.symmetric = symmetric;
      if (std::string(book) == "nf4")
        coding.codebook.assign(nf4_levels().begin(), nf4_levels().end());
      if (std::string(book) == "fp4")
        coding.codebook.assign(fp4_levels().begin(), fp4_levels().end());
      if (std::string(book) == "f8") coding.codebook = f8e4m3_levels(), coding.bits = 8;
      std::vector<float> x(48, 0.0f);
      x[20] = 3e38f;
      for (int i = 32; i < 48; ++i) x[static_cast<size_t>(i)] = 1e-30f;
      std::vector<uint8_t> codes(48);
      GroupScale scales[3];
      encode_grouped_row(coding, x.data(), nullptr, 48, false, codes.data(), scales);
      for (int i = 0; i < 48; ++i) {
        const float value = decode_level(coding, scales[i / 16], codes[static_cast<size_t>(i)]);
        ASSERT_TRUE(std::isfinite(value)) << book << " " << i;
        if (i < 16) {
          EXPECT_EQ(value, 0) << book;
        }
      }
    }
  }
}

TEST(Packing, EveryLayoutIsReadBack) {
  struct Case {
    CodeLayout layout;
    int bits;
  };
  std::vector<Case> cases = {{CodeLayout::kBytes, 8},
                             {CodeLayout::kSignedBytes, 8},
                             {CodeLayout::kNibblesLowFirst, 4},
                             {CodeLayout::kNibblesHighFirst, 4},
                             {CodeLayout::kAwq, 4},
                             {CodeLayout::kCrumbsAcrossRows, 2}};
  for (int bits = 2; bits <= 8; ++bits) {
    cases.push_back({CodeLayout::kWordsByRow, bits});
    cases.push_back({CodeLayout::kStreamByColumn, bits});
  }
  for (const Case& c : cases) {
    const int rows = 16, cols = 64;
    std::mt19937 random(7);
    std::vector<uint8_t> codes(static_cast<size_t>(rows * cols)), read(codes.size());
    for (uint8_t& code : codes) code = static_cast<uint8_t>(random() & ((1u << c.bits) - 1));
    const std::vector<std::byte> bytes = pack_codes(c.layout, codes, rows, cols, c.bits);
    GroupedMatrix matrix;
    matrix.rows = rows;
    matrix.cols = cols;
    matrix.bits = c.bits;
    matrix.group_size = cols;
    matrix.layout = c.layout;
    matrix.scales.assign(static_cast<size_t>(rows), 1.0f);
    matrix.packed = bytes;
    ASSERT_TRUE(matrix.check("test")) << matrix.check("test").error().message;
    matrix.codes(0, rows, read.data());
    EXPECT_EQ(read, codes) << static_cast<int>(c.layout) << " " << c.bits;
  }
}

// d^T H d summed over rows, in plain loops and double.
double plain_error(const Problem& p, const GroupedCodes& codes) {
  double sum = 0;
  std::vector<float> row(static_cast<size_t>(p.cols));
  for (int r = 0; r < p.rows; ++r) {
    codes.dequantize_row(r, row.data());
    for (int j = 0; j < p.cols; ++j)
      row[static_cast<size_t>(j)] -= p.w[static_cast<size_t>(r * p.cols + j)];
    for (int a = 0; a < p.cols; ++a) {
      for (int b = 0; b < p.cols; ++b)
        sum += static_cast<double>(row[static_cast<size_t>(a)]) * p.hessian(a, b) *
               row[static_cast<size_t>(b)];
    }
  }
  return sum;
}

TEST(Gptq, NeverWorseThanRoundingAndMostlyMuchBetter) {
  ThreadPool pool(2);
  for (const int bits : {2, 3, 4, 8}) {
    for (const ActOrder order : {ActOrder::kNone, ActOrder::kStatic, ActOrder::kGroup}) {
      for (const int group : {16, 48, 0}) {
        const Problem p = make_problem(40, 96, static_cast<uint32_t>(bits * 100 + group), pool);
        GptqOptions options;
        options.coding.bits = bits;
        options.coding.group_size = group;
        options.act_order = order;
        const GptqResult result = gptq(pool, options, p.w, p.rows, p.cols, p.hessian);
        EXPECT_LE(result.error, result.rounded_error);
        EXPECT_LT(result.error, 0.8 * result.rounded_error) << bits << " bits, group " << group;
        EXPECT_NEAR(plain_error(p, result.codes), result.error, 1e-2 * result.error);
      }
    }
  }
}

// With independent inputs nothing can be made up for: the codes are those of rounding to nearest.
TEST(Gptq, DiagonalHessianIsRounding) {
  ThreadPool pool(2);
  Problem p = make_problem(8, 64, 3, pool);
  p.hessian = Eigen::MatrixXf::Identity(64, 64);
  GptqOptions options;
  options.coding.group_size = 64;
  options.act_order = ActOrder::kNone;
  const GptqResult result = gptq(pool, options, p.w, p.rows, p.cols, p.hessian);
  for (int r = 0; r < p.rows; ++r) {
    for (int j = 0; j < p.cols; ++j) {
      const GroupScale& scale = result.codes.scale(r, j);
      EXPECT_EQ(result.codes.codes[static_cast<size_t>(r * 64 + j)],
                nearest_code(options.coding, scale, p.w[static_cast<size_t>(r * 64 + j)]));
    }
  }
}

TEST(Gptq, DegenerateHessians) {
  ThreadPool pool(2);
  Problem p = make_problem(8, 64, 4, pool);
  GptqOptions options;
  options.coding.group_size = 32;
  const Eigen::MatrixXf zero = Eigen::MatrixXf::Zero(64, 64);
  const GptqResult nothing = gptq(pool, options, p.w, p.rows, p.cols, zero);
  EXPECT_EQ(nothing.error, 0);
  // Inputs that are always zero, and one direction only.
  Eigen::VectorXf direction = Eigen::VectorXf::LinSpaced(64, 0.0f, 1.0f);
  direction.head(20).setZero();
  const Eigen::MatrixXf thin = direction * direction.transpose();
  const GptqResult result = gptq(pool, options, p.w, p.rows, p.cols, thin);
  EXPECT_LE(result.error, result.rounded_error);
  std::vector<float> row(64);
  for (int r = 0; r < 8; ++r) {
    result.codes.dequantize_row(r, row.data());
    for (const float value : row) ASSERT_TRUE(std::isfinite(value));
  }
}

// A norm and one matrix that reads it.
struct OneLayer {
  explicit OneLayer(const Problem& p) {
    MappedTensor norm, matrix;
    norm.part = Part::kAttentionNorm;
    norm.rows = 1;
    norm.cols = p.cols;
    matrix.is_matrix = matrix.is_linear = true;
    matrix.part = Part::kQ;
    matrix.site = Site::kAttention;
    matrix.rows = p.rows;
    matrix.cols = p.cols;
    tensors = {norm, matrix};
    values.tensors = &tensors;
    values.values = {std::vector<float>(static_cast<size_t>(p.cols), 1.0f), p.w};
    values.decisions.resize(2);
    values.changed.resize(2);
    site.site = Site::kAttention;
    site.readers = {1};
    site.producers = {0};
  }
  std::vector<MappedTensor> tensors;
  LayerValues values;
  ScalingSite site;
};

TEST(Awq, FoldingKeepsTheProductAndSearchIsNeverWorse) {
  ThreadPool pool(2);
  const Problem p = make_problem(48, 64, 5, pool);
  OneLayer layer(p);
  GroupCoding coding;
  coding.group_size = 32;
  coding.symmetric = false;
  const AwqChoice choice = search_awq(pool, coding, layer.site, p.stats, layer.values);
  EXPECT_LE(choice.error, choice.rounded_error);
  EXPECT_GT(choice.alpha, 0);
  EXPECT_LT(choice.error, 0.9 * choice.rounded_error);
  ModelConfig config;
  fold_scale(config, layer.site, choice.scale, layer.values);
  for (int r = 0; r < p.rows; ++r) {
    for (int j = 0; j < p.cols; ++j) {
      const auto i = static_cast<size_t>(r * p.cols + j);
      EXPECT_NEAR(layer.values.values[1][i] * layer.values.values[0][static_cast<size_t>(j)],
                  p.w[i], 1e-6);
    }
  }
}

// Inputs of one size leave nothing to scale: alpha stays 0, the scale 1, and the error is that of
// rounding.
TEST(Awq, AlphaZeroIsRounding) {
  ThreadPool pool(2);
  Problem p = make_problem(16, 64, 6, pool);
  std::fill(p.stats.sum_abs.begin(), p.stats.sum_abs.end(), 256.0f);
  OneLayer layer(p);
  GroupCoding coding;
  coding.group_size = 32;
  const AwqChoice choice = search_awq(pool, coding, layer.site, p.stats, layer.values);
  EXPECT_EQ(choice.error, choice.rounded_error);
  for (const float s : choice.scale) EXPECT_EQ(s, 1.0f);
  GroupedCodes rounded = *round_to_nearest(pool, coding, p.w, p.rows, p.cols, nullptr, false);
  EXPECT_NEAR(plain_error(p, rounded), choice.rounded_error, 1e-2 * choice.rounded_error);
}

TEST(Awq, ClippingIsNeverWorseInItsGroups) {
  ThreadPool pool(2);
  const Problem p = make_problem(32, 64, 8, pool);
  GroupCoding coding;
  coding.bits = 3;
  coding.group_size = 64;  // one group: its error is the whole error
  coding.symmetric = false;
  const GroupedCodes clipped = clip_groups(pool, coding, p.w, p.rows, p.cols, p.hessian);
  const GroupedCodes rounded = *round_to_nearest(pool, coding, p.w, p.rows, p.cols, nullptr, false);
  EXPECT_LT(plain_error(p, clipped), plain_error(p, rounded));
}

TEST(SmoothQuant, BetterThanPlainWithOutliers) {
  ThreadPool pool(2);
  Problem p = make_problem(48, 64, 9, pool);
  const auto injected = [&](ActivationStats& stats) {
    for (int t = 0; t < stats.n_rows(); ++t) stats.rows[static_cast<size_t>(t * 64 + 5)] *= 80.0f;
    stats.max_abs[5] *= 80.0f;
  };
  injected(p.stats);
  OneLayer layer(p);
  Recipe recipe;
  recipe.coding.bits = 8;
  recipe.coding.group_size = 0;
  recipe.activations = ActivationCoding::Kind::kInt8PerToken;
  const SmoothChoice choice = search_smoothing(pool, recipe, layer.site, p.stats, layer.values);
  EXPECT_GT(choice.alpha, 0);
  EXPECT_GT(choice.scale[5], 3 * choice.scale[6]);
}

TEST(Scaling, RepeatedHeadsShareOneScale) {
  ScalingSite site;
  site.repeat = 2;
  site.head_dim = 2;
  std::vector<float> s = {1, 2, 4, 8, 1, 1, 9, 4};
  share_repeated(site, s);
  const std::vector<float> want = {2, 4, 2, 4, 3, 2, 3, 2};
  for (size_t i = 0; i < s.size(); ++i) EXPECT_NEAR(s[i], want[i], 1e-5);
}

}  // namespace
}  // namespace penstock
