// Weights that stay in their file until they are used: the same bits in the first step, in the one
// that packs them and behind it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/kept_map.h"
#include "base/mapped_file.h"
#include "ops/cpu/host_tensor.h"
#include "ops/cpu/weight.h"
#include "ops/ops_under_test.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

// Large enough to wait, no multiple of 16 rows; behind a few bytes, so that rows lie at odd
// addresses.
constexpr int kRows = 4005, kCols = 2048;
constexpr size_t kBegin = 12;

class LatePanels : public testing::TestWithParam<QuantType> {
 protected:
  void SetUp() override {
    path_ = fs::path(testing::TempDir()) / fmt::format("late_{}", static_cast<int>(GetParam()));
    constexpr int kDistinct =
        61;  // rows, which panels begin with at any place: some types take long
    const std::vector<float> values = random_floats(size_t{kDistinct} * kCols, 5, 0.1f);
    bytes_.resize(kBegin + quant_bytes(GetParam(), int64_t{kRows} * kCols));
    const size_t stride = (bytes_.size() - kBegin) / kRows;
    for (int r = 0; r < kRows; ++r) {
      std::byte* const row = bytes_.data() + kBegin + stride * r;
      if (r < kDistinct)
        quantize_row(GetParam(), values.data() + size_t{kCols} * r, row, kCols);
      else
        std::copy_n(row - stride * kDistinct, stride, row);
    }
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes_.data()),
               static_cast<std::streamsize>(bytes_.size()));
  }
  void TearDown() override { fs::remove(path_); }

  QuantizedMatrix in_memory() const { return of(bytes_); }
  static QuantizedMatrix of(std::span<const std::byte> bytes) {
    return {GetParam(), kRows, kCols, bytes.subspan(kBegin)};
  }
  // Packed late; nobody else has the file.
  std::unique_ptr<Weight> in_file(Ops& ops) const {
    const MappedFile file = MappedFile::open(path_).value();
    return ops.pack(of(file.bytes())).value();
  }

  fs::path path_;
  std::vector<std::byte> bytes_;
};

const penstock::LatePanels* late(const Weight& weight) {
  return static_cast<const CpuWeight&>(weight).late();
}

std::vector<float> product_of(Ops& ops, const Weight& weight, int rows) {
  const std::vector<float> x = random_floats(static_cast<size_t>(rows) * kCols, 7);
  ops.begin_step(nullptr);
  const Tensor out = ops.new_tensor(rows, kRows);
  const CpuVector bias(random_floats(kRows, 9));
  const LinearTarget target{&weight, &bias, out};
  ops.linear(tensor_of(ops, x, rows, kCols), {&target, 1});
  return read(ops, out).all;
}

TEST_P(LatePanels, TheSameBitsBeforeWhileAndAfterTheyArePacked) {
  for (const int rows : {1, 7, 16, 40}) {
    const auto ops = make_ops("cpu", {.n_threads = 2}).value();
    const auto packed = ops->pack(in_memory()).value();
    EXPECT_EQ(late(*packed), nullptr);
    const auto weight = in_file(*ops);
    ASSERT_NE(late(*weight), nullptr);
    EXPECT_EQ(weight->packed_bytes(), packed->packed_bytes());
    const auto reference = make_ops("cpu", {.n_threads = 2}).value();
    const std::vector<float> expected = product_of(*reference, *packed, rows);
    EXPECT_EQ(product_of(*ops, *weight, rows), expected) << "first step, rows " << rows;
    EXPECT_NE(late(*weight), nullptr);
    EXPECT_EQ(product_of(*ops, *weight, rows), expected) << "step that packs, rows " << rows;
    EXPECT_EQ(late(*weight), nullptr);
    EXPECT_EQ(product_of(*ops, *weight, rows), expected) << "after it, rows " << rows;
  }
}

TEST_P(LatePanels, StoredAndDecodedAsIfTheyHadBeenPacked) {
  const auto ops = make_ops("cpu", {.n_threads = 2}).value();
  const auto packed = ops->pack(in_memory()).value(), weight = in_file(*ops);
  const auto row_of = [](const Weight& of, int row) {
    std::vector<float> values(kCols);
    static_cast<const CpuWeight&>(of).decode_row(row, values.data());
    return values;
  };
  for (const int row : {0, 17, kRows - 1}) EXPECT_EQ(row_of(*weight, row), row_of(*packed, row));
  ASSERT_NE(late(*weight), nullptr);
  EXPECT_EQ(ops->describe(*weight), ops->describe(*packed));
  const OwnedBytes stored = ops->store(*weight), expected = ops->store(*packed);
  EXPECT_EQ(late(*weight), nullptr);
  EXPECT_TRUE(std::ranges::equal(stored.bytes, expected.bytes));
  EXPECT_EQ(row_of(*weight, kRows - 1), row_of(*packed, kRows - 1));
}

INSTANTIATE_TEST_SUITE_P(Types, LatePanels,
                         testing::Values(QuantType::kF32, QuantType::kF16, QuantType::kBF16,
                                         QuantType::kQ8_0, QuantType::kQ4_0, QuantType::kQ4_K,
                                         QuantType::kQ6_K, QuantType::kIQ4_XS, QuantType::kTQ2_0),
                         [](const auto& info) { return std::string(quant_info(info.param).name); });

TEST(KeptMap, OutlivesItsMappedFile) {
  const fs::path path = fs::path(testing::TempDir()) / "kept_map";
  std::ofstream(path) << std::string(10000, 'x');
  const std::byte elsewhere[4] = {};
  EXPECT_EQ(keep_mapped(elsewhere), nullptr);
  std::shared_ptr<const void> kept;
  std::span<const std::byte> bytes;
  {
    const MappedFile file = MappedFile::open(path).value();
    bytes = file.bytes();
    kept = keep_mapped(bytes.subspan(9000, 1000));
    ASSERT_NE(kept, nullptr);
    EXPECT_EQ(keep_mapped({bytes.data() + 9000, 1001}), nullptr);
  }
  fs::remove(path);
  EXPECT_EQ(bytes[9999], std::byte{'x'});
  drop_mapped(bytes);
  EXPECT_EQ(bytes[0], std::byte{'x'});
}

}  // namespace
}  // namespace penstock
