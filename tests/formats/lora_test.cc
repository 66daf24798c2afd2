// Adapters of both formats open with the right modules and scales; impossible ones and unknown
// variants are refused.
#include "formats/lora.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "formats/gguf_writer.h"
#include "formats/safetensors_writer.h"
#include "temp_dir.h"

namespace penstock {
namespace {

using nlohmann::json;

constexpr const char* kQuery = "base_model.model.model.layers.0.self_attn.q_proj";
constexpr const char* kDown = "base_model.model.model.layers.11.mlp.down_proj";

using LoraShapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;

template <class Writer>
void write_lora(Writer& writer, const std::filesystem::path& path, const LoraShapes& tensors) {
  for (const auto& [name, shape] : tensors) writer.add_tensor(name, QuantType::kF32, shape);
  auto file = writer.create(path);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  for (const auto& [name, shape] : tensors) {
    int64_t n = 1;
    for (const int64_t dim : shape) n *= dim;
    std::vector<float> values(static_cast<size_t>(n));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) + 1;
    ASSERT_TRUE(file->write(name, std::as_bytes(std::span(values))).has_value());
  }
  ASSERT_TRUE(file->finish().has_value());
}

LoraShapes peft_pair(const std::string& module, int64_t rank, int64_t in, int64_t out) {
  return {{module + ".lora_A.weight", {rank, in}}, {module + ".lora_B.weight", {out, rank}}};
}

LoraShapes two_modules() {
  LoraShapes tensors = peft_pair(kQuery, 2, 6, 4);
  for (auto& tensor : peft_pair(kDown, 3, 5, 6)) tensors.push_back(tensor);
  return tensors;
}

json peft_config() {
  return {{"peft_type", "LORA"},
          {"r", 2},
          {"lora_alpha", 16},
          {"rank_pattern", {{"down_proj", 3}}},
          {"bias", "none"},
          {"use_dora", false},
          {"modules_to_save", nullptr}};
}

Result<LoraAdapter> open_written_peft(const TempDir& dir, const json& config,
                                      const LoraShapes& tensors) {
  write_bytes(dir / "adapter_config.json", config.dump());
  SafetensorsWriter writer;
  write_lora(writer, dir / "adapter_model.safetensors", tensors);
  return open_lora(dir.path());
}

void expect_refused(const Result<LoraAdapter>& adapter, std::string_view part) {
  ASSERT_FALSE(adapter.has_value()) << part;
  EXPECT_NE(adapter.error().message.find(part), std::string::npos) << adapter.error().message;
}

TEST(Lora, PeftPatternsDecideRankAndScale) {
  const TempDir dir;
  json config = peft_config();
  auto adapter = open_written_peft(dir, config, two_modules());
  ASSERT_TRUE(adapter.has_value()) << adapter.error().message;
  ASSERT_EQ(adapter->modules.size(), 2u);
  EXPECT_EQ(adapter->modules[0].weight, "model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(adapter->modules[0].in(), 6);
  EXPECT_EQ(adapter->modules[0].out(), 4);
  EXPECT_FLOAT_EQ(adapter->modules[0].scale, 8);
  EXPECT_FLOAT_EQ(adapter->modules[1].scale, 16.0f / 3);
  config["use_rslora"] = true;
  config["alpha_pattern"] = {{"^model\\.layers.0.self_attn.q_proj", 3},
                             {"layers.1.mlp.down_proj", 5},
                             {"1.mlp.down_proj", 7}};
  adapter = open_written_peft(dir, config, two_modules());
  ASSERT_TRUE(adapter.has_value()) << adapter.error().message;
  EXPECT_FLOAT_EQ(adapter->modules[0].scale, 3 / std::sqrt(2.0f));
  EXPECT_FLOAT_EQ(adapter->modules[1].scale, 16 / std::sqrt(3.0f));  // of layer 11, not 1
}

constexpr const char* kExpertsName = "base_model.model.model.layers.0.mlp.experts";

// Three experts of rank 2; of two parameters of a module the first is the inner one.
LoraShapes expert_pairs() {
  LoraShapes tensors = peft_pair(std::string(kExpertsName) + ".base_layer", 6, 4, 10);
  for (auto& tensor : peft_pair(kExpertsName, 6, 5, 4)) tensors.push_back(tensor);
  return tensors;
}

json experts_config(const json& parameters) {
  json config = peft_config();
  config["target_parameters"] = parameters;
  config["rank_pattern"] = json::object();
  return config;
}

TEST(Lora, PeftParametersAreOfAllExperts) {
  const TempDir dir;
  json config = experts_config({"mlp.experts.gate_up_proj", "down_proj", "gate.weight"});
  LoraShapes tensors = expert_pairs();
  for (auto& tensor : peft_pair("base_model.model.model.layers.0.mlp.gate", 2, 4, 3))
    tensors.push_back(tensor);
  auto adapter = open_written_peft(dir, config, tensors);
  ASSERT_TRUE(adapter.has_value()) << adapter.error().message;
  ASSERT_EQ(adapter->modules.size(), 3u);
  const LoraModule &down = adapter->modules[0], &gate_up = adapter->modules[1],
                   &gate = adapter->modules[2];
  EXPECT_EQ(down.weight, "model.layers.0.mlp.experts.down_proj");
  EXPECT_EQ(gate_up.weight, "model.layers.0.mlp.experts.gate_up_proj");
  EXPECT_EQ(gate.weight, "model.layers.0.mlp.gate.weight");
  EXPECT_EQ(gate_up.n_experts, 3);
  EXPECT_EQ(gate.n_experts, 0);
  EXPECT_EQ(std::vector({gate_up.rank(), gate_up.in(), gate_up.out()}),
            std::vector<int64_t>({2, 4, 10}));
  EXPECT_FLOAT_EQ(down.scale, 8);
  // Rows and columns count from 1, as write_lora() writes them.
  const std::vector<LoraPair> pairs = lora_pairs(down);
  ASSERT_EQ(pairs.size(), 3u);
  EXPECT_EQ(pairs[1].a, std::vector<float>({11, 12, 13, 14, 15, 16, 17, 18, 19, 20}));
  EXPECT_EQ(pairs[1].b, std::vector<float>({2, 5, 8, 11, 14, 17, 20, 23}));
  const std::vector<LoraPair> turned = lora_pairs(down, true);
  EXPECT_EQ(turned[1].a, std::vector<float>({2, 8, 14, 20, 5, 11, 17, 23}));
  EXPECT_EQ(turned[1].b, std::vector<float>({11, 16, 12, 17, 13, 18, 14, 19, 15, 20}));
  // As transformers names ranks of gate and up that were two.
  config["rank_pattern"] = {{".*\\.gate_up_proj", 3}};
  adapter = open_written_peft(dir, config, tensors);
  ASSERT_TRUE(adapter.has_value()) << adapter.error().message;
  EXPECT_EQ(adapter->modules[1].n_experts, 2);
}

TEST(Lora, RefusesParametersThatTheTensorsAreNot) {
  const TempDir dir;
  // Of one parameter, of one that is no matrix, of none: there are two pairs.
  for (const json& parameters :
       {json{"experts.gate_up_proj"}, json{"experts.bias"}, json::array()}) {
    const auto adapter = open_written_peft(dir, experts_config(parameters), expert_pairs());
    expect_refused(adapter, "experts");
    expect_refused(adapter, "is not supported");
  }
  json config = experts_config({"experts.gate_up_proj", "experts.down_proj"});
  config["r"] = 4;
  expect_refused(open_written_peft(dir, config, expert_pairs()), "expected rank 4");
}

TEST(Lora, RefusesWhatPeftComputesOtherwise) {
  const TempDir dir;
  const std::pair<const char*, json> fields[] = {
      {"use_dora", true},
      {"fan_in_fan_out", true},
      {"lora_bias", true},
      {"bias", "all"},
      {"modules_to_save", {"lm_head"}},
      {"alora_invocation_tokens", {1, 2}},
      {"layer_replication", {{0, 4}}},
      {"target_parameters", "experts.down_proj"},
      {"target_parameters", {1}},
      {"init_lora_weights", "pissa"},
      {"peft_type", "IA3"},
      {"a_field_of_tomorrow", 1},
      {"r", 0},
      {"r", "2"},
      {"r", 1e300},
      {"lora_alpha", "x"},
      {"use_rslora", 1},
      {"rank_pattern", {{"down_proj", 0}}},
      {"alpha_pattern", 3},
  };
  for (const auto& [name, value] : fields) {
    json config = peft_config();
    config[name] = value;
    expect_refused(open_written_peft(dir, config, two_modules()), name);
  }
  json config = peft_config();
  config["alpha_pattern"] = {{"layers.(0|1).*", 4}};
  expect_refused(open_written_peft(dir, config, two_modules()), "regular expression");
  config["alpha_pattern"] = {{"q_proj", 4}, {"self_attn.q_proj", 5}};
  expect_refused(open_written_peft(dir, config, two_modules()), "several");
}

TEST(Lora, RefusesTensorsThatAreNoPairs) {
  const TempDir dir;
  const std::string a = std::string(kQuery) + ".lora_A.weight",
                    b = std::string(kQuery) + ".lora_B.weight";
  const std::pair<LoraShapes, const char*> cases[] = {
      {{}, "got none"},
      {{{a, {2, 6}}}, "only A"},
      {{{b, {4, 2}}}, "only B"},
      {{{a, {2, 6}}, {b, {4, 3}}}, "with a rank"},
      {{{a, {3, 6}}, {b, {4, 3}}}, "expected rank 2"},
      {{{a, {0, 6}}, {b, {4, 0}}}, "expected a matrix"},
      {{{a, {12}}, {b, {4, 2}}}, "expected a matrix"},
      {{{"base_model.model.lm_head.weight", {4, 4}}}, "lm_head"},
      {{{std::string(kQuery) + ".lora_magnitude_vector", {4}}}, "lora_magnitude_vector"},
  };
  for (const auto& [tensors, part] : cases)
    expect_refused(open_written_peft(dir, peft_config(), tensors), part);
  std::filesystem::remove(dir / "adapter_model.safetensors");
  expect_refused(open_lora(dir.path()), "adapter_model.safetensors");
  std::filesystem::remove(dir / "adapter_config.json");
  expect_refused(open_lora(dir.path()), "adapter_config.json");
  expect_refused(open_lora(dir / "nothing"), "nothing");
}

Result<LoraAdapter> open_written_gguf(const TempDir& dir, GgufWriter writer,
                                      const LoraShapes& tensors) {
  write_lora(writer, dir / "lora.gguf", tensors);
  return open_lora(dir / "lora.gguf");
}

GgufWriter gguf_lora_writer(const char* type = "adapter", const char* kind = "lora") {
  GgufWriter writer;
  writer.set("general.architecture", "llama");
  writer.set("general.type", type);
  writer.set("adapter.type", kind);
  return writer;
}

TEST(Lora, Gguf) {
  const TempDir dir;
  const LoraShapes pair = {{"blk.0.attn_q.weight.lora_a", {2, 6}},
                           {"blk.0.attn_q.weight.lora_b", {4, 2}}};
  auto adapter = open_written_gguf(dir, gguf_lora_writer(), pair);
  ASSERT_TRUE(adapter.has_value()) << adapter.error().message;
  ASSERT_EQ(adapter->modules.size(), 1u);
  EXPECT_EQ(adapter->modules[0].weight, "blk.0.attn_q.weight");
  EXPECT_FLOAT_EQ(adapter->modules[0].scale, 1);
  GgufWriter with_alpha = gguf_lora_writer();
  with_alpha.set("adapter.lora.alpha", 5.0f);
  adapter = open_written_gguf(dir, with_alpha, pair);
  ASSERT_TRUE(adapter.has_value()) << adapter.error().message;
  EXPECT_FLOAT_EQ(adapter->modules[0].scale, 2.5);
  // Rows 1 and 2 of scale * B A, with A and B counting from 1.
  std::vector<float> rows(12, 100);
  add_lora(adapter->modules[0], 1, rows);
  for (int row = 0; row < 2; ++row) {
    for (int col = 0; col < 6; ++col) {
      const auto b = static_cast<float>(2 * (row + 1) + 1), a = static_cast<float>(col + 1);
      EXPECT_FLOAT_EQ(rows[static_cast<size_t>(row * 6 + col)],
                      100 + 2.5f * (b * a + (b + 1) * (a + 6)));
    }
  }
  const LoraShapes experts = {{"blk.0.ffn_up_exps.weight.lora_a", {3, 2, 6}},
                              {"blk.0.ffn_up_exps.weight.lora_b", {3, 4, 2}}};
  adapter = open_written_gguf(dir, with_alpha, experts);
  ASSERT_TRUE(adapter.has_value()) << adapter.error().message;
  EXPECT_EQ(adapter->modules[0].n_experts, 3);
  EXPECT_FLOAT_EQ(adapter->modules[0].scale, 2.5);
  EXPECT_EQ(lora_pairs(adapter->modules[0])[2].b,
            std::vector<float>({17, 18, 19, 20, 21, 22, 23, 24}));
  expect_refused(
      open_written_gguf(dir, gguf_lora_writer(), {experts[0], {experts[1].first, {2, 4, 2}}}),
      "expected A [rank, in]");
  expect_refused(
      open_written_gguf(dir, gguf_lora_writer(), {experts[0], {experts[1].first, {4, 2}}}),
      "expected matrices");
  expect_refused(open_written_gguf(dir, gguf_lora_writer("model"), pair), "general.type");
  expect_refused(open_written_gguf(dir, gguf_lora_writer("adapter", "control"), pair),
                 "adapter.type");
  GgufWriter activated = gguf_lora_writer();
  activated.set_array("adapter.alora.invocation_tokens",
                      std::span<const uint32_t>(std::vector<uint32_t>{1, 2}));
  expect_refused(open_written_gguf(dir, activated, pair), "aLoRA");
  for (const char* name : {"token_embd.weight.lora_a", "blk.0.attn_norm.weight",
                           "blk.0.attn_q.lora_a", ".weight.lora_a"})
    expect_refused(open_written_gguf(dir, gguf_lora_writer(), {{name, {2, 6}}}), name);
}

TEST(Lora, IsWhatTheFileHadWhenItWasOpened) {
  const TempDir peft_dir, gguf_dir;
  const LoraShapes pair = {{"blk.0.attn_q.weight.lora_a", {2, 6}},
                           {"blk.0.attn_q.weight.lora_b", {4, 2}}};
  auto peft = open_written_peft(peft_dir, peft_config(), two_modules());
  auto gguf = open_written_gguf(gguf_dir, gguf_lora_writer(), pair);
  for (const auto* adapter : {&peft, &gguf}) {
    ASSERT_TRUE(adapter->has_value()) << adapter->error().message;
    const uint64_t before = lora_fingerprint(**adapter);
    const std::filesystem::path file = (*adapter)->source->path();
    std::filesystem::resize_file(file, 0);
    std::filesystem::resize_file(file, 100'000);  // zeros
    EXPECT_EQ(lora_fingerprint(**adapter), before);
    std::filesystem::resize_file(file, 0);
    EXPECT_EQ(lora_fingerprint(**adapter), before);
  }
}

TEST(Lora, KnowsItsBase) {
  const TempDir dir, base_dir;
  auto adapter = open_written_peft(dir, peft_config(), two_modules());
  ASSERT_TRUE(adapter.has_value()) << adapter.error().message;
  const std::string query = "model.layers.0.self_attn.q_proj.weight",
                    down = "model.layers.11.mlp.down_proj.weight";
  const std::pair<LoraShapes, std::string> cases[] = {
      {{{query, {4, 6}}, {down, {6, 5}}}, ""},
      {{{query, {4, 6}}}, down},
      {{{query, {6, 4}}, {down, {6, 5}}}, query},
  };
  write_bytes(base_dir / "config.json", "{}");
  for (const auto& [tensors, part] : cases) {
    SafetensorsWriter writer;
    write_lora(writer, base_dir / "model.safetensors", tensors);
    const auto base = open_weights(base_dir.path());
    ASSERT_TRUE(base.has_value()) << base.error().message;
    const Status status = check_lora_base(*adapter, **base);
    EXPECT_EQ(status.has_value(), part.empty()) << part;
    if (status) continue;
    EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
  }
  const TempDir gguf_dir;
  const auto other = open_written_gguf(
      gguf_dir, gguf_lora_writer(),
      {{"blk.0.attn_q.weight.lora_a", {2, 6}}, {"blk.0.attn_q.weight.lora_b", {4, 2}}});
  ASSERT_TRUE(other.has_value()) << other.error().message;
  EXPECT_FALSE(check_lora_base(*other, **open_weights(base_dir.path())).has_value());
}

}  // namespace
}  // namespace penstock
