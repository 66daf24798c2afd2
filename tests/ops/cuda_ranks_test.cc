// Sums and gathers of several ranks' devices, through the host and by NCCL's calls: ranks are
// threads with an emulated device each, NCCL a library that the test brings (fake_nccl.cc).
#ifdef PENSTOCK_CUDA_EMULATION
#include "ops/cuda/device_ranks.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <random>
#include <thread>

#include "ops/cuda/cuda_ops.h"
#include "support/rank_numbers.h"

namespace penstock::cuda {
namespace {

using testing::HasSubstr;

std::string fake_nccl() {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libfake_nccl.so")
      .string();
}

int fake_counter(const char* name) {
  void* const library = dlopen(fake_nccl().c_str(), RTLD_NOW);
  return reinterpret_cast<int (*)()>(dlsym(library, name))();
}

enum class Way { kHost, kNccl };

void as_ranks(int n, const std::function<void(Communicator&)>& work) {
  const int segment = make_shm_segment(n).value();
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < n; ++rank) {
      threads.emplace_back([rank, n, segment, &work] {
        CommunicatorConfig config;
        config.rank = rank, config.size = n, config.segment = segment;
        const auto ranks = make_communicator("shm", config).value();
        work(*ranks);
      });
    }
  }
  close(segment);
}

std::unique_ptr<CudaOps> ops_of(Communicator& ranks, Way way) {
  auto device = make_emulated_device();
  std::unique_ptr<DeviceRanks> between;
  if (way == Way::kHost) {
    between = make_host_ranks(*device, ranks);
  } else {
    auto made = make_nccl_ranks(*device, ranks, fake_nccl());
    EXPECT_TRUE(made) << made.error().message;
    between = std::move(*made);
  }
  return std::make_unique<CudaOps>(std::move(device), OpsConfig{.n_threads = 1, .ranks = &ranks},
                                   std::move(between));
}

struct Shape {
  int rows, cols;
};
// Short sums, and long ones by parts, which numbers of ranks do not divide.
constexpr Shape kShapes[] = {{1, 1}, {1, 64}, {3, 71}, {5, 1000}, {257, 1031}};

class CudaRanks : public testing::TestWithParam<std::tuple<Way, int>> {};
INSTANTIATE_TEST_SUITE_P(Ways, CudaRanks,
                         testing::Combine(testing::Values(Way::kHost, Way::kNccl),
                                          testing::Values(1, 2, 3)),
                         [](const auto& info) {
                           return fmt::format(
                               "{}_{}", std::get<0>(info.param) == Way::kHost ? "Host" : "Nccl",
                               std::get<1>(info.param));
                         });

TEST_P(CudaRanks, SumInTheirOrder) {
  const auto [way, n_ranks] = GetParam();
  as_ranks(n_ranks, [way = way](Communicator& ranks) {
    const auto ops = ops_of(ranks, way);
    for (const Shape shape : kShapes) {
      const auto n = static_cast<size_t>(shape.rows) * static_cast<size_t>(shape.cols);
      std::vector<float> expected = numbers_of_rank(0, n);
      for (int r = 1; r < ranks.size(); ++r) {
        const std::vector<float> share = numbers_of_rank(r, n);
        for (size_t i = 0; i < n; ++i) expected[i] += share[i];
      }
      ops->begin_step(nullptr);
      // Also of columns of a wider tensor.
      for (const int beside : {0, 5}) {
        const Tensor x = ops->new_tensor(shape.rows, shape.cols + beside, TensorRole::kActivation)
                             .columns(0, shape.cols);
        ops->write_rows(numbers_of_rank(ranks.rank(), n), x);
        ops->all_reduce(x);
        std::vector<float> sum(n);
        ops->read_rows(x, sum);
        EXPECT_EQ(sum, expected) << shape.rows << " x " << shape.cols;
      }
    }
  });
}

TEST_P(CudaRanks, GatherTheirColumns) {
  const auto [way, n_ranks] = GetParam();
  as_ranks(n_ranks, [way = way](Communicator& ranks) {
    const auto ops = ops_of(ranks, way);
    for (const Shape shape : {Shape{1, 2}, Shape{2, 71}, Shape{7, 1000}}) {
      ops->begin_step(nullptr);
      const auto n = static_cast<size_t>(shape.rows) * static_cast<size_t>(shape.cols);
      const std::vector<float> whole = numbers_of_rank(9, n);
      std::vector<float> own(n, -1.0f);
      const Shard::Range columns = ranks.shard().range(shape.cols);
      for (int row = 0; row < shape.rows; ++row)
        for (int c = columns.first; c < columns.first + columns.count; ++c)
          own[static_cast<size_t>(row * shape.cols + c)] =
              whole[static_cast<size_t>(row * shape.cols + c)];
      const Tensor x = ops->new_tensor(shape.rows, shape.cols, TensorRole::kLogits);
      ops->write_rows(own, x);
      ops->all_gather(x);
      ops->read_rows(x, own);
      EXPECT_EQ(own, whole) << shape.rows << " x " << shape.cols;
    }
  });
}

TEST(Nccl, LeavesNothingAndAbortsWhenTheRunFails) {
  EXPECT_EQ(fake_counter("fake_nccl_n_comms"), 0);
  const int before = fake_counter("fake_nccl_n_aborted");
  as_ranks(2, [before](Communicator& ranks) {
    const auto ops = ops_of(ranks, Way::kNccl);
    ops->begin_step(nullptr);
    const Tensor x = ops->new_tensor(1, 64, TensorRole::kActivation);
    ops->write_rows(numbers_of_rank(0, 64), x);
    if (ranks.rank() == 1) {
      ranks.fail("the other rank is gone");
    } else {
      ops->all_reduce(x);  // nobody comes
    }
    EXPECT_FALSE(ranks.status());
    while (fake_counter("fake_nccl_n_aborted") < before + 2) std::this_thread::yield();
    ops->all_reduce(x);  // returns at once
  });
  EXPECT_EQ(fake_counter("fake_nccl_n_aborted"), before + 2);
}

TEST(Nccl, WhatIsMissingIsNamed) {
  const auto message = [](const std::string& library) {
    const auto loaded = load_nccl(library);
    return loaded ? std::string("loaded") : loaded.error().message;
  };
  EXPECT_THAT(message("libnccl_of_nowhere.so.2"),
              HasSubstr("ranks on several GPUs need NCCL: libnccl_of_nowhere.so.2"));
  EXPECT_THAT(message("libm.so.6"),
              HasSubstr("libm.so.6 has no ncclGetVersion, expected 2.7 or newer"));
  as_ranks(2, [](Communicator& ranks) {
    const auto device = make_emulated_device();
    EXPECT_FALSE(make_nccl_ranks(*device, ranks, "libnccl_of_nowhere.so.2"));
  });
}

// Ranks with a GPU each: here there is none, and it is said which.
TEST(Nccl, EveryRankWantsAGpuOfItsOwn) {
  setenv("CUDA_VISIBLE_DEVICES", "4,7", 1);
  const Status too_many = choose_device(2);
  ASSERT_FALSE(too_many);
  EXPECT_THAT(too_many.error().message,
              HasSubstr("rank 2 wants a GPU of its own, CUDA_VISIBLE_DEVICES=4,7 has 2"));
  unsetenv("CUDA_VISIBLE_DEVICES");
}

}  // namespace
}  // namespace penstock::cuda
#endif
