// Weights of other quantizers (grouped matrices) through packing and products on every instruction
// set: against sums in double of the values by their specification, with the activations as the
// kernels round them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "kernels/pack/panel_pack.h"
#include "ops/cpu/weight.h"
#include "ops/ops_under_test.h"
#include "quant/plain.h"

namespace penstock {
namespace {

enum class Kind { kSymmetric, kZeros, kTernary, kNf4, kE2M1, kF8 };

struct GroupedShape {
  Kind kind;
  int bits, cols, group;
  PanelType expected;
  friend std::ostream& operator<<(std::ostream& out, const GroupedShape& s) {
    return out << static_cast<int>(s.kind) << "/" << s.bits << " bits, " << s.cols
               << " in groups of " << s.group;
  }
};

constexpr PanelType kF16 = panel_type(QuantType::kF16);
using enum PanelType;

// Every layout, groups that are not those of any, columns that are not whole units, and what must
// be decoded.
const GroupedShape kShapes[] = {
    {Kind::kSymmetric, 4, 512, 128, kI4G128},
    {Kind::kSymmetric, 4, 768, 256, kI4G128},
    {Kind::kSymmetric, 4, 192, 64, panel_type(QuantType::kQ4_0)},
    {Kind::kSymmetric, 4, 96, 32, panel_type(QuantType::kQ4_0)},
    {Kind::kSymmetric, 4, 144, 48, kLevels16},
    {Kind::kSymmetric, 4, 100, 100, panel_type(QuantType::kQ4_0)},
    {Kind::kSymmetric, 4, 60, 20, kF16},
    {Kind::kSymmetric, 3, 512, 128, kI3Z128},
    {Kind::kSymmetric, 2, 64, 32, kI2Z32},
    {Kind::kSymmetric, 5, 128, 64, panel_type(QuantType::kQ5_0)},
    {Kind::kSymmetric, 6, 128, 32, panel_type(QuantType::kQ8_0)},
    {Kind::kSymmetric, 8, 256, 128, panel_type(QuantType::kQ8_0)},
    {Kind::kSymmetric, 8, 200, 200, kI8Row},
    {Kind::kSymmetric, 7, 320, 320, kI8Row},
    {Kind::kZeros, 2, 256, 128, kI2Z128},
    {Kind::kZeros, 2, 96, 32, kI2Z32},
    {Kind::kZeros, 3, 384, 128, kI3Z128},
    {Kind::kZeros, 3, 320, 64, kI3Z32},
    {Kind::kZeros, 4, 512, 128, kI4Z128},
    {Kind::kZeros, 4, 128, 64, kI4Z32},
    {Kind::kZeros, 4, 301, 301, kI4Z128},
    {Kind::kZeros, 4, 144, 48, kF16},
    {Kind::kZeros, 5, 128, 32, kI8Z32},
    {Kind::kZeros, 8, 160, 32, kI8Z32},
    {Kind::kTernary, 2, 320, 320, kTernaryRow},
    {Kind::kTernary, 2, 128, 64, kI2Z32},
    {Kind::kNf4, 4, 256, 64, kLevels64},
    {Kind::kNf4, 4, 512, 128, kLevels64},
    {Kind::kNf4, 4, 640, 128, kLevels16},
    {Kind::kNf4, 4, 96, 32, kLevels16},
    {Kind::kE2M1, 4, 96, 32, panel_type(QuantType::kMXFP4)},
    {Kind::kE2M1, 4, 48, 16, kLevels16},
    {Kind::kF8, 8, 301, 301, kF8Row},
    {Kind::kF8, 8, 256, 128, kF8G64},
    {Kind::kF8, 8, 192, 64, kF8G64},
    {Kind::kF8, 8, 96, 32, kF16},
};

const float kNf4[16] = {-1.0f,     -0.69619f, -0.52507f, -0.39492f, -0.28444f, -0.18477f,
                        -0.09105f, 0.0f,      0.07958f,  0.16093f,  0.24611f,  0.33792f,
                        0.44071f,  0.56262f,  0.72296f,  1.0f};

struct Grouped {
  GroupedMatrix matrix;
  std::vector<uint8_t> bytes;
  std::vector<float> values;  // by the specification, inputs in their own order
};

void set_codebook(const GroupedShape& shape, GroupedMatrix& m) {
  if (shape.kind == Kind::kNf4) m.codebook.assign(kNf4, kNf4 + 16);
  if (shape.kind == Kind::kE2M1) {
    for (const int8_t doubled : quant::kE2M1Levels)
      m.codebook.push_back(0.5f * static_cast<float>(doubled));
  }
  for (int c = 0; shape.kind == Kind::kF8 && c < 256; ++c)
    m.codebook.push_back(quant::decode_f8e4m3(static_cast<uint8_t>(c)));
}

// Codes lie as words by row, or as bytes.
void fill_codes(const GroupedShape& shape, int rows, std::minstd_rand& random, Grouped& g) {
  const int per_word = 32 / shape.bits, words = (shape.cols + per_word - 1) / per_word;
  const bool plain = shape.bits == 8;
  g.matrix.layout = plain ? CodeLayout::kBytes : CodeLayout::kWordsByRow;
  std::vector<uint32_t> packed(static_cast<size_t>(rows) * words);
  g.bytes.resize(plain ? static_cast<size_t>(rows) * shape.cols : packed.size() * 4);
  for (int r = 0; r < rows; ++r) {
    for (int k = 0; k < shape.cols; ++k) {
      uint32_t code = random() >> 8 & ((1u << shape.bits) - 1);
      if (shape.kind == Kind::kTernary && code == 3) code = 1;
      if (shape.kind == Kind::kF8 && (code & 0x7f) == 0x7f) code = 0;
      if (plain) {
        g.bytes[static_cast<size_t>(r) * shape.cols + k] = static_cast<uint8_t>(code);
      } else {
        packed[static_cast<size_t>(r) * words + k / per_word] |= code
                                                                 << (k % per_word * shape.bits);
      }
    }
  }
  if (!plain)
    std::copy_n(reinterpret_cast<const uint8_t*>(packed.data()), g.bytes.size(), g.bytes.data());
}

Grouped make_grouped(const GroupedShape& shape, int rows, bool act_order, unsigned seed) {
  std::minstd_rand random(seed + 1);
  Grouped g;
  GroupedMatrix& m = g.matrix;
  m.rows = rows, m.cols = shape.cols, m.bits = shape.bits, m.group_size = shape.group;
  m.uniform_zero = static_cast<int16_t>(shape.kind == Kind::kTernary ? 1 : 1 << (shape.bits - 1));
  if (shape.kind >= Kind::kNf4) m.uniform_zero = 0;
  set_codebook(shape, m);
  const size_t n_scales = static_cast<size_t>(rows) * m.n_groups();
  for (size_t i = 0; i < n_scales; ++i) {
    m.scales.push_back((0.001f + static_cast<float>(random() % 1000) * 1e-5f) *
                       (i / m.n_groups() % 3 == 0 ? 64 : 1));
    if (shape.kind == Kind::kZeros)
      m.zeros.push_back(static_cast<int16_t>(random() >> 8 & ((1 << shape.bits) - 1)));
  }
  if (act_order) {
    m.input_order.resize(static_cast<size_t>(shape.cols));
    std::iota(m.input_order.begin(), m.input_order.end(), 0);
    std::shuffle(m.input_order.begin(), m.input_order.end(), random);
  }
  fill_codes(shape, rows, random, g);
  m.packed = std::as_bytes(std::span(g.bytes));
  EXPECT_TRUE(m.check("test").has_value()) << shape;
  g.values.resize(static_cast<size_t>(rows) * shape.cols);
  m.dequantize(0, rows, g.values.data());
  return g;
}

// How far packed values may be from the specification's, relative to the largest of their group.
double packing_error(const GroupedShape& shape) {
  if (shape.kind == Kind::kNf4) return 0.5 / 63 + 1e-3;
  return 6e-4;  // FP16 scales
}

TEST(GroupedPanels, HoldTheWeightsInTheExpectedLayout) {
  ThreadPool pool(2);
  WeightPacker packer(pool);
  for (const GroupedShape& shape : kShapes) {
    for (const bool act_order : {false, true}) {
      SCOPED_TRACE(::testing::Message() << shape << (act_order ? " ordered" : ""));
      const Grouped g = make_grouped(shape, 53, act_order, 3);
      const auto packed = packer.pack(g.matrix, 16, 37).value();
      const auto& weight = static_cast<const CpuWeight&>(*packed);
      ASSERT_EQ(weight.panels().type, shape.expected);
      std::vector<float> row(static_cast<size_t>(shape.cols));
      for (int r = 0; r < weight.rows(); ++r) {
        weight.decode_row(r, row.data());
        const float* expected = &g.values[static_cast<size_t>(r + 16) * shape.cols];
        double largest = 0;
        for (int k = 0; k < shape.cols; ++k)
          largest = std::max<double>(largest, std::fabs(expected[k]));
        for (int k = 0; k < shape.cols; ++k)
          ASSERT_NEAR(row[k], expected[k], largest * packing_error(shape)) << r << " " << k;
      }
    }
  }
}

TEST(GroupedPanels, EqualOrdersAreShared) {
  ThreadPool pool(1);
  WeightPacker packer(pool);
  const GroupedShape shape = {Kind::kSymmetric, 4, 256, 128, kI4G128};
  const Grouped a = make_grouped(shape, 16, true, 1), b = make_grouped(shape, 16, true, 1);
  const Grouped c = make_grouped(shape, 16, true, 2);
  const auto order = [&](const Grouped& g) {
    return static_cast<const CpuWeight&>(*packer.pack(g.matrix, 0, 16).value()).input_order();
  };
  const auto first = packer.pack(a.matrix, 0, 16).value();
  const auto* expected = static_cast<const CpuWeight&>(*first).input_order();
  ASSERT_NE(expected, nullptr);
  EXPECT_EQ(order(b), expected);
  EXPECT_NE(order(c), expected);
}

TEST(GroupedPanels, NumbersThatAreNoneAreRefused) {
  Grouped g = make_grouped({Kind::kNf4, 4, 64, 64, kLevels64}, 16, false, 1);
  g.matrix.codebook[3] = NAN;
  EXPECT_FALSE(g.matrix.check("test").has_value());
  g = make_grouped(kShapes[0], 16, false, 1);
  for (const float scale : {0.0f, -1.0f, NAN, INFINITY}) {
    g.matrix.activations = {ActivationCoding::Kind::kInt8Static, scale, 0};
    EXPECT_FALSE(g.matrix.check("test").has_value()) << scale;
  }
}

TEST(GroupedPanels, RowsOutsideTheMatrixAreRefused) {
  ThreadPool pool(1);
  const Grouped g = make_grouped(kShapes[0], 32, false, 1);
  for (const auto& [first, n] :
       {std::pair{-1, 4}, std::pair{0, 0}, std::pair{30, 3}, std::pair{0, 33}})
    EXPECT_FALSE(WeightPacker(pool).pack(g.matrix, first, n).has_value());
}

// What the activations become: 8 bits by group, row or a given scale; with BF16 tiles 8 bits of
// mantissa.
struct Tolerance {
  double relative;  // of the sum of magnitudes
};

class GroupedLinear : public testing::TestWithParam<OpsUnderTest> {};

double row_max(const float* x, int n) {
  double largest = 0;
  for (int k = 0; k < n; ++k) largest = std::max<double>(largest, std::fabs(x[k]));
  return largest;
}

// [row, output]: a product, and how far from it rounding may lead.
using References = std::vector<std::pair<double, double>>;

// Products of rows by the specification.
References references(const GroupedShape& shape, const Grouped& w, int from, int n_outputs,
                      const std::vector<float>& x) {
  using Coding = ActivationCoding::Kind;
  const ActivationCoding& coding = w.matrix.activations;
  const int n_rows = static_cast<int>(x.size()) / shape.cols;
  References result;
  std::vector<double> level_errors;
  for (int n = 0; n < n_outputs; ++n) {
    const double largest = row_max(&w.values[(n + from) * shape.cols], shape.cols);
    level_errors.push_back(packing_error(shape) * largest);
  }
  for (int m = 0; m < n_rows; ++m) {
    const float* const row = &x[static_cast<size_t>(m) * shape.cols];
    const double step =
        coding.kind == Coding::kInt8Static ? coding.static_scale : row_max(row, shape.cols) / 127;
    for (int n = 0; n < n_outputs; ++n) {
      const float* const weights = &w.values[(n + from) * shape.cols];
      double sum = 0, bound = 0, total = 0;
      for (int k = 0; k < shape.cols; ++k) {
        double value = row[k];
        // A static scale that saturates is part of the checkpoint's definition; everything else is
        // an error.
        if (coding.kind == Coding::kInt8Static)
          value =
              std::clamp<double>(value, -127.0 * coding.static_scale, 127.0 * coding.static_scale);
        const double rounding = step * 0.5 * weights[k], level = level_errors[n] * value;
        sum += weights[k] * value;
        bound += rounding * rounding + level * level;
        total += std::fabs(weights[k] * value);
      }
      result.emplace_back(sum, 5 * std::sqrt(bound) + 1e-5 * total);
    }
  }
  return result;
}

TEST_P(GroupedLinear, MatchesTheSpecification) {
  using Coding = ActivationCoding::Kind;
  const auto ops = GetParam().make();
  const bool slow = GetParam().isa == "scalar";
  // Of a shape and a kind, for all backends; rows are a beginning of the same ones.
  static std::map<std::pair<const GroupedShape*, Coding>, std::pair<References, References>> known;
  for (const GroupedShape& shape : kShapes) {
    for (const Coding kind : {Coding::kNone, Coding::kInt8PerToken, Coding::kInt8Static}) {
      SCOPED_TRACE(::testing::Message() << shape << " coding " << static_cast<int>(kind));
      Grouped g = make_grouped(shape, 85, true, 7), h = make_grouped(shape, 40, false, 8);
      for (GroupedMatrix* m : {&g.matrix, &h.matrix}) m->activations = {kind, 0.012f, 0};
      const auto first = ops->pack_grouped(g.matrix, 0, 85).value(),
                 second = ops->pack_grouped(h.matrix, 8, 32).value();
      const auto all_x = random_floats(size_t{40} * shape.cols, 9, 0.5f);
      auto& [expected_y, expected_z] = known[{&shape, kind}];
      if (expected_y.empty()) {
        expected_y = references(shape, g, 0, 85, all_x);
        expected_z = references(shape, h, 8, 32, all_x);
      }
      std::vector<float> previous;
      for (const int n_rows : {slow ? 9 : 40, 1, 2, 3, 4, 5, 8, 9, 16, 17, 33}) {
        if (slow && n_rows > 9) continue;
        ops->begin_step(nullptr);
        const std::vector<float> x(all_x.begin(),
                                   all_x.begin() + static_cast<long>(n_rows) * shape.cols);
        const Tensor input = tensor_of(*ops, x, n_rows, shape.cols);
        const Tensor y = ops->new_tensor(n_rows, 85), z = ops->new_tensor(n_rows, 32);
        const LinearTarget targets[] = {{first.get(), nullptr, y}, {second.get(), nullptr, z}};
        ops->linear(input, targets);
        const Values rows_of_y = read(*ops, y), rows_of_z = read(*ops, z);
        const auto check = [&](const References& expected, const Values& out) {
          for (int m = 0; m < n_rows; ++m) {
            for (int n = 0; n < out.cols; ++n) {
              const auto [sum, bound] = expected[static_cast<size_t>(m) * out.cols + n];
              ASSERT_NEAR(out.at(m, n), sum, bound) << m << " " << n << " of " << n_rows;
            }
          }
        };
        check(expected_y, rows_of_y);
        check(expected_z, rows_of_z);
        // The same row alone and among others: bit for bit in the invariant mode, and where sums
        // are whole numbers.
        const bool whole = shape.expected == kI8Row || shape.expected == kTernaryRow;
        if (previous.empty()) previous.assign(rows_of_y.row(), rows_of_y.row() + 85);
        if (GetParam().config.batch_invariant || (whole && kind != Coding::kNone)) {
          for (int n = 0; n < 85; ++n)
            ASSERT_EQ(rows_of_y.at(0, n), previous[n]) << n << " of " << n_rows;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, GroupedLinear, testing::ValuesIn(ops_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock
