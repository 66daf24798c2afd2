// The kernels that measure a device, on the emulated one: that they do what is timed. Its rates
// mean nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/device_limits.h"

#ifdef PENSTOCK_CUDA_EMULATION
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/kernels/limits.h"
#include "ops/cuda/kernels/thread.h"
#include "quant/quant_type.h"

namespace penstock::cuda {
namespace {

// Products of bytes [16, 32] and [32, 8], row by row.
template <class Sum>
struct MultiplyBytes {
  static constexpr int kThreads = 32;
  const uint8_t *a, *b;
  Sum* d;
  void operator()(const Thread& t) const {
    const int g = t.lane() / 4, q = t.lane() % 4;
    uint32_t fa[4] = {}, fb[2] = {};
    for (int byte = 0; byte < 4; ++byte) {
      for (int i = 0; i < 4; ++i)
        fa[i] |= uint32_t{a[(g + 8 * (i & 1)) * 32 + 16 * (i >> 1) + 4 * q + byte]} << 8 * byte;
      for (int i = 0; i < 2; ++i) fb[i] |= uint32_t{b[(16 * i + 4 * q + byte) * 8 + g]} << 8 * byte;
    }
    Sum fd[4];
    for (int i = 0; i < 4; ++i) fd[i] = d[(g + 8 * (i >> 1)) * 8 + 2 * q + (i & 1)];
    if constexpr (std::is_same_v<Sum, int>) {
      t.mma_int8(fd, fa, fb);
    } else {
      t.mma_f8(fd, fa, fb);
    }
    for (int i = 0; i < 4; ++i) d[(g + 8 * (i >> 1)) * 8 + 2 * q + (i & 1)] = fd[i];
  }
};

template <class Sum, class Value>
void expect_product(Value value) {
  std::vector<uint8_t> a(16 * 32), b(32 * 8);
  // As F8: numbers of at most 2, of either sign, whose products are whole numbers of 2^-18.
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<uint8_t>((i * 37 + i / 7) & 0xbf);
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<uint8_t>((i * 53 + i / 5) & 0xbf);
  std::vector<Sum> d(16 * 8), expected(16 * 8);
  for (size_t i = 0; i < d.size(); ++i) d[i] = static_cast<Sum>(i);
  for (size_t m = 0; m < 16; ++m) {
    for (size_t n = 0; n < 8; ++n) {
      double sum = static_cast<double>(d[m * 8 + n]);
      for (size_t k = 0; k < 32; ++k) sum += value(a[m * 32 + k]) * value(b[k * 8 + n]);
      expected[m * 8 + n] = static_cast<Sum>(sum);
    }
  }
  Emulated<MultiplyBytes<Sum>>::launch({a.data(), b.data(), d.data()}, {1, 1, 0});
  for (size_t i = 0; i < d.size(); ++i) EXPECT_NEAR(d[i], expected[i], 1e-4) << i;
}

TEST(CudaLimits, MmaOfBytesIsAProduct) {
  expect_product<int>([](uint8_t byte) { return static_cast<double>(static_cast<int8_t>(byte)); });
  expect_product<float>([](uint8_t bits) {
    const auto byte = static_cast<std::byte>(bits);
    float value;
    dequantize_row(QuantType::kF8E4M3, &byte, &value, 1);
    return static_cast<double>(value);
  });
}

TEST(CudaLimits, MemoryIsReadAndCopiedWhole) {
  for (const int64_t n : {1, 511, 5000}) {
    std::vector<FourWords> from(static_cast<size_t>(n)), to(from.size() + 1);
    uint32_t all = 0, next = 1;
    for (FourWords& words : from)
      for (uint32_t& word : words.w) word = next = next * 1664525u + 1013904223u, all ^= word;
    constexpr int kBlocks = 3;
    std::vector<uint32_t> out(size_t{kBlocks} * ReadMemory::kThreads, 1);
    Emulated<ReadMemory>::launch({from.data(), n, out.data()}, {kBlocks, 1, 0});
    for (const uint32_t word : out) all ^= word;
    EXPECT_EQ(all, 0u) << n;
    Emulated<CopyMemory>::launch({from.data(), n, to.data()}, {kBlocks, 1, 0});
    EXPECT_EQ(std::memcmp(from.data(), to.data(), from.size() * sizeof(FourWords)), 0) << n;
    EXPECT_EQ(to.back().w[0], 0u);
  }
}

// Each round adds the same.
template <Operand kOperand>
void expect_rounds() {
  using Kernel = MultiplyInRegisters<kOperand>;
  std::vector<float> once(Kernel::kThreads), thrice(once.size());
  Emulated<Kernel>::launch({1, once.data()}, {1, 1, 0});
  Emulated<Kernel>::launch({3, thrice.data()}, {1, 1, 0});
  for (size_t i = 0; i < once.size(); ++i) {
    EXPECT_GT(once[i], 0);
    EXPECT_EQ(thrice[i], 3 * once[i]);
  }
}

TEST(CudaLimits, EveryProductIsComputed) {
  expect_rounds<Operand::kBF16>();
  expect_rounds<Operand::kF8>();
  expect_rounds<Operand::kInt8>();
  EXPECT_EQ(MultiplyInRegisters<Operand::kBF16>::operations(2, 3),
            2.0 * 16 * 8 * 16 * 8 * 3 * 2 * 8);
}

TEST(CudaLimits, AllIsMeasuredAndSaidToMeanNothing) {
  const auto ops = make_ops("cuda_emulated", {.n_threads = 1}).value();
  const DeviceLimits limits = sample_device(*ops);
  // a GPU, on which this runs too, means them
  EXPECT_EQ(limits.emulated, static_cast<CudaOps&>(*ops).device().emulated());
  EXPECT_EQ(limits.all.size(), 8u);
  for (const DeviceLimit& limit : limits.all) EXPECT_GT(limit.value, 0) << limit.name;
  const MachineLimits machine = ops->limits(0);
  EXPECT_GT(machine.read_bytes_per_second, 0);
  EXPECT_GT(machine.floats.operations_per_second, 0);
}

}  // namespace
}  // namespace penstock::cuda
#endif

namespace penstock {
namespace {

TEST(DeviceLimits, ACpuHasNone) {
  const auto ops = make_ops("cpu", {.n_threads = 1}).value();
  EXPECT_TRUE(sample_device(*ops).all.empty());
}

}  // namespace
}  // namespace penstock
