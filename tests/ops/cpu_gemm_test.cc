// Every encoding on every instruction set this machine has, against sums in double of the
// specification's weights.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/gemm_kernels.h"
#include "kernels/kernel_table.h"
#include "kernels/pack/panel_pack.h"
#include "ops/cpu/gemm_choice.h"
#include "ops/cpu/weight.h"
#include "quant/all.h"

namespace penstock {
namespace {

using Random = std::mt19937;

float uniform(Random& random, float low, float high) {
  return std::uniform_real_distribution<float>(low, high)(random);
}

// Random blocks with scales of a sensible size.
template <class Q>
void fill_block(Random& random, typename Q::Block& block) {
  auto* bytes = reinterpret_cast<uint8_t*>(&block);
  for (size_t i = 0; i < sizeof block; ++i) bytes[i] = static_cast<uint8_t>(random());
  const auto small = [&] { return to_half(uniform(random, 0.001f, 0.01f)); };
  if constexpr (requires { block.scale = Half{}; }) block.scale = small();
  if constexpr (requires { block.min = Half{}; }) block.min = small();
  if constexpr (requires { block.offset = Half{}; }) block.offset = small();
  if constexpr (requires { block.exponent; })
    block.exponent = static_cast<uint8_t>(110 + random() % 16);
  if constexpr (Q::kType == QuantType::kTQ2_0) {
    for (uint8_t& b : block.crumbs)
      b = static_cast<uint8_t>(random() % 3 | random() % 3 << 2 | random() % 3 << 4 |
                               random() % 3 << 6);
  }
  if constexpr (Q::kType == QuantType::kQ8_0) {
    for (int8_t& v : block.values) v = std::max<int8_t>(v, -127);
  }
  if constexpr (Q::kType == QuantType::kIQ1_M) {
    const Half scale = small();
    for (int k = 0; k < 4; ++k) {
      const int nibble = scale.bits >> (4 * k) & 15;
      block.scales[k] = static_cast<uint16_t>((block.scales[k] & 0x0fff) | nibble << 12);
    }
  }
}

struct Matrix {
  QuantType type;
  int rows, cols;
  std::vector<std::byte> bytes;
  std::vector<float> values;  // by the specification

  QuantizedMatrix view() const { return {type, rows, cols, bytes}; }
};

Matrix random_matrix(QuantType type, int rows, int cols, uint32_t seed) {
  Random random(seed);
  Matrix m{type, rows, cols, std::vector<std::byte>(rows * quant_bytes(type, cols)),
           std::vector<float>(static_cast<size_t>(rows) * cols)};
  quant::visit(type, [&](auto q) {
    using Q = decltype(q);
    for (size_t at = 0; at < m.bytes.size(); at += sizeof(typename Q::Block)) {
      typename Q::Block block{};
      if constexpr (quant::IntegerCoded<Q>) {
        fill_block<Q>(random, block);
      } else if constexpr (quant::Encodable<Q>) {
        const float x = uniform(random, -1, 1);
        Q::encode(&x, nullptr, block);
      }
      std::memcpy(&m.bytes[at], static_cast<const void*>(&block), sizeof block);
    }
  });
  for (int r = 0; r < rows; ++r) {
    dequantize_row(type, m.bytes.data() + r * quant_bytes(type, cols),
                   m.values.data() + static_cast<size_t>(r) * cols, cols);
  }
  return m;
}

std::vector<float> random_floats(size_t n, uint32_t seed) {
  Random random(seed);
  std::vector<float> x(n);
  for (float& v : x) v = uniform(random, -2, 2);
  return x;
}

// A 64-byte aligned buffer that guards nothing but alignment; sanitizers watch its ends.
template <class T>
class Aligned {
 public:
  explicit Aligned(size_t n) : memory_(n * sizeof(T) + 64) {}
  T* data() {
    return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(memory_.data()) + 63) &
                                ~uintptr_t{63});
  }

 private:
  std::vector<std::byte> memory_;
};

struct QuantizedRows {
  std::vector<int8_t> values;
  std::vector<ActivationGroup> groups;
  std::vector<ActivationHalves> halves;
  int block, n_steps;

  bool one_scale;

  Int8Rows view() const {
    return {values.data(), groups.data(), halves.data(), block, n_steps, one_scale};
  }
  size_t at(int m, int step) const {
    return (static_cast<size_t>(m / block) * n_steps + step) * block + m % block;
  }
  int8_t code(int m, int k) const { return values[at(m, k / 32) * 32 + k % 32]; }
  const ActivationGroup& group(int m, int step) const { return groups[at(m, step)]; }
  double value(int m, int k) const {
    return static_cast<double>(group(m, k / 32).scale) * code(m, k);
  }
};

