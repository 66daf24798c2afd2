// What kernels of the CUDA backend are written in, on the emulated device; and that it finds the
// mistakes it is for.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "ops/ops.h"

#ifdef PENSTOCK_CUDA_EMULATION
#include "ops/cuda/device.h"
#include "ops/cuda/kernels/limits.h"
#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {
namespace {

// Neighbours exchange what they have through shared memory.
struct Exchange {
  static constexpr int kThreads = 64;
  int* out;
  bool with_barrier;
  void operator()(const Thread& t) const {
    int* const shared = t.shared_as<int>();
    shared[t.index] = t.index;
    if (with_barrier) t.sync();
    out[t.index] = shared[(t.index + 1) % kThreads];
  }
};

// Some lanes leave before the others meet.
struct LeavesEarly {
  static constexpr int kThreads = 32;
  void operator()(const Thread& t) const {
    if (t.lane() < 3) return;
    t.sync_warp();
  }
};

struct Differs {
  static constexpr int kThreads = 32;
  int* out;
  void operator()(const Thread& t) const {
    if (t.lane() < 3) {
      t.sync_warp();
    } else {
      out[t.lane()] = t.shuffle(1, 0);
    }
  }
};

struct Collectives {
  static constexpr int kThreads = 96;
  double* out;  // [4]
  void operator()(const Thread& t) const {
    const double a = warp_sum(t, static_cast<double>(t.index)),
                 b = warp_max(t, static_cast<double>(-t.index));
    const double c = block_sum<kThreads>(t, static_cast<double>(t.index), t.shared_as<double>());
    const double d = block_max<kThreads>(t, static_cast<double>(t.index), t.shared_as<double>());
    if (t.index == 40) out[0] = a, out[1] = b, out[2] = c, out[3] = d;
  }
};

// A sum that depends on its order, beside the same by shuffles, which is how the GPU takes it.
struct SumsByShuffles {
  static constexpr int kThreads = 32;
  float* sums;      // [32]
  float* shuffled;  // [32]
  void operator()(const Thread& t) const {
    float value =
        std::pow(-3.3f, static_cast<float>(t.lane() % 7)) / static_cast<float>(t.lane() + 1);
    sums[t.lane()] = warp_sum(t, value);
    for (int mask = kWarp / 2; mask > 0; mask /= 2) value += t.shuffle_xor(value, mask);
    shuffled[t.lane()] = value;
  }
};

// Each lane brings 16 bytes and reads its neighbour's.
struct Brings {
  static constexpr int kThreads = 32;
  const std::byte* from;
  uint32_t* out;
  bool waits;
  void operator()(const Thread& t) const {
    t.copy_ahead(t.shared + 16 * t.lane(), from + 16 * t.lane());
    t.end_copies();
    if (waits) {
      t.wait_for_copies<0>();
    } else {
      t.wait_for_copies<1>();
    }
    t.sync_warp();
    out[t.lane()] = t.shared_as<uint32_t>()[(t.lane() + 1) % kThreads * 4];
  }
};

struct LoadsMatrices {
  static constexpr int kThreads = 32;
  int offset;
  void operator()(const Thread& t) const {
    uint32_t to[4];
    t.load_matrices(to, t.shared + 16 * t.lane() + offset);
    t.load_transposed(to, t.shared + 16 * t.lane() + offset);
  }
};

// One product of mma, with matrices that lie row by row.
struct OneMma {
  static constexpr int kThreads = 32;
  const float *a, *b;
  float* d;
  void operator()(const Thread& t) const {
    const int g = t.lane() / 4, q = t.lane() % 4;
    const auto pair = [](float x, float y) {
      return float_to_bf16(x) | static_cast<uint32_t>(float_to_bf16(y)) << 16;
    };
    uint32_t fa[4], fb[2];
    for (int i = 0; i < 4; ++i) {
      const float* const from = a + (g + 8 * (i & 1)) * 16 + 8 * (i >> 1) + 2 * q;
      fa[i] = pair(from[0], from[1]);
    }
    for (int i = 0; i < 2; ++i)
      fb[i] = pair(b[(8 * i + 2 * q) * 8 + g], b[(8 * i + 2 * q + 1) * 8 + g]);
    float fd[4];
    for (int i = 0; i < 4; ++i) fd[i] = d[(g + 8 * (i >> 1)) * 8 + 2 * q + (i & 1)];
    t.mma(fd, fa, fb);
    for (int i = 0; i < 4; ++i) d[(g + 8 * (i >> 1)) * 8 + 2 * q + (i & 1)] = fd[i];
  }
};

TEST(CudaKernels, ABarrierIsMissedWhereItIsMissing) {
  std::vector<int> out(Exchange::kThreads);
  const auto n_wrong = [&](bool with_barrier) {
    int wrong = 0;
    for (int round = 0; round < 10; ++round) {
      Emulated<Exchange>::launch({out.data(), with_barrier}, {1, 1, 4 * Exchange::kThreads});
      for (int i = 0; i < Exchange::kThreads; ++i)
        wrong += out[static_cast<size_t>(i)] != (i + 1) % Exchange::kThreads;
    }
    return wrong;
  };
  EXPECT_EQ(n_wrong(true), 0);
  EXPECT_GT(n_wrong(false), 100);
}

TEST(CudaKernels, AThreadThatDoesNotComeIsFound) {
  EXPECT_DEATH(Emulated<LeavesEarly>::launch({}, {1, 1, 0}), "LeavesEarly.*wait for others");
  int out[32];
  EXPECT_DEATH(Emulated<Differs>::launch({out}, {1, 1, 0}), "Differs.*do different things");
}

TEST(CudaKernels, SumsOfWarpsAndBlocks) {
  double out[4] = {};
  Emulated<Collectives>::launch({out}, {1, 1, 64});
  EXPECT_EQ(out[0], (32 + 63) * 16);
  EXPECT_EQ(out[1], -32);
  EXPECT_EQ(out[2], 95 * 48);
  EXPECT_EQ(out[3], 95);
}

TEST(CudaKernels, SumsAreThoseOfShuffles) {
  float sums[32], shuffled[32];
  Emulated<SumsByShuffles>::launch({sums, shuffled}, {1, 1, 0});
  for (int lane = 0; lane < 32; ++lane) EXPECT_EQ(sums[lane], shuffled[lane]) << lane;
}

TEST(CudaKernels, CopiesAreThereWhenTheyWereWaitedFor) {
  struct alignas(16) {
    uint32_t words[4 * Brings::kThreads + 4];
  } from;
  for (uint32_t i = 0; i < 4 * Brings::kThreads + 4; ++i) from.words[i] = i;
  const auto* const bytes = reinterpret_cast<const std::byte*>(from.words);
  uint32_t out[Brings::kThreads];
  for (const bool waits : {true, false}) {
    Emulated<Brings>::launch({bytes, out, waits}, {1, 1, 16 * Brings::kThreads});
    for (uint32_t i = 0; i < Brings::kThreads; ++i)
      EXPECT_EQ(out[i] == (i + 1) % Brings::kThreads * 4, waits) << i;
  }
  EXPECT_DEATH(Emulated<Brings>::launch({bytes + 4, out, true}, {1, 1, 16 * Brings::kThreads}),
               "Brings.*not aligned");
}

TEST(CudaKernels, MmaIsAProduct) {
  std::vector<float> a(16 * 16), b(16 * 8), d(16 * 8), expected(16 * 8);
  for (size_t i = 0; i < a.size(); ++i)
    a[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50);
  for (size_t i = 0; i < b.size(); ++i)
    b[i] = static_cast<float>(static_cast<int>(i * 53 % 89) - 44) / 8;
  for (size_t i = 0; i < d.size(); ++i) d[i] = expected[i] = static_cast<float>(i);
  for (size_t m = 0; m < 16; ++m)
    for (size_t n = 0; n < 8; ++n)
      for (size_t k = 0; k < 16; ++k) expected[m * 8 + n] += a[m * 16 + k] * b[k * 8 + n];
  Emulated<OneMma>::launch({a.data(), b.data(), d.data()}, {1, 1, 0});
  EXPECT_EQ(d, expected);  // all are small whole numbers of eighths
}

TEST(CudaKernels, TwoBf16HoldSixteenBits) {
  for (float x : {1.0f, -3.14159274f, 1e-20f, 65504.0f, 1.0f / 3}) {
    const SplitPair pair = split_pair(x, -x);
    for (int half = 0; half < 2; ++half) {
      const auto part = [&](uint32_t word) {
        return bf16_to_float(static_cast<uint16_t>(word >> (16 * half)));
      };
      EXPECT_NEAR(part(pair.hi) + part(pair.lo), half == 0 ? x : -x, std::fabs(x) * 0x1p-16);
    }
  }
}

// Kernels that load 16 bytes at once from where a GPU would not let them, from memory or, as
// matrices, from shared memory.
TEST(CudaKernels, LoadsThatAreNotAlignedAreFound) {
  alignas(16) std::byte bytes[16 * 5] = {};
  std::vector<uint32_t> out(ReadMemory::kThreads);
  const auto read = [&](int offset) {
    const auto* const from = reinterpret_cast<const FourWords*>(bytes + offset);
    Emulated<ReadMemory>::launch({from, 4, out.data()}, {1, 1, 0});
  };
  read(16);
  EXPECT_DEATH(read(4), "");
  Emulated<LoadsMatrices>::launch({0}, {1, 1, 1024});
  EXPECT_DEATH(Emulated<LoadsMatrices>::launch({8}, {1, 1, 1024}), "% 16 == 0");
}

TEST(CudaDevice, TooMuchMemoryIsAnOrdinaryError) {
  const auto device = make_emulated_device();
  const Result<void*> refused = device->allocate(size_t{1} << 60);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_TRUE(device->status().has_value());  // the device goes on
  EXPECT_TRUE(Memory::make(*device, 1000).has_value());
}

TEST(CudaDevice, AWriteBeyondTheEndIsFound) {
  const auto write_beyond = [] {
    const auto device = make_emulated_device();
    const Memory memory = Memory::make(*device, 1000).value();
    memory.as<char>()[1000] = 1;
  };
  EXPECT_DEATH(write_beyond(), "kGuardByte");
}

// As late as can be: what a host does not wait for has not happened.
TEST(CudaDevice, ThingsAreDoneWhenTheyAreWaitedFor) {
  const auto device = make_emulated_device();
  const Memory memory = Memory::make(*device, 2).value();
  const auto* const bytes = memory.as<const unsigned char>();
  device->clear(memory.data(), 1);
  const StepTicket first = device->mark();
  device->clear(memory.as<char>() + 1, 1);
  EXPECT_EQ(bytes[0], 0xff);
  device->wait(first);
  EXPECT_EQ(bytes[0], 0);
  EXPECT_EQ(bytes[1], 0xff);
  device->wait(device->mark());
  EXPECT_EQ(bytes[1], 0);
}

TEST(CudaDevice, TheFirstFailureStays) {
  const auto device = make_emulated_device();
  device->give_up({ErrorCode::kInternal, "first"});
  device->give_up({ErrorCode::kInternal, "second"});
  EXPECT_EQ(device->status().error().message, "first");
}

}  // namespace
}  // namespace penstock::cuda
#endif

namespace penstock {
namespace {
TEST(CudaDevice, AGpuIsTriedWhereThereIsOne) {
  const auto made = make_ops("cuda", {});
  if (!made) GTEST_SKIP() << "not run on a GPU: " << made.error().message;
  EXPECT_NE(std::string((*made)->name()).find("cuda/"), std::string::npos);
}
}  // namespace
}  // namespace penstock
