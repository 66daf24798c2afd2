// Adapters of tests/golden/lora (tools/make_tiny_adapters.py), merged into their bases: the logits
// are PEFT's.
#include "quantize/merge_lora.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "../formats/temp_dir.h"
#include "golden_models.h"
#include "model/runner.h"
#include "quantize/write/output.h"
#include "support/device_ops.h"
#include "support/stacked_adapter.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::Rows;
using testing::Runner;

struct MergedGolden {
  std::vector<int> prompt;
  Rows logits;
};

MergedGolden read_merged_golden(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  int32_t header[3] = {};
  file.read(reinterpret_cast<char*>(header), sizeof header);
  MergedGolden golden;
  golden.prompt.resize(static_cast<size_t>(header[0]));
  file.read(reinterpret_cast<char*>(golden.prompt.data()), header[0] * 4);
  for (int i = 0; i < header[0]; ++i) {
    golden.logits.emplace_back(header[2]);
    file.read(reinterpret_cast<char*>(golden.logits.back().data()), header[2] * 4);
  }
  EXPECT_TRUE(file.good()) << path;
  return golden;
}

Rows logits_of(const fs::path& path, const std::vector<int>& prompt) {
  auto source = open_weights(path);
  if (!source) {
    ADD_FAILURE() << source.error().message;
    return {};
  }
  auto ops = make_ops("cpu", {.n_threads = 1}).value();
  const auto model = Model::load(**source, *ops, {});
  if (!model) {
    ADD_FAILURE() << model.error().message;
    return {};
  }
  Runner runner(**model, *ops);
  return runner.run(0, prompt);
}

void expect_merged(const fs::path& base_path, const fs::path& adapter_path, const fs::path& out,
                   const MergedGolden& golden) {
  SCOPED_TRACE(adapter_path.string());
  const auto base = open_weights(base_path);
  ASSERT_TRUE(base.has_value()) << base.error().message;
  const auto adapter = open_lora(adapter_path);
  ASSERT_TRUE(adapter.has_value()) << adapter.error().message;
  const Status merged = merge_lora(**base, *adapter, out);
  ASSERT_TRUE(merged.has_value()) << merged.error().message;
  EXPECT_LE(testing::max_difference(logits_of(out, golden.prompt), golden.logits), 1e-3f);
  EXPECT_FALSE(merge_lora(**base, *adapter, out).has_value()) << "overwrites";
}

void expect_not_merged(const fs::path& base_path, const fs::path& adapter_path,
                       std::string_view part) {
  const TempDir dir;
  const auto base = open_weights(base_path);
  ASSERT_TRUE(base.has_value()) << base.error().message;
  const auto adapter = open_lora(adapter_path);
  ASSERT_TRUE(adapter.has_value()) << adapter.error().message;
  const Status merged = merge_lora(**base, *adapter, dir / "merged");
  ASSERT_FALSE(merged.has_value());
  EXPECT_NE(merged.error().message.find(part), std::string::npos) << merged.error().message;
  EXPECT_FALSE(fs::exists(dir / "merged"));
}

TEST(MergeLora, LogitsArePefts) {
  int n_directories = 0, n_files = 0;
  for (const auto& entry : fs::directory_iterator(tests_dir() / "golden" / "lora")) {
    const fs::path base = testing::golden(entry.path().stem().string());
    const MergedGolden golden = read_merged_golden(entry.path() / "golden.bin");
    const TempDir dir;
    if (const std::string name = entry.path().filename();
        name.ends_with(".fused") || name.ends_with(".down")) {
      expect_not_merged(base, entry.path(), "is not merged");
      continue;
    }
    expect_merged(base, entry.path(), dir / "merged", golden);
    ++n_directories;
    if (!fs::exists(entry.path() / "adapter.gguf")) continue;
    expect_merged(base / "model.gguf", entry.path() / "adapter.gguf", dir / "merged.gguf", golden);
    ++n_files;
  }
  EXPECT_GE(n_directories, 7);
  EXPECT_GE(n_files, 4);
}

TEST(MergeLora, ExpertsInGguf) {
  const fs::path adapter = tests_dir() / "golden" / "lora" / "qwen3_moe.each";
  const TempDir dir;
  testing::write_stacked(open_lora(adapter).value(), 2, 6, "qwen3moe", dir / "experts.gguf");
  expect_merged(testing::golden("qwen3_moe") / "model.gguf", dir / "experts.gguf",
                dir / "merged.gguf", read_merged_golden(adapter / "golden.bin"));
}

// The directory of a run that was killed is no output.
TEST(MergeLora, TakesOverWhatAnUnfinishedRunLeft) {
  const TempDir dir;
  const fs::path adapter = tests_dir() / "golden" / "lora" / "llama2", out = dir / "merged";
  {
    auto left = UnfinishedDirectory::begin(out).value();
    ASSERT_TRUE(left.write("config.json", "{"));
    std::ofstream(left.place("model.safetensors").value().string() + ".partial") << "half";
  }
  expect_merged(testing::golden("llama2"), adapter, out,
                read_merged_golden(adapter / "golden.bin"));
  EXPECT_FALSE(fs::exists(out / "model.safetensors.partial"));
  EXPECT_FALSE(fs::exists(dir / "merged.unfinished"));
  // A whole one stays.
  const auto base = open_weights(testing::golden("llama2")).value();
  EXPECT_EQ(merge_lora(*base, open_lora(adapter).value(), out).error().code,
            ErrorCode::kInvalidArgument);
}

TEST(MergeLora, RefusesAnotherBase) {
  const fs::path adapters = tests_dir() / "golden" / "lora";
  expect_not_merged(testing::golden("llama3"), adapters / "llama2", "another model");
  expect_not_merged(testing::golden("gpt2"), adapters / "llama2", "another model");
  expect_not_merged(testing::golden("llama2") / "model.gguf", adapters / "llama2", "base's format");
  expect_not_merged(testing::golden("llama2"), adapters / "llama2" / "adapter.gguf",
                    "base's format");
  expect_not_merged(testing::golden("qwen3") / "model.gguf", adapters / "llama2" / "adapter.gguf",
                    "architecture");
  expect_not_merged(testing::golden("bitnet_packed"), adapters / "llama2", "quantization_config");
}

}  // namespace
}  // namespace penstock