QuantizedRows quantize(const GemmKernels& kernels, const std::vector<float>& x, int n_rows,
                       int cols, ActivationRounding rounding = {}, int block = 0) {
  if (block == 0) block = int8_block_rows(n_rows);
  const int padded = (cols + 255) / 256 * 256;
  const int n_padded = (n_rows + block - 1) / block * block;
  QuantizedRows q{std::vector<int8_t>(static_cast<size_t>(n_padded) * padded),
                  std::vector<ActivationGroup>(static_cast<size_t>(n_padded) * padded / 32),
                  std::vector<ActivationHalves>(static_cast<size_t>(n_padded) * padded / 32),
                  block,
                  padded / 32,
                  rounding.one_scale()};
  for (int m = 0; m < n_padded; ++m) {
    const float* row = m < n_rows ? x.data() + static_cast<size_t>(m) * cols : nullptr;
    kernels.quantize_row(row, m < n_rows ? cols : 0, padded, rounding, block,
                         &q.values[q.at(m, 0) * 32], &q.groups[q.at(m, 0)], &q.halves[q.at(m, 0)]);
  }
  return q;
}

// Vectors' products of any number of rows, each by the plan of its own.
struct VectorProduct {
  const GemmKernels& kernels;
  PanelType type;
  GemmTraits traits = {};

  bool integers() const { return panel_kind(type, false) >= PanelKind::kNibbles; }
  GemmChoice choice(int n_rows) const {
    return choose_gemm({kernels.plans, {}}, type, false, n_rows, traits);
  }
  void run(const PanelMatrix& w, const Int8Rows& x, int n_rows, int begin, int end,
           const GemmOutput& out) const {
    kernels.int8[static_cast<int>(type)][choice(n_rows).index](w, x, n_rows, begin, end, out);
  }
  void run(const PanelMatrix& w, const FloatRows& x, int n_rows, int begin, int end,
           const GemmOutput& out) const {
    kernels.f32[static_cast<int>(type)][choice(n_rows).index](w, x, n_rows, begin, end, out);
  }
};

// Products by tiles in BF16; null where so many rows have none.
TileKernels::TileGemm bf16_product(const TileKernels* tiles, PanelType type, int n_rows) {
  if (tiles == nullptr) return nullptr;
  const GemmPlan* plan = find_plan(tiles->plans, panel_kind(type, false), n_rows, {});
  if (plan == nullptr || plan->path != GemmPath::kBf16Tiles) return nullptr;
  return tiles->tiles[static_cast<int>(type)][plan - tiles->plans.data()];
}

struct PackedMatrix {
  std::unique_ptr<Weight> weight;
  const PanelMatrix& panels() const { return static_cast<const CpuWeight&>(*weight).panels(); }
};

PackedMatrix pack(const Matrix& m) {
  static ThreadPool pool(2);
  return {WeightPacker(pool).pack(m.view()).value()};
}

// Sum and sum of magnitudes of row n of w times x, which is given as a function of k.
template <class F>
std::pair<double, double> dot(const Matrix& w, int n, F x) {
  double sum = 0, size = 0;
  for (int k = 0; k < w.cols; ++k) {
    const double product =
        static_cast<double>(w.values[static_cast<size_t>(n) * w.cols + k]) * x(k);
    sum += product;
    size += std::fabs(product);
  }
  return {sum, size};
}

struct Case {
  QuantType type;
  const KernelTable* table;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const KernelTable& table : available_kernels()) {
    for (const QuantTypeInfo& info : quant_types()) {
      const bool number = info.type >= QuantType::kI8 && info.type <= QuantType::kBool;
      if (!number) cases.push_back({info.type, &table});
    }
  }
  return cases;
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return std::string(info.param.table->name) + "_" + std::string(quant_info(info.param.type).name);
}

class GemmTest : public testing::TestWithParam<Case> {
 protected:
  const KernelTable& table() const { return *GetParam().table; }
  QuantType type() const { return GetParam().type; }
  int block() const { return quant_info(type()).block_size; }
  bool float_type() const { return block() == 1; }
  // Column counts: one block, several with a remainder of every unit, and (for plain floats) odd
  // ones.
  std::vector<int> columns() const {
    if (block() == 256) return {256, 768};
    if (block() > 1) return {block(), 3 * block(), 19 * block()};
    return {1, 7, 64, 301};
  }
};

