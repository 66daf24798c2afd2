// Adapters of tests/golden/lora (tools/make_tiny_adapters.py) beside their bases: the logits are
// PEFT's.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "../formats/temp_dir.h"
#include "formats/lora.h"
#include "formats/weight_source.h"
#include "model/runner.h"
#include "quantize/golden_models.h"
#include "support/device_ops.h"
#include "support/stacked_adapter.h"

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

// Of "qwen3_moe.fused" the base is "qwen3_moe".
fs::path base_of(const std::string& name) {
  return testing::golden(fs::path(name).stem().string());
}

struct AdaptedBase {
  std::unique_ptr<WeightSource> source;
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Model> model;
};

AdaptedBase load_base(const fs::path& path, const OpsConfig& config = {.n_threads = 2},
                      bool device = false, const char* backend = "cpu") {
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

void expect_pefts(const fs::path& base_path, const LoraAdapter& adapter,
                  const AdapterGolden& golden, const OpsConfig& config = {.n_threads = 2},
                  bool device = false, const char* backend = "cpu") {
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
    expect_pefts(base_of(name), peft_adapter(name), read_adapter_golden(name));
  }
}

// PEFT's adapters of experts' matrices, and what PEFT makes of them when it puts them together.
TEST(Adapters, OfEachExpertAreThoseOfAllTogether) {
  for (const std::string name : {"qwen3_moe.each", "mixtral.each"}) {
    SCOPED_TRACE(name);
    const fs::path together = tests_dir() / "golden" / "lora" / name / "together";
    expect_pefts(base_of(name), adapter_of(together), read_adapter_golden(name));
    expect_pefts(base_of(name) / "model.gguf", adapter_of(together), read_adapter_golden(name));
  }
}

TEST(Adapters, OfExpertsInGguf) {
  const TempDir dir;
  const fs::path path = dir / "experts.gguf", base = testing::golden("qwen3_moe");
  testing::write_stacked(peft_adapter("qwen3_moe.each"), 2, 6, "qwen3moe", path);
  const AdapterGolden golden = read_adapter_golden("qwen3_moe.each");
  expect_pefts(base / "model.gguf", adapter_of(path), golden);
  expect_pefts(base, adapter_of(path), golden);
}

