// Where an engine puts a mixture's experts: what does not fit the device is the host's, unless the
// configuration says otherwise.
#include "engine/open/load_placed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "emulation/cuda/trouble.h"
#include "engine/collector.h"
#include "model/arch/read_config.h"
#include "model/load/expert_places.h"
#include "model/sources/synthetic.h"
#include "ops/cuda/cuda_ops.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

class LoadPlaced : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto made = make_ops("cuda_emulated", {.n_threads = 1}); !made)
      GTEST_SKIP() << made.error().message;
  }
  void TearDown() override { cuda::fail_emulated_call(0); }

  static EngineConfig mixtral() {
    EngineConfig config;
    config.backend = "cuda_emulated";
    config.model = (tests_dir() / "golden" / "models" / "mixtral").string();
    config.threads = 1, config.max_num_seqs = 2, config.max_model_len = 48;
    config.kv_cache_memory = int64_t{1} << 20;
    config.batch_invariant = true;
    return config;
  }
  static std::vector<TokenId> tokens_of(Engine& engine) {
    Request request = request_of(prompt_of(9), 12);
    request.sampling.ignore_eos = true;
    const auto sink = std::make_shared<Collector>();
    EXPECT_TRUE(engine.submit(request, sink));
    while (engine.step()) {
    }
    return sink->result.sequences.at(0).tokens;
  }
};

TEST_F(LoadPlaced, ByTheConfiguration) {
  EngineConfig config = mixtral();
  const auto on_device = Engine::open(config).value();
  EXPECT_EQ(on_device->info().cpu_experts, "");
  config.memory_utilization = 1e-6;  // nothing fits
  const auto unasked = Engine::open(config).value();
  EXPECT_EQ(unasked->info().cpu_experts, "0-1 of 2");
  EXPECT_EQ(tokens_of(*unasked), tokens_of(*on_device));
  config.n_cpu_moe = 0;
  EXPECT_EQ(Engine::open(config).value()->info().cpu_experts, "");
  config.n_cpu_moe = 1;
  EXPECT_EQ(Engine::open(config).value()->info().cpu_experts, "0 of 2");
  config.override_tensor = "blk.1.*exps=CPU,exps=CUDA0";
  EXPECT_EQ(Engine::open(config).value()->info().cpu_experts, "1 of 2");
  config.override_tensor = "attn=CPU";
  const auto refused = Engine::open(config);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("override_tensor: attn=CPU: finds blk.0.attn"));
}

// The CPU has all of them; what says otherwise is refused.
TEST_F(LoadPlaced, WhereThereIsNoDevice) {
  EngineConfig config = mixtral();
  config.backend = "cpu";
  config.cpu_moe = true;
  EXPECT_EQ(Engine::open(config).value()->info().cpu_experts, "");
  config.override_tensor = "blk.1.*exps=CUDA0";
  const auto refused = Engine::open(config);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("CUDA0: expected backend cuda, got cpu"));
}

TEST_F(LoadPlaced, MappedExpertsAreTheCpus) {
  EngineConfig config = mixtral();
  const std::string folder = ::testing::TempDir() + "penstock_load_placed";
  config.experts_offload = true, config.packed_cache = folder;
  const auto mapped = Engine::open(config).value();
  EXPECT_EQ(mapped->info().cpu_experts, "0-1 of 2");
  EXPECT_GT(mapped->info().offloaded_bytes, 0);
  config.n_cpu_moe = 1;
  const auto refused = Engine::open(config);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("experts_offload: all experts are mapped"));
  std::filesystem::remove_all(folder);
}

// As few layers as are needed, and more if memory is refused all the same.
TEST_F(LoadPlaced, AsManyLayersAsDoNotFit) {
  ModelConfig shape = config_from_shape("qwen3-30b-a3b").value();
  shape.n_layers = 6, shape.layers.resize(6), shape.vocab_size = 512, shape.max_seq_len = 128;
  shape.model_dim = shape.experts.ffn_dim = 256, shape.experts.count = 8;
  shape.experts.routing.n_active = 2;
  shape.n_heads = 4, shape.n_kv_heads = 2, shape.head_dim = 64;
  for (RopeConfig& rope : shape.ropes) rope.rotary_dim = 64;
  const auto source = make_synthetic_source(shape, "f16").value();
  EngineConfig config;
  config.memory_utilization = 0.9;
  config.max_num_batched_tokens = 64, config.max_num_seqs = 4, config.max_model_len = 48;
  config.kv_cache_dtype = "f32";
  const DeviceBytes bytes = device_bytes(*source, shape);
  const auto wanted =
      static_cast<double>(bytes.all() - bytes.experts[0] * 5 / 2 + step_bytes(shape, 64, 4));
  for (const bool refuses : {false, true}) {
    cuda::CudaOps ops(cuda::make_emulated_device(static_cast<int64_t>(wanted / 0.9)),
                      {.n_threads = 1});
    if (refuses) cuda::fail_emulated_call(30, cuda::EmulatedCalls::kMemory);
    const auto model = load_placed(*source, ops, config, {});
    cuda::fail_emulated_call(0);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ((*model)->host_experts(), refuses ? "0-3 of 6" : "0-2 of 6");
  }
}

}  // namespace
}  // namespace penstock