TEST_P(GemmTest, PanelsHoldTheSameWeights) {
  for (int cols : columns()) {
    const Matrix m = random_matrix(type(), 37, cols, 1);
    const PackedMatrix packed = pack(m);
    std::vector<float> row(cols);
    for (int r = 0; r < m.rows; ++r) {
      unpack_row(packed.panels(), r, row.data());
      for (int k = 0; k < cols; ++k)
        ASSERT_EQ(row[k], m.values[static_cast<size_t>(r) * cols + k]) << r << " " << k;
    }
  }
}

TEST_P(GemmTest, FewPanelsMatchTheSpecification) {
  const auto gemm = table().gemm->few_panels[static_cast<int>(panel_shape(type(), 256).type)];
  const bool floats =
      type() == QuantType::kF32 || type() == QuantType::kF16 || type() == QuantType::kBF16;
  ASSERT_TRUE(gemm != nullptr || !floats);
  if (gemm == nullptr) return;
  for (const int cols : {1, 2, 3, 4, 5, 31, 64, 257}) {
    const Matrix w = random_matrix(type(), 37, cols, 2);
    const PackedMatrix packed = pack(w);
    constexpr int kMost = 11;
    const auto x = random_floats(static_cast<size_t>(kMost) * cols, 3);
    std::vector<float> first;
    for (int n_rows = kMost; n_rows > 0; --n_rows) {
      std::vector<float> y(static_cast<size_t>(n_rows) * w.rows, -77.0f);
      for (const auto& [begin, end] : {std::pair{0, 1}, std::pair{1, packed.panels().n_panels()}})
        gemm(packed.panels(), {x.data(), cols}, n_rows, begin, end, {y.data(), w.rows, nullptr});
      if (first.empty()) first = y;
      for (int m = 0; m < n_rows; ++m) {
        for (int n = 0; n < w.rows; ++n) {
          const size_t at = static_cast<size_t>(m) * w.rows + n;
          ASSERT_EQ(y[at], first[at]) << m << " " << n << " of " << n_rows;
          const auto [sum, size] =
              dot(w, n, [&](int k) { return x[static_cast<size_t>(m) * cols + k]; });
          ASSERT_NEAR(y[at], sum, 4e-6 * (size + 1)) << m << " " << n << " cols " << cols;
        }
      }
    }
  }
}

TEST_P(GemmTest, MatchesTheSpecification) {
  const int max_rows = table().name == std::string("scalar") ? 9 : 70;
  for (int cols : columns()) {
    const Matrix w = random_matrix(type(), 85, cols, 2);
    const PackedMatrix packed = pack(w);
    const PanelMatrix& panels = packed.panels();
    const auto x = random_floats(static_cast<size_t>(max_rows) * cols, 3);
    const VectorProduct product{*table().gemm, panels.type};
    const VectorProduct one_stream{*table().gemm, panels.type, {.one_stream = true}};
    const bool int8 = product.integers();
    const auto bias = random_floats(w.rows, 4);
    const int stride = w.rows + 3;
    std::vector<float> first(static_cast<size_t>(max_rows) * stride);
    for (int n_rows : {max_rows, 1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 20, 22, 27, 33, 48, 49, 52}) {
      if (n_rows > max_rows) continue;
      const QuantizedRows q =
          quantize(*table().gemm, x, n_rows, cols, {}, int8_block_rows(n_rows, true));
      std::vector<float> y(static_cast<size_t>(n_rows) * stride, -77.0f);
      const GemmOutput out{y.data(), stride, bias.data()};
      const auto multiply = [&](const VectorProduct& by, const GemmOutput& to) {
        // Two calls, as two workers would make them.
        for (const auto& [begin, end] : {std::pair{0, 2}, std::pair{2, panels.n_panels()}}) {
          if (int8) {
            by.run(panels, q.view(), n_rows, begin, end, to);
          } else {
            by.run(panels, FloatRows{x.data(), cols}, n_rows, begin, end, to);
          }
        }
      };
      multiply(product, out);
      if (n_rows <= 16) {
        std::vector<float> same(y.size(), -77.0f);
        multiply(one_stream, {same.data(), stride, bias.data()});
        ASSERT_EQ(y, same) << n_rows << " rows, panel after panel";
      }
      for (int m = 0; m < n_rows; ++m) {
        for (int n = 0; n < stride; ++n) {
          const float got = y[static_cast<size_t>(m) * stride + n];
          if (n >= w.rows) {
            ASSERT_EQ(got, -77.0f) << "written beyond the last output";
          } else if (n_rows == max_rows) {
            const auto [sum, size] = dot(w, n, [&](int k) {
              return int8 ? q.value(m, k) : x[static_cast<size_t>(m) * cols + k];
            });
            ASSERT_NEAR(got, sum + bias[n], 4e-6 * (size + 1)) << m << " " << n << " cols " << cols;
            first[static_cast<size_t>(m) * stride + n] = got;
          } else {  // batch invariance
            ASSERT_EQ(got, first[static_cast<size_t>(m) * stride + n])
                << m << " " << n << " of " << n_rows;
          }
        }
      }
    }
  }
}