TEST(Adapters, InGgufBesideGguf) {
  int n = 0;
  for (const std::string& name : adapted_models()) {
    const fs::path adapter = tests_dir() / "golden" / "lora" / name / "adapter.gguf";
    if (!fs::exists(adapter)) continue;
    SCOPED_TRACE(name);
    expect_pefts(testing::golden(name) / "model.gguf", adapter_of(adapter),
                 read_adapter_golden(name));
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
  for (const std::string name :
       {"llama_mqa", "qwen2", "qwen3", "qwen3_moe.fused", "qwen3_moe.each", "mixtral.each",
        "olmoe.fused", "granitemoe.fused", "gpt_oss.fused"}) {
    SCOPED_TRACE(name);
    expect_pefts(base_of(name) / "model.gguf", peft_adapter(name), read_adapter_golden(name));
  }
}

// Matrices of mixers are found by their names in both formats. The projection of queries, keys,
// values and gates is left out: GGUF files have two tensors of it.
TEST(Adapters, OfAMixerInTheOtherFormat) {
  LoraAdapter adapter = peft_adapter("qwen3_next");
  std::erase_if(adapter.modules, [](const LoraModule& module) {
    return module.weight.find("qkvz") != std::string::npos;
  });
  const std::vector<int> prompt = read_adapter_golden("qwen3_next").prompt;
  const auto logits = [&](const fs::path& path) {
    AdaptedBase base = load_base(path);
    const Rows plain = run_with(base, 0, prompt, -1);
    const Status put = base.model->put_adapter(2, adapter, *base.ops);
    EXPECT_TRUE(put.has_value()) << put.error().message;
    Rows rows = run_with(base, 0, prompt, 2);
    EXPECT_GT(testing::max_difference(plain, rows), 1e-2f) << "the adapter changes nothing";
    return rows;
  };
  const fs::path base = testing::golden("qwen3_next");
  EXPECT_LE(testing::max_difference(logits(base), logits(base / "model.gguf")), 1e-3f);
}

TEST(Adapters, OnADeviceAndWithMoreRowsThanTokens) {
  for (const std::string name : {"qwen2", "qwen3_moe.fused"})
    expect_pefts(base_of(name), peft_adapter(name), read_adapter_golden(name),
                 {.n_threads = 1, .row_multiple = 8}, true);
}

TEST(Adapters, OnTheEmulatedGpuAndWithMoreRowsThanTokens) {
  const OpsConfig config = {.n_threads = 1, .row_multiple = 4};
  if (const auto made = make_ops("cuda_emulated", config); !made)
    GTEST_SKIP() << made.error().message;
  for (const std::string& name : adapted_models()) {
    SCOPED_TRACE(name);
    expect_pefts(base_of(name), peft_adapter(name), read_adapter_golden(name), config, false,
                 "cuda_emulated");
  }
}

// Prompts and single tokens of two adapters and of none, in turn, in one step.
void expect_each_alone(const fs::path& base_path, const LoraAdapter& one,
                       const LoraAdapter& other) {
  for (const bool invariant : {false, true}) {
    AdaptedBase base = load_base(base_path, {.n_threads = 2, .batch_invariant = invariant});
    ASSERT_TRUE(base.model->put_adapter(0, one, *base.ops).has_value());
    ASSERT_TRUE(base.model->put_adapter(3, other, *base.ops).has_value());
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

TEST(Adapters, MixedAreAsEachAlone) {
  LoraAdapter stronger = peft_adapter("llama2");
  for (LoraModule& module : stronger.modules) module.scale *= 1.5f;
  expect_each_alone(testing::golden("llama2"), peft_adapter("llama2"), stronger);
  expect_each_alone(testing::golden("qwen3_moe"), peft_adapter("qwen3_moe.fused"),
                    peft_adapter("qwen3_moe.each"));
  expect_each_alone(testing::golden("qwen3_moe"), peft_adapter("qwen3_moe"),
                    peft_adapter("qwen3_moe.each"));
  LoraAdapter weaker = peft_adapter("llama4.fused");
  for (LoraModule& module : weaker.modules) module.scale *= 0.5f;
  expect_each_alone(testing::golden("llama4"), peft_adapter("llama4.fused"), weaker);
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
  expect_refused(testing::golden("falcon_h1") / "model.gguf", peft_adapter("llama2"), "factors");
  expect_refused(testing::golden("bitnet"), peft_adapter("llama2"), "rounds activations");
}

TEST(Adapters, OfOtherExpertsAreRefusedByName) {
  for (const char* part :
       {"mlp.experts.6.down_proj.weight", "mlp.experts.down_proj", "mlp.experts.0.w4.weight"}) {
    LoraAdapter adapter = peft_adapter("qwen3_moe.each");
    LoraModule& down = adapter.modules.front();
    ASSERT_EQ(down.weight, "model.layers.0.mlp.experts.0.down_proj.weight");
    down.weight = std::string("model.layers.0.") + part;
    expect_refused(testing::golden("qwen3_moe"), adapter, part);
  }
  expect_refused(testing::golden("mixtral"), peft_adapter("qwen3_moe.each"), "another model");
  expect_refused(testing::golden("llama2"), peft_adapter("mixtral.each"),
                 "a part that adapters cannot add to");
  LoraAdapter fewer = peft_adapter("qwen3_moe.fused");
  for (LoraModule& module : fewer.modules) {
    if (module.n_experts > 0) module.n_experts = 3;
  }
  expect_refused(testing::golden("qwen3_moe"), fewer, "expected pairs for 6 experts, got 3");
}

// Layers of other parts have names that end like those of the text.
TEST(Adapters, OfOtherPartsAreRefused) {
  const auto named = [](const std::string& prefix) {
    LoraAdapter adapter = peft_adapter("llama2");
    for (LoraModule& module : adapter.modules) {
      EXPECT_TRUE(module.weight.starts_with("model.layers."));
      module.weight = prefix + module.weight.substr(std::string("model.").size());
    }
    return adapter;
  };
  const AdaptedBase base = load_base(testing::golden("llama2"));
  for (const char* prefix : {"", "model.", "model.language_model.", "language_model.model."})
    EXPECT_TRUE(base.model->check_adapter(named(prefix)).has_value()) << prefix;
  for (const char* prefix :
       {"mtp.", "model.vision_tower.encoder.", "anything.at.all.", "model.model."})
    expect_refused(testing::golden("llama2"), named(prefix), "is not of the layers");
}

// Gate and up of the tiny model are a square; what is not shows which way the adapter lies.
TEST(Adapters, OfSquareExpertsNeedAVersion) {
  const auto saved_by = [](const char* version, bool only_squares) {
    const fs::path from = tests_dir() / "golden" / "lora" / "qwen3_moe.fused";
    std::ifstream file(from / "adapter_config.json");
    nlohmann::json config = nlohmann::json::parse(file);
    config["peft_version"] = version;
    TempDir dir;
    fs::copy(from / "adapter_model.safetensors", dir / "adapter_model.safetensors");
    std::ofstream(dir / "adapter_config.json") << config;
    LoraAdapter adapter = adapter_of(dir.path());
    if (only_squares)
      std::erase_if(adapter.modules, [](const LoraModule& module) {
        return module.weight.ends_with("experts.down_proj");
      });
    return adapter;
  };
  const AdaptedBase base = load_base(testing::golden("qwen3_moe"));
  EXPECT_TRUE(base.model->check_adapter(saved_by("0.18.1", false)).has_value());
  for (const char* version : {"0.19.0", "0.21.0.dev0", "1.0"})
    EXPECT_TRUE(base.model->check_adapter(saved_by(version, true)).has_value()) << version;
  for (const char* version : {"0.18.1", "", "new"})
    expect_refused(testing::golden("qwen3_moe"), saved_by(version, true), "peft_version");
}

}  // namespace
}  // namespace penstock
