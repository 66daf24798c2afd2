// Adapters of tests/golden/lora (tools/make_tiny_adapters.py) beside their bases: the logits are PEFT's.
#include <gtest/gtest.h>

#include <fstream>

#include "formats/lora.h"
#include "formats/weight_source.h"
#include "model/runner.h"
#include "quantize/golden_models.h"
#include "support/device_ops.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::Rows;
using testing::Runner;

struct AdapterGolden {
  std::vector<int> prompt;
  Rows logits;
};

AdapterGolden read_adapter_golden(const std::string& name) {
  std::ifstream file(tests_dir() / "golden" / "lora" / name / "golden.bin", std::ios::binary);
  int32_t header[3] = {};
  file.read(reinterpret_cast<char*>(header), sizeof header);
  AdapterGolden golden;
  golden.prompt.resize(static_cast<size_t>(header[0]));
  file.read(reinterpret_cast<char*>(golden.prompt.data()), header[0] * 4);
  for (int i = 0; i < header[0]; ++i) {
    golden.logits.emplace_back(header[2]);
    file.read(reinterpret_cast<char*>(golden.logits.back().data()), header[2] * 4);
  }
  EXPECT_TRUE(file.good()) << name;
  return golden;
}

std::vector<std::string> adapted_models() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(tests_dir() / "golden" / "lora"))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

LoraAdapter adapter_of(const fs::path& path) {
  auto adapter = open_lora(path);
  EXPECT_TRUE(adapter.has_value()) << adapter.error().message;
  return std::move(*adapter);
}
LoraAdapter peft_adapter(const std::string& name) {
  return adapter_of(tests_dir() / "golden" / "lora" / name);
}

struct AdaptedBase {
  std::unique_ptr<WeightSource> source;
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Model> model;
};

AdaptedBase load_base(const fs::path& path, const OpsConfig& config = {.n_threads = 2}, bool device = false,
                      const char* backend = "cpu") {
  AdaptedBase loaded;
  loaded.source = open_weights(path).value();
  loaded.ops = make_ops(backend, config).value();
  if (device) loaded.ops = std::make_unique<DeviceOps>(std::move(loaded.ops));
  loaded.model = Model::load(*loaded.source, *loaded.ops).value();
  return loaded;
}

Rows run_with(AdaptedBase& base, int seq, const std::vector<int>& prompt, int slot) {
  return Runner(*base.model, *base.ops).step({{seq, prompt, slot}});
}

void expect_pefts(const fs::path& base_path, const LoraAdapter& adapter, const AdapterGolden& golden,
                  const OpsConfig& config = {.n_threads = 2}, bool device = false,
                  const char* backend = "cpu") {
  AdaptedBase base = load_base(base_path, config, device, backend);
  const Rows plain = run_with(base, 0, golden.prompt, -1);
  ASSERT_GT(testing::max_difference(plain, golden.logits), 1e-2f) << "the adapter changes nothing";
  const Status put = base.model->put_adapter(2, adapter, *base.ops);
  ASSERT_TRUE(put.has_value()) << put.error().message;
  EXPECT_LE(testing::max_difference(run_with(base, 0, golden.prompt, 2), golden.logits), 1e-3f);
  EXPECT_EQ(run_with(base, 0, golden.prompt, -1), plain);
  base.model->drop_adapter(2);
  EXPECT_EQ(run_with(base, 0, golden.prompt, 2), plain);
}

TEST(Adapters, LogitsArePefts) {
  for (const std::string& name : adapted_models()) {
    SCOPED_TRACE(name);
    expect_pefts(testing::golden(name), peft_adapter(name), read_adapter_golden(name));
  }
}

TEST(Adapters, InGgufBesideGguf) {
  int n = 0;
  for (const std::string& name : adapted_models()) {
    const fs::path adapter = tests_dir() / "golden" / "lora" / name / "adapter.gguf";
    if (!fs::exists(adapter)) continue;
    SCOPED_TRACE(name);
    expect_pefts(testing::golden(name) / "model.gguf", adapter_of(adapter), read_adapter_golden(name));
    ++n;
  }
  EXPECT_GE(n, 5);
}

TEST(Adapters, OfTheOtherFormat) {
  for (const std::string name : {"llama2", "gemma2", "gemma3", "qwen3_moe"}) {
    SCOPED_TRACE(name);
    const fs::path base = testing::golden(name), adapter = tests_dir() / "golden" / "lora" / name;
    expect_pefts(base / "model.gguf", adapter_of(adapter), read_adapter_golden(name));
    expect_pefts(base, adapter_of(adapter / "adapter.gguf"), read_adapter_golden(name));
  }
  for (const std::string name : {"llama_mqa", "qwen2", "qwen3"}) {
    SCOPED_TRACE(name);
    expect_pefts(testing::golden(name) / "model.gguf", peft_adapter(name), read_adapter_golden(name));
  }
}