TEST_P(GemmTest, TilesMatch) {
  const TileKernels* tiles = table().tiles;
  if (tiles == nullptr) return;
  for (int cols : columns()) {
    for (int n_rows : {1, 5, 8, 9, 16, 17, 33, 70}) {
      const Matrix w = random_matrix(type(), 85, cols, 5);
      const PackedMatrix packed = pack(w);
      const PanelMatrix& panels = packed.panels();
      const int index = static_cast<int>(panels.type), stride = w.rows + 3;
      const auto x = random_floats(static_cast<size_t>(n_rows) * cols, 6),
                 bias = random_floats(w.rows, 7);
      std::vector<float> y(static_cast<size_t>(n_rows) * stride, -77.0f), expected = y;
      const GemmOutput out{y.data(), stride, bias.data()},
          reference{expected.data(), stride, bias.data()};
      const GemmPlans plans = GemmPlans::of(table());
      const GemmPlan* exact =
          find_plan(plans.tiles, panel_kind(panels.type, false), n_rows, {.batch_invariant = true});
      if (exact != nullptr) {
        ASSERT_EQ(exact->path, GemmPath::kInt8Tiles);
        const QuantizedRows q = quantize(*table().gemm, x, n_rows, cols);
        const auto int8 = tiles->int8[index][exact - plans.tiles.data()];
        for (const auto& [begin, end] : {std::pair{0, 1}, std::pair{1, panels.n_panels()}}) {
          int8(panels, q.view(), n_rows, begin, end, out);
        }
        VectorProduct{*table().gemm, panels.type}.run(panels, q.view(), n_rows, 0,
                                                      panels.n_panels(), reference);
        ASSERT_EQ(y, expected) << cols << " " << n_rows;
      }
      const auto bf16 = bf16_product(tiles, panels.type, n_rows);
      if (bf16 == nullptr) continue;
      const int padded = (cols + 255) / 256 * 256;
      Aligned<uint8_t> buffer(tiles->bf16_tile_bytes(n_rows, padded)),
          scratch(tiles->scratch_bytes);
      for (int first = 0; first < n_rows; first += 16) {
        tiles->pack_bf16({x.data(), cols}, n_rows, first, std::min(16, n_rows - first), cols,
                         padded, buffer.data());
      }
      std::fill(y.begin(), y.end(), -77.0f);
      for (const auto& [begin, end] : {std::pair{0, 2}, std::pair{2, panels.n_panels()}}) {
        bf16(panels, buffer.data(), n_rows, begin, end, out, scratch.data());
      }
      for (int m = 0; m < n_rows; ++m) {
        for (int n = 0; n < stride; ++n) {
          const float got = y[static_cast<size_t>(m) * stride + n];
          if (n >= w.rows) {
            ASSERT_EQ(got, -77.0f);
            continue;
          }
          const auto [sum, size] =
              dot(w, n, [&](int k) { return x[static_cast<size_t>(m) * cols + k]; });
          // Activations are rounded to 8 significant bits, at most 2^-9 off; weights are cut to 8
          // and scaled up, at most 2/3 of 2^-7 off.
          ASSERT_NEAR(got, sum + bias[n], size * 0.0079 + 1e-6)
              << m << " " << n << " cols " << cols << " " << n_rows;
        }
      }
    }
  }
}

