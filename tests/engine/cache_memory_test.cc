// What the KV cache may take of a device's memory, with the numbers where there is too little.
#include "engine/open/cache_memory.h"

#include <gtest/gtest.h>

#include "engine/open/open.h"
#include "model/sources/synthetic.h"
#include "ops/cuda/cuda_ops.h"

namespace penstock {
namespace {

TEST(CacheMemory, ADeviceIsUsedToNineTenthsUnlessSomebodySaysOtherwise) {
  const auto share_of = [](const EngineConfig& config) {
    return resolve_preset(config).value().memory_utilization;
  };
  EXPECT_EQ(share_of({.backend = "cuda"}), 0.9);
  EXPECT_EQ(share_of({.backend = "cuda", .preset = "chat"}), 0.7);
  EXPECT_EQ(share_of({.backend = "cuda", .memory_utilization = 0.5}), 0.5);
  EXPECT_EQ(share_of({}), 0.85);
}

#ifdef PENSTOCK_CUDA_EMULATION
class MemoryOfDevice : public testing::Test {
 protected:
  static constexpr int64_t kMiB = int64_t{1} << 20;

  void SetUp() override {
    config_.backend = "cuda_emulated";
    config_.max_num_seqs = 3, config_.max_num_batched_tokens = 20;
    config_ = resolve_preset(config_).value();
    config_.max_model_len = 64;
  }
  // The model on a device of so many bytes, then what the cache may take.
  Result<int64_t> budget_on(int64_t bytes) {
    model_ = nullptr;
    ops_ = std::make_unique<cuda::CudaOps>(cuda::make_emulated_device(bytes),
                                           OpsConfig{.n_threads = 1});
    const auto source = make_synthetic_source("tiny", "f32").value();
    ASSIGN_OR_RETURN(model_, Model::load(*source, *ops_));
    free_before_ = ops_->memory().free;
    return memory_for_cache(config_, {}, *ops_, *model_, {1, model_->weight_bytes()});
  }
  EngineConfig config_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
  int64_t free_before_ = 0;
};

TEST_F(MemoryOfDevice, TheCacheHasWhatWeightsAndTheLargestStepLeave) {
  constexpr int64_t kTotal = 256 * kMiB;
  const Result<int64_t> budget = budget_on(kTotal);
  ASSERT_TRUE(budget) << budget.error().message;
  const int64_t free = ops_->memory().free;
  EXPECT_EQ(*budget, static_cast<int64_t>(0.9 * kTotal) - (kTotal - free));
  // The largest step was computed, and its memory stays; that of its cache does not.
  EXPECT_LT(free, free_before_);
  ASSERT_TRUE(compute_largest_step(config_, *ops_, *model_));
  EXPECT_EQ(ops_->memory().free, free);
  config_.kv_cache_memory = 12345;
  EXPECT_EQ(budget_on(kTotal).value(), 12345);
}

TEST_F(MemoryOfDevice, TooLittleIsAnErrorWithTheNumbers) {
  ASSERT_TRUE(budget_on(256 * kMiB));
  const int64_t weights = 256 * kMiB - free_before_, step = free_before_ - ops_->memory().free;
  const auto refused = [&](int64_t bytes, const char* what) {
    const Result<int64_t> budget = budget_on(bytes);
    ASSERT_FALSE(budget);
    EXPECT_EQ(budget.error().code, ErrorCode::kResourceExhausted);
    EXPECT_NE(budget.error().message.find(what), std::string::npos) << budget.error().message;
    EXPECT_NE(budget.error().message.find(fmt::format(" of {}", bytes)), std::string::npos)
        << budget.error().message;
  };
  refused(weights / 2, "bytes of memory wanted");
  const int64_t enough = weights + step + 8 * kMiB;
  config_.memory_utilization = 0.01;
  const Result<int64_t> budget = budget_on(enough);
  ASSERT_FALSE(budget);
  EXPECT_NE(budget.error().message.find("memory_utilization 0.01"), std::string::npos)
      << budget.error().message;
}
#endif

}  // namespace
}  // namespace penstock