TEST(Adapters, OnADeviceAndWithMoreRowsThanTokens) {
  expect_pefts(testing::golden("qwen2"), peft_adapter("qwen2"), read_adapter_golden("qwen2"),
               {.n_threads = 1, .row_multiple = 8}, true);
}

TEST(Adapters, OnTheEmulatedGpuAndWithMoreRowsThanTokens) {
  const OpsConfig config = {.n_threads = 1, .row_multiple = 4};
  if (const auto made = make_ops("cuda_emulated", config); !made) GTEST_SKIP() << made.error().message;
  for (const std::string& name : adapted_models()) {
    SCOPED_TRACE(name);
    expect_pefts(testing::golden(name), peft_adapter(name), read_adapter_golden(name), config, false,
                 "cuda_emulated");
  }
}

// Prompts and single tokens of two adapters and of none, in turn, in one step.
TEST(Adapters, MixedAreAsEachAlone) {
  for (const bool invariant : {false, true}) {
    AdaptedBase base = load_base(testing::golden("llama2"), {.n_threads = 2, .batch_invariant = invariant});
    const LoraAdapter one = peft_adapter("llama2"),
                      other = adapter_of(tests_dir() / "golden/lora/llama2/adapter.gguf");
    ASSERT_TRUE(base.model->put_adapter(0, one, *base.ops).has_value());
    LoraAdapter stronger = peft_adapter("llama2");
    for (LoraModule& module : stronger.modules) module.scale *= 1.5f;
    ASSERT_TRUE(base.model->put_adapter(3, stronger, *base.ops).has_value());
    const std::vector<int> slots = {3, -1, 0, 3, 0, -1};
    Runner together(*base.model, *base.ops);
    std::vector<Rows> alone;
    std::vector<Runner::Part> prompts, tokens;
    for (int s = 0; s < static_cast<int>(slots.size()); ++s) {
      std::vector<int> prompt;
      for (int t = 0; t < 3 + 5 * s; ++t) prompt.push_back(2 + (7 * t + 11 * s) % 60);
      Runner runner(*base.model, *base.ops);
      Rows rows = runner.step({{s, prompt, slots[static_cast<size_t>(s)]}});
      Rows next = runner.step({{s, {5}, slots[static_cast<size_t>(s)]}});
      rows.push_back(next[0]);
      alone.push_back(std::move(rows));
      prompts.push_back({s, prompt, slots[static_cast<size_t>(s)]});
      tokens.push_back({s, {5}, slots[static_cast<size_t>(s)]});
    }
    const Rows first = together.step(prompts), second = together.step(tokens);
    size_t at = 0;
    for (size_t s = 0; s < slots.size(); ++s) {
      Rows rows(first.begin() + static_cast<ptrdiff_t>(at),
                first.begin() + static_cast<ptrdiff_t>(at + prompts[s].tokens.size()));
      at += prompts[s].tokens.size();
      rows.push_back(second[s]);
      EXPECT_LE(testing::max_difference(rows, alone[s]), invariant ? 0.0f : 1e-4f) << s;
    }
  }
}

void expect_refused(const fs::path& base_path, const LoraAdapter& adapter, std::string_view part) {
  AdaptedBase base = load_base(base_path);
  const auto checked = base.model->check_adapter(adapter);
  ASSERT_FALSE(checked.has_value());
  EXPECT_NE(checked.error().message.find(part), std::string::npos) << checked.error().message;
  EXPECT_FALSE(base.model->put_adapter(0, adapter, *base.ops).has_value());
}

TEST(Adapters, OfAnotherModelAreRefused) {
  expect_refused(testing::golden("llama3"), peft_adapter("llama2"), "another model");
  expect_refused(testing::golden("gpt2"), peft_adapter("llama2"), "another model");
  expect_refused(testing::golden("qwen3") / "model.gguf", peft_adapter("qwen2"), "another model");
  expect_refused(testing::golden("llama2"), peft_adapter("phi3"), "another model");
  expect_refused(testing::golden("deepseek_v2"), peft_adapter("llama2"), "another model");
  expect_refused(testing::golden("falcon") / "model.gguf", peft_adapter("falcon"), "another model");
  expect_refused(testing::golden("bitnet"), peft_adapter("llama2"), "rounds activations");
}

TEST(Adapters, OfExpertsAreRefusedByName) {
  for (const char* part : {"mlp.experts.0.down_proj.weight", "mlp.experts.gate_up_proj.weight"}) {
    LoraAdapter adapter = peft_adapter("qwen3_moe");
    adapter.modules.back().weight = std::string("model.layers.0.") + part;
    expect_refused(testing::golden("qwen3_moe"), adapter, part);
    expect_refused(testing::golden("qwen3_moe"), adapter, "a part that adapters cannot add to");
  }
}

}  // namespace
}  // namespace penstock