// Kernels take long rows in slices of columns, whose sums wait, and many rows a few hundred at a
// time.
TEST_P(GemmTest, SlicesOfLongRowsAddUp) {
  const bool tested = type() == QuantType::kQ4_0 || type() == QuantType::kQ4_K ||
                      type() == QuantType::kQ6_K || type() == QuantType::kQ8_0 ||
                      type() == QuantType::kBF16;
  if (!tested || table().name == std::string("scalar")) return;
  constexpr int kCols = 4608;
  const Matrix w = random_matrix(type(), 37, kCols, 8);
  const PackedMatrix packed = pack(w);
  const PanelMatrix& panels = packed.panels();
  const VectorProduct product{*table().gemm, panels.type};
  const int stride = w.rows + 3;
  for (const int n_rows : {21, 301}) {
    const auto x = random_floats(static_cast<size_t>(n_rows) * kCols, 9),
               bias = random_floats(w.rows, 10);
    std::vector<float> y(static_cast<size_t>(n_rows) * stride, -77.0f);
    const GemmOutput out{y.data(), stride, bias.data()};
    const bool int8 = product.integers();
    const auto bf16 = int8 ? nullptr : bf16_product(table().tiles, panels.type, n_rows);
    if (int8) {
      const int block = int8_block_rows(n_rows, true);
      product.run(panels, quantize(*table().gemm, x, n_rows, kCols, {}, block).view(), n_rows, 0,
                  panels.n_panels(), out);
    } else if (bf16 != nullptr) {
      Aligned<uint8_t> buffer(table().tiles->bf16_tile_bytes(n_rows, kCols)),
          scratch(table().tiles->scratch_bytes);
      table().tiles->pack_bf16({x.data(), kCols}, n_rows, 0, n_rows, kCols, kCols, buffer.data());
      bf16(panels, buffer.data(), n_rows, 0, panels.n_panels(), out, scratch.data());
    } else {
      return;
    }
    for (int m = 0; m < n_rows; ++m) {
      const std::vector<float> row(x.begin() + static_cast<ptrdiff_t>(m) * kCols,
                                   x.begin() + static_cast<ptrdiff_t>(m + 1) * kCols);
      std::vector<float> alone(w.rows);
      if (int8) {
        product.run(panels, quantize(*table().gemm, row, 1, kCols).view(), 1, 0, panels.n_panels(),
                    {alone.data(), w.rows, bias.data()});
      }
      for (int n = 0; n < stride; ++n) {
        const float got = y[static_cast<size_t>(m) * stride + n];
        if (n >= w.rows) {
          ASSERT_EQ(got, -77.0f);
        } else if (int8) {
          ASSERT_EQ(got, alone[n]) << m << " " << n;
        } else {
          const auto [sum, size] = dot(w, n, [&](int k) { return row[k]; });
          ASSERT_NEAR(got, sum + bias[n], size * 0.0079 + 1e-6) << m << " " << n;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GemmTest, testing::ValuesIn(all_cases()), case_name);

class QuantizeActivationsTest : public testing::TestWithParam<const KernelTable*> {};

TEST_P(QuantizeActivationsTest, RoundsToNearestAndMatchesScalar) {
  for (int cols : {1, 31, 32, 100, 512}) {
    auto x = random_floats(cols, 11);
    if (cols > 64) std::fill_n(x.begin() + 32, 32, 0.0f);
    using Kind = ActivationRounding::Kind;
    for (const ActivationRounding& rounding :
         {ActivationRounding{}, ActivationRounding{Kind::kPerRow},
          ActivationRounding{Kind::kFixed, 0.01f}}) {
      const bool one_scale = rounding.one_scale();
      const QuantizedRows q = quantize(*GetParam()->gemm, x, 1, cols, rounding);
      const QuantizedRows spec = quantize(*available_kernels()[0].gemm, x, 1, cols, rounding);
      EXPECT_EQ(q.values, spec.values);
      EXPECT_EQ(0, std::memcmp(q.groups.data(), spec.groups.data(),
                               q.groups.size() * sizeof(ActivationGroup)));
      EXPECT_EQ(0, std::memcmp(q.halves.data(), spec.halves.data(),
                               q.halves.size() * sizeof(ActivationHalves)));
      for (int k = 0; k < q.n_steps * 32; ++k) {
        const double scale = q.groups[k / 32].scale;
        const double exact = k < cols ? x[k] : 0.0f;
        EXPECT_NEAR(q.value(0, k), std::clamp(exact, -127 * scale, 127 * scale), scale * 0.5001)
            << k;
        if (one_scale) {
          EXPECT_EQ(scale, q.groups[0].scale);
        }
      }
      for (int g = 0; g < q.n_steps; ++g) {
        int sums[2] = {};
        for (int i = 0; i < 32; ++i) sums[i / 16] += q.values[32 * g + i];
        const ActivationGroup& group = q.groups[g];
        EXPECT_EQ(group.negative_sum, -sums[0] - sums[1]);
        EXPECT_EQ(q.halves[g].negative_sums[1], -sums[1]);
        EXPECT_FLOAT_EQ(group.scaled_sum, group.scale * (sums[0] + sums[1]));
        EXPECT_FLOAT_EQ(q.halves[g].scaled_sums[0], group.scale * sums[0]);
      }
    }
  }
}

std::vector<const KernelTable*> all_tables() {
  std::vector<const KernelTable*> tables;
  for (const KernelTable& table : available_kernels()) tables.push_back(&table);
  return tables;
}

INSTANTIATE_TEST_SUITE_P(All, QuantizeActivationsTest, testing::ValuesIn(all_tables()),
                         [](const auto& info) { return std::string(info.param->name); });

// Where the processor has tiles: those in software, which other machines test with, give nearly the
// same.
TEST(EmulatedTiles, AreThoseOfTheProcessor) {
  const TileKernels *real = nullptr, *emulated = nullptr;
  for (const KernelTable& table : available_kernels()) {
    if (table.name == std::string("amx")) real = table.tiles;
    if (table.emulated) emulated = table.tiles;
  }
  if (real == nullptr) GTEST_SKIP() << "this processor has no AMX";
  if (emulated == nullptr) GTEST_SKIP() << "built without emulated tiles";
  constexpr int kRows = 70, kCols = 768;
  const Matrix w = random_matrix(QuantType::kQ4_K, 85, kCols, 12);
  const PackedMatrix packed = pack(w);
  const auto x = random_floats(size_t{kRows} * kCols, 13);
  std::vector<float> outputs[2];
  for (const TileKernels* tiles : {real, emulated}) {
    Aligned<uint8_t> buffer(tiles->bf16_tile_bytes(kRows, kCols)), scratch(tiles->scratch_bytes);
    tiles->pack_bf16({x.data(), kCols}, kRows, 0, kRows, kCols, kCols, buffer.data());
    auto& y = outputs[tiles == emulated];
    y.resize(static_cast<size_t>(kRows) * w.rows);
    bf16_product(tiles, packed.panels().type, kRows)(packed.panels(), buffer.data(), kRows, 0,
                                                     packed.panels().n_panels(),
                                                     {y.data(), w.rows, nullptr}, scratch.data());
  }
  int n_different = 0;
  for (size_t i = 0; i < outputs[0].size(); ++i) {
    const auto at = static_cast<ptrdiff_t>(i);
    const double size = dot(w, static_cast<int>(at % w.rows), [&](int k) {
                          return x[at / w.rows * kCols + k];
                        }).second;
    ASSERT_NEAR(outputs[0][i], outputs[1][i], 1e-6 * size) << i;
    n_different += outputs[0][i] != outputs[1][i];
  }
  std::printf("%d of %zu outputs differ in their last bits\n", n_different, outputs[0].size());
}

TEST(Dispatch, ForcedTableIsTheOneThatRuns) {
  for (const KernelTable& table : available_kernels()) {
    const auto selected = select_kernels(table.name);
    ASSERT_TRUE(selected.has_value());
    EXPECT_STREQ((*selected)->name, table.name);
    const KernelTable* own = &table;  // whose products these are
    while (own->extends != nullptr && own->gemm == own->extends->gemm) own = own->extends;
    EXPECT_STREQ(table.gemm->name, own->name);
    const std::string name = table.name;
    EXPECT_EQ((*selected)->tiles != nullptr,
              name == "amx" || table.emulated || name == "avx512bf16");
  }
  EXPECT_FALSE(select_kernels("sse9").has_value());
}

TEST(Dispatch, EnvironmentForcesATable) {
  setenv("PENSTOCK_ISA", "scalar", 1);
  EXPECT_STREQ(select_kernels().value()->name, "scalar");
  setenv("PENSTOCK_ISA", "nonsense", 1);
  EXPECT_EQ(select_kernels().error().code, ErrorCode::kInvalidArgument);
  unsetenv("PENSTOCK_ISA");
  const KernelTable* best = nullptr;
  for (const KernelTable& table : available_kernels()) best = table.emulated ? best : &table;
  EXPECT_EQ(select_kernels().value(), best);
}

}  // namespace
}  // namespace penstock
