// Checkpoints in, checkpoints out: conversions keep the logits, every layout is read back, and
// interrupted, full and damaged runs end in one clear error.
#include "quantize/quantize.h"
#include "model/arch/read_config.h"
#include "quantize/methods/layer_method.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "formats/prequantized.h"
#include "formats/safetensors_writer.h"
#include "formats/temp_dir.h"
#include "model/next_token_layer.h"
#include "model/runner.h"
#include "model/sources/synthetic.h"
#include "quantize/evaluate.h"
#include "quantize/golden_models.h"
#include "quantize/write/output.h"
#include "support/test_data.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::max_difference;
using testing::relative;
using testing::Rows;
using testing::Runner;

using nlohmann::json;
using testing::golden;
std::vector<int> some_tokens() {
  std::vector<int> tokens;
  for (int i = 0; i < 24; ++i) tokens.push_back((i * 7 + 3) % 50);
  return tokens;
}

Rows logits_of(const fs::path& path) {
  const auto ops = make_ops("cpu", {.n_threads = 1, .batch_invariant = true}).value();
  auto source = open_weights(path);
  EXPECT_TRUE(source) << source.error().message;
  if (!source) return {};
  auto model = Model::load(**source, *ops);
  EXPECT_TRUE(model) << model.error().message;
  if (!model) return {};
  return Runner(**model, *ops).run(0, some_tokens());
}

Rows further_logits_of(const NextTokenLayer& layer, const Model& model, Ops& ops) {
  const std::vector<int> tokens = some_tokens();
  const CacheSpec spec = layer.cache_spec(KvDType::kF32, 16);
  const auto cache =
      ops.make_cache(spec, std::vector<int>(static_cast<size_t>(spec.n_groups()), 4)).value();
  const GroupBlocks kv = consecutive_blocks(0, static_cast<int>(tokens.size()), 16);
  BatchBuilder builder(spec);
  builder.add({.tokens = tokens, .kv = {&kv, 1}, .rows = BatchPart::Rows::kAll});
  std::vector<float> states(tokens.size() * static_cast<size_t>(model.config().model_dim));
  for (size_t i = 0; i < states.size(); ++i) states[i] = std::sin(0.37f * static_cast<float>(i));
  const StepOutputs result = layer.forward(builder.build(), states, {}, *cache, ops);
  return Runner::rows_of(ops, result.logits, static_cast<int>(tokens.size()));
}

// What the layers that predict further tokens say of made-up states, one after the other.
Rows further_logits_of(const fs::path& path) {
  const auto ops = make_ops("cpu", {.n_threads = 1, .batch_invariant = true}).value();
  const auto source = open_weights(path).value();
  const auto model = Model::load(*source, *ops).value();
  const int n_layers = NextTokenLayer::count(*source, *model, *ops);
  EXPECT_GT(n_layers, 0) << path;
  Rows all;
  for (int i = 0; i < n_layers; ++i) {
    const auto layer = NextTokenLayer::load(*source, *model, *ops, i);
    EXPECT_TRUE(layer) << layer.error().message;
    if (layer)
      for (auto& row : further_logits_of(**layer, *model, *ops)) all.push_back(std::move(row));
  }
  return all;
}

QuantizeJob job_of(const fs::path& in, const fs::path& out, const std::string& type) {
  QuantizeJob job;
  job.in = in;
  job.out = out;
  job.threads = 2;
  job.recipe.type = type;
  return job;
}

// Into the config.json of a copied checkpoint.
void write_config(const fs::path& dir, const json& settings) {
  json config = json::parse(std::ifstream(dir / "config.json"));
  config.update(settings);
  std::ofstream(dir / "config.json") << config;
}

// Names, shapes and the key of the norms' epsilon are those of the file that llama.cpp's converter
// made of the same checkpoint, where there is one. It keeps a layer's copies of the model's tables,
// and llama.cpp takes experts' gates and ups apart as well as together.
void expect_laid_out_as_by_llama_cpp(const fs::path& checkpoint, const fs::path& written) {
  if (!fs::exists(checkpoint / "model.gguf")) return;
  const auto theirs = open_weights(checkpoint / "model.gguf").value(),
             ours = open_weights(written).value();
  const auto without_leading_ones = [](std::vector<int64_t> shape) {
    while (shape.size() > 1 && shape.front() == 1) shape.erase(shape.begin());
    return shape;
  };
  const std::string arch = ours->config().at("general.architecture");
  const std::string further =
      fmt::format("blk.{}.", ours->config().at(arch + ".block_count").get<int>());
  const auto of_both = [&](std::string_view name) {
    const bool copy = name.ends_with("nextn.embed_tokens.weight") ||
                      name.ends_with("nextn.shared_head_head.weight");
    return !copy && !name.starts_with(further) && name.find("_exps.") == std::string_view::npos;
  };
  for (const TensorInfo& tensor : theirs->tensors()) {
    if (!of_both(tensor.name)) continue;
    const TensorInfo* own = ours->find(tensor.name);
    ASSERT_NE(own, nullptr) << tensor.name;
    EXPECT_EQ(without_leading_ones(own->shape), without_leading_ones(tensor.shape)) << tensor.name;
  }
  for (const TensorInfo& tensor : ours->tensors())
    EXPECT_TRUE(!of_both(tensor.name) || theirs->find(tensor.name) != nullptr) << tensor.name;
  for (const auto& [key, value] : ours->config().items()) {
    if (key.ends_with("epsilon")) {
      EXPECT_TRUE(theirs->config().contains(key)) << key;
    }
  }
}

class Conversion : public ::testing::TestWithParam<const char*> {};

// Directory -> GGUF -> directory, all in F32: names, orders of heads, offsets of norms and the
// configuration are right exactly when the logits stay.
TEST_P(Conversion, KeepsTheLogits) {
  const TempDir dir;
  const fs::path in = golden(GetParam());
  const auto there = quantize(job_of(in, dir / "a.gguf", "f32"));
  ASSERT_TRUE(there) << there.error().message;
  const Rows original = logits_of(in);
  EXPECT_LT(max_difference(original, logits_of(dir / "a.gguf")), 2e-4);
  expect_laid_out_as_by_llama_cpp(in, dir / "a.gguf");
  const auto back = quantize(job_of(dir / "a.gguf", dir / "b", "f32"));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_LT(max_difference(original, logits_of(dir / "b")), 2e-4);
  EXPECT_FALSE(fs::exists(dir / "a.gguf.parts"));
}
INSTANTIATE_TEST_SUITE_P(
    Models, Conversion,
    ::testing::Values(
        "minimax_m3", "llama2", "llama_mqa", "llama_linear", "mistral", "mixtral", "granite",
        "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3", "olmo2", "llama_yarn", "phi3",
        "phi3_longrope", "phi4_partial_rotary", "gpt2", "smollm3", "cohere", "cohere_qk_norm",
        "cohere2", "olmo3_plain", "exaone4_full", "ministral3", "seed_oss", "seed_oss_biases",
        "ernie4_5", "hunyuan", "arcee", "glm4", "gpt_neox", "gpt_neox_serial", "falcon",
        "falcon_new", "stablelm", "stablelm_parallel", "starcoder2", "starcoder2_plain", "phi",
        "mpt", "bloom", "gpt_bigcode", "gpt_bigcode_heads", "gptj", "opt", "olmo", "olmo_biases",
        "glm4_moe", "glm4_moe_groups", "qwen2_moe", "minimax_m2", "minimax_m2_full", "ernie4_5_moe",
        "ernie4_5_moe_mixed", "phimoe", "phimoe_longrope", "lfm2", "lfm2_long_tail", "lfm2_moe",
        "lfm2_moe_plain", "qwen3_5_text", "qwen3_5_text_plain", "qwen3_5_moe", "gemma4",
        "gemma4_unified", "gemma4_unified_shared", "gemma4_keys_are_values", "gemma4_experts",
        "gemma4_full", "gemma3n", "gemma3n_apart", "gemma3n_streams", "granitemoehybrid_attention",
        "mamba2", "mamba2_groups", "nemotron_h", "nemotron_h_odd", "nemotron_h_moe",
        "nemotron_h_moe_latent", "nemotron_h_moe_groups", "falcon_h1", "falcon_h1_norm",
        "falcon_h1_biases", "solar_open", "solar_open_groups", "dots1", "exaone_moe", "hy_v3",
        "hunyuan_moe", "hunyuan_moe_biases", "olmoe", "olmoe_normed", "nemotron", "nemotron_biases",
        "jais2", "jais2_plain", "helium", "helium_biases", "glm", "ministral", "hyperclovax",
        "hyperclovax_plain", "granite_swa", "gemma", "qwen2_5_vl", "qwen2_vl", "qwen3_vl",
        "mpt_clipped", "codegen", "gpt_neo", "persimmon", "biogpt", "exaone", "internlm3",
        "vaultgemma", "flex_olmo", "afmoe", "mellum", "cohere2_moe", "laguna", "laguna_full",
        "sarvam_moe", "bailing_moe_v2", "afmoe_plain", "nanochat", "minicpm3", "minicpm3_scales",
        "xglm", "internlm2", "internlm2_tied", "xverse", "orion", "baichuan", "baichuan_alibi",
        "qwen", "minicpm", "minicpm_untied", "deepseek", "deepseek_normed", "bailing_moe",
        "mimo_v2_flash", "mamba", "falcon_mamba", "jamba", "baichuan2", "deci", "smallthinker",
        "grok", "grok2", "grove_moe", "grove_moe_groups", "plamo", "plamo2", "plamo2_windows",
        "plamo3", "plamo3_yarn"));

// Its parameters are tensors in one format and settings in the other.
TEST(Quantize, ActivationsKeepTheirParameters) {
  const TempDir dir;
  const fs::path in = dir / "in";
  fs::copy(golden("apertus"), in);
  write_config(in, {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e4}}}});
  const Rows original = logits_of(in);
  const auto write = [&](const fs::path& from, const fs::path& to) {
    const auto written = quantize(job_of(from, to, "f32"));
    ASSERT_TRUE(written) << written.error().message;
    EXPECT_LT(max_difference(original, logits_of(to)), 2e-4) << to;
  };
  write(in, dir / "a");
  write(in, dir / "a.gguf");
  write(dir / "a.gguf", dir / "b");
}

// In GGUF factors of frequencies are those of every rope of a Gemma 3.
TEST(Quantize, FactorsOfOneOfTwoRopesAreRefused) {
  const TempDir dir;
  for (const char* kind : {"full_attention", "sliding_attention"}) {
    const fs::path in = dir / kind;
    fs::copy(golden("gemma3"), in);
    const json plain = {{"rope_type", "default"}, {"rope_theta", 1e4}};
    json ropes = {{"full_attention", plain}, {"sliding_attention", plain}};
    ropes[kind].update({{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 32}});
    write_config(in, {{"rope_parameters", ropes}});
    const auto there = quantize(job_of(in, dir / "a.gguf", "f32"));
    EXPECT_THAT(there ? "" : there.error().message,
                ::testing::HasSubstr("rope: the output's format cannot"));
  }
}

// Directories that hold several matrices in one tensor become GGUF files, not the other way.
class IntoGguf : public ::testing::TestWithParam<const char*> {};
TEST_P(IntoGguf, KeepsTheLogits) {
  const TempDir dir;
  const fs::path in = golden(GetParam());
  const auto there = quantize(job_of(in, dir / "a.gguf", "f32"));
  ASSERT_TRUE(there) << there.error().message;
  EXPECT_LT(max_difference(logits_of(in), logits_of(dir / "a.gguf")), 2e-4);
  expect_laid_out_as_by_llama_cpp(in, dir / "a.gguf");
  const auto again = quantize(job_of(dir / "a.gguf", dir / "b.gguf", "f32"));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(logits_of(dir / "a.gguf"), logits_of(dir / "b.gguf"));
  const auto back = quantize(job_of(dir / "a.gguf", dir / "b", "f32"));
  EXPECT_THAT(back ? "" : back.error().message, ::testing::HasSubstr("write a GGUF file"));
}
INSTANTIATE_TEST_SUITE_P(
    Models, IntoGguf,
    ::testing::Values("granitemoe", "granitemoe_all", "granitemoeshared", "granitemoeshared_one",
                      "deepseek_v2", "deepseek_v3", "deepseek_v3_halves", "deepseek_v32",
                      "deepseek_v32_dense", "glm_moe_dsa", "glm4_moe_lite", "youtu", "youtu_halves",
                      "qwen3_next", "qwen3_next_mixed", "qwen4_exp", "qwen4_exp_plain", "llama4",
                      "granitemoehybrid", "granitemoehybrid_dense", "granitemoehybrid_rope",
                      "bamba", "bamba_biases", "kimi_linear", "mistral4", "mistral4_groups",
                      "granitemoe_swa", "granitemoe_swa_shared", "qwen3_vl_moe",
                      "qwen3_vl_moe_saved", "dbrx", "dbrx_plain", "bailing_hybrid", "openelm",
                      "hy_v4"));

TEST(Quantize, SeveralTablesOfNgramsAreRefused) {
  const TempDir dir;
  const auto there = quantize(job_of(golden("qwen4_exp_tables"), dir / "a.gguf", "f32"));
  EXPECT_THAT(there ? "" : there.error().message,
              ::testing::HasSubstr("one in a file: several layers have one"));
}

class StaysInDirectories : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};
TEST_P(StaysInDirectories, AndComesOutOfThemTheSame) {
  const TempDir dir;
  const auto [model, architecture] = GetParam();
  const fs::path in = golden(model);
  const auto there = quantize(job_of(in, dir / "a.gguf", "f32"));
  EXPECT_THAT(there ? "" : there.error().message,
              ::testing::HasSubstr(
                  fmt::format("GGUF files of architecture {} are not known", architecture)));
  const auto written = quantize(job_of(in, dir / "b", "f32"));
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_LT(max_difference(logits_of(in), logits_of(dir / "b")), 2e-4);
}

INSTANTIATE_TEST_SUITE_P(Models, StaysInDirectories,
                         ::testing::Values(std::pair("glm5_next", "glm5next"),
                                           std::pair("mistral_large4", "mistral-large4"),
                                           std::pair("longcat_flash", "longcat-flash"),
                                           std::pair("lara_mini", "lara_mini"),
                                           std::pair("diffllama_groups", "diffllama"),
                                           std::pair("apertus1p5", "apertus1p5"),
                                           std::pair("cohere_compass", "cohere_compass"),
                                           std::pair("recurrent_gemma_wide", "recurrent_gemma"),
                                           std::pair("zamba2_adapters", "zamba2"),
                                           std::pair("axk2", "axk2"),
                                           std::pair("muse_spark", "muse-spark")));

// Its convolutions over heads have no place in files that are written.
TEST(Quantize, ZayaIsReadAsPublishedAndNotRewritten) {
  const TempDir dir;
  const auto there = quantize(job_of(golden("zaya"), dir / "a.gguf", "f32"));
  EXPECT_THAT(there ? "" : there.error().message,
              ::testing::HasSubstr("GGUF files of architecture zaya are not known"));
  const auto again = quantize(job_of(golden("zaya"), dir / "b", "f32"));
  EXPECT_THAT(again ? "" : again.error().message, ::testing::HasSubstr("not rewritten"));
  EXPECT_FALSE(fs::exists(dir / "b"));
}

TEST(Quantize, RwkvIsReadFromBothFormatsAndNotRewritten) {
  const TempDir dir;
  for (const char* model : {"rwkv6", "rwkv7"}) {
    SCOPED_TRACE(model);
    for (const fs::path& in : {golden(model), golden(model) / "model.gguf"}) {
      for (const char* to : {"a.gguf", "b"}) {
        const auto refused = quantize(job_of(in, dir / to, "f32"));
        EXPECT_THAT(refused ? "" : refused.error().message, ::testing::HasSubstr("not rewritten"));
        EXPECT_FALSE(fs::exists(dir / to));
      }
    }
  }
}

TEST(Quantize, SomeAreReadAsPublishedAndNotRewritten) {
  const TempDir dir;
  for (const char* model : {"deepseek_v4", "inkling", "inkling2", "hrm_text", "dory"}) {
    for (const char* out : {"a.gguf", "b"}) {
      const auto there = quantize(job_of(golden(model), dir / out, "f32"));
      EXPECT_THAT(there ? "" : there.error().message,
                  ::testing::AnyOf(::testing::HasSubstr("not rewritten"),
                                   ::testing::HasSubstr("are not known: write a directory")))
          << model;
      EXPECT_FALSE(fs::exists(dir / out));
    }
  }
}

// In GGUF delta attention has as many heads as attention over latents.
TEST(Quantize, HeadsOfKimiLinearThatGgufCannotSayAreRefused) {
  const TempDir dir;
  const auto there = quantize(job_of(golden("kimi_linear_odd"), dir / "a.gguf", "f32"));
  EXPECT_THAT(there ? "" : there.error().message,
              ::testing::HasSubstr("the output's format cannot say it"));
  EXPECT_FALSE(fs::exists(dir / "a.gguf"));
}

// The layer that predicts a token further goes with the others: it proposes the same from every
// file.
class NextTokenConversion : public ::testing::TestWithParam<const char*> {};
TEST_P(NextTokenConversion, KeepsWhatIsProposed) {
  const TempDir dir;
  const fs::path in = golden(GetParam());
  const Rows original = further_logits_of(in);
  const auto expect_same = [&](const fs::path& from, const fs::path& to) {
    const auto written = quantize(job_of(from, to, "f32"));
    ASSERT_TRUE(written) << written.error().message;
    EXPECT_LT(max_difference(original, further_logits_of(to)), 2e-4) << to;
    EXPECT_LT(max_difference(logits_of(in), logits_of(to)), 2e-4) << to;
  };
  const bool latent = std::string_view(GetParam()).starts_with("deepseek");  // written as GGUF only
  expect_same(in, dir / "a.gguf");
  if (!latent) expect_laid_out_as_by_llama_cpp(in, dir / "a.gguf");  // which leaves the layer out
  expect_same(dir / "a.gguf", dir / "b.gguf");
  // These are not written back as directories: fused experts, and factors of a rope.
  const std::string_view name = GetParam();
  const bool back = name != "qwen3_next_mtp" && name != "step3p5_mtp2";
  if (!latent && back) expect_same(dir / "a.gguf", dir / "b");
  if (!latent) expect_same(in, dir / "c");
  ASSERT_TRUE(quantize(job_of(in, dir / "d.gguf", "q8_0")));
  EXPECT_LT(relative(original, further_logits_of(dir / "d.gguf")), 0.03);
}
INSTANTIATE_TEST_SUITE_P(Models, NextTokenConversion,
                         ::testing::Values("deepseek_v3_mtp", "glm4_moe_mtp", "glm4_moe_mtp2",
                                           "qwen3_5_text_mtp", "qwen3_next_mtp", "step3p5_mtp2"));

TEST(Quantize, TheLayerOfAFurtherTokenIsCounted) {
  const TempDir dir;
  const auto file = golden("qwen3_5_moe") / "model.gguf";
  const auto again = quantize(job_of(file, dir / "a.gguf", "f32"));
  ASSERT_TRUE(again) << again.error().message;
  const auto source = open_weights(dir / "a.gguf").value();
  EXPECT_EQ(source->config().at("qwen35moe.block_count"), 4);
  EXPECT_EQ(source->config().at("qwen35moe.attention.recurrent_layers").size(), 4);
  EXPECT_EQ(source->config().at("qwen35moe.nextn_predict_layers"), 1);
  EXPECT_EQ(logits_of(dir / "a.gguf"), logits_of(file));
}

// Lists by layer end with the layers that are written; the directory has its experts one by one.
TEST(Quantize, LayersOfFurtherTokensOfNemotronAreLeftOut) {
  const TempDir dir;
  const auto file = golden("nemotron_h_moe_latent") / "model.gguf";
  ASSERT_TRUE(quantize(job_of(file, dir / "a.gguf", "f32")));
  const auto source = open_weights(dir / "a.gguf").value();
  EXPECT_EQ(source->config().at("nemotron_h_moe.block_count"), 4);
  EXPECT_EQ(source->config().at("nemotron_h_moe.feed_forward_length").size(), 4);
  EXPECT_EQ(source->config().count("nemotron_h_moe.nextn_predict_layers"), 0);
  EXPECT_EQ(logits_of(dir / "a.gguf"), logits_of(file));
  ASSERT_TRUE(quantize(job_of(file, dir / "b", "f32")));
  EXPECT_LT(max_difference(logits_of(file), logits_of(dir / "b")), 2e-4);
  EXPECT_NE(
      open_weights(dir / "b").value()->find("backbone.layers.2.mixer.experts.3.up_proj.weight"),
      nullptr);
}

// There it is relu2.
TEST(Quantize, AGgufFileCannotHoldOtherActivationsOfNemotron) {
  const TempDir dir;
  const auto there = quantize(job_of(golden("nemotron_h_moe_plain"), dir / "a.gguf", "f32"));
  EXPECT_THAT(there ? "" : there.error().message, ::testing::HasSubstr("activation"));
}

TEST(Quantize, EncodersAreNotRewritten) {
  const TempDir dir;
  const auto there = quantize(job_of(golden("../encoders/bert"), dir / "a.gguf", "f32"));
  EXPECT_THAT(there ? "" : there.error().message, ::testing::HasSubstr("is an encoder"));
}

// GGUF files of Llama 4 are read with the published chunks and growth.
TEST(Quantize, AGgufFileCannotHoldOtherChunksOfLlama4) {
  const TempDir dir;
  for (const char* name : {"llama4_chunks", "llama4_plain"}) {
    const auto there = quantize(job_of(golden(name), dir / "a.gguf", "f32"));
    EXPECT_FALSE(there) << name;
    EXPECT_THAT(there ? "" : there.error().message, ::testing::HasSubstr("format cannot say it"))
        << name;
  }
}

TEST(Quantize, AGgufFileCannotHoldNormsOfScansBeforeGates) {
  const TempDir dir;
  const auto there = quantize(job_of(golden("falcon_h1_norm_first"), dir / "a.gguf", "f32"));
  EXPECT_THAT(there ? "" : there.error().message, ::testing::HasSubstr("norms of scans"));
}

TEST(Quantize, AGgufFileCannotHoldBiasesOfConvolutions) {
  const TempDir dir;
  const auto there = quantize(job_of(golden("lfm2_biases"), dir / "a.gguf", "f32"));
  EXPECT_THAT(there ? "" : there.error().message, ::testing::HasSubstr("conv_bias"));
}

// Before hours of work. A directory keeps it.
TEST(Quantize, WhatNoKeyOfGgufSaysIsRefused) {
  const TempDir dir;
  const std::pair<const char*, const char*> kModels[] = {
      {"bloom_adds_to_norm", "apply_residual_connection_post_layernorm"},
      {"falcon_rw", "alibi"},
      {"gpt2_by_layer", "scale_attn_by_inverse_layer_idx"}};
  for (const auto& [name, key] : kModels) {
    const auto there = quantize(job_of(golden(name), dir / "a.gguf", "f32"));
    EXPECT_THAT(there ? "" : there.error().message,
                ::testing::HasSubstr(fmt::format("config.json: {}: true", key)));
    const auto directory = quantize(job_of(golden(name), dir / name, "f32"));
    ASSERT_TRUE(directory) << directory.error().message;
    EXPECT_EQ(logits_of(dir / name), logits_of(golden(name)));
  }
}

TEST(Quantize, AGgufFileCannotHoldTwoMagnitudesOfYarn) {
  const TempDir dir;
  const auto there = quantize(job_of(golden("deepseek_v2_groups"), dir / "a.gguf", "f32"));
  EXPECT_THAT(there ? "" : there.error().message, ::testing::HasSubstr("rope"));
}

// The layers that get more bits are those of llama.cpp's own files.
TEST(QuantizeGguf, FileTypesChooseTheLayersOfLlamaCpp) {
  const FileType ftype = find_file_type("q4_k_m").value();
  const auto chosen = [&](int n_layers) {
    std::vector<int> layers;
    for (int i = 0; i < n_layers; ++i) {
      if (choose_type(ftype, {.n_layers = n_layers, .tied = true}, WeightRole::kDown, i, 512) ==
          QuantType::kQ6_K)
        layers.push_back(i);
    }
    return layers;
  };
  EXPECT_THAT(chosen(6), ::testing::ElementsAre(2, 5));
  EXPECT_THAT(chosen(22), ::testing::ElementsAre(0, 1, 4, 7, 10, 13, 16, 19, 20, 21));
}

// What a model's makers recommend goes with it into the other format and back.
TEST(QuantizeGguf, RecommendationsForSamplingAreKept) {
  const TempDir dir;
  fs::copy(golden("llama2"), dir / "in");
  std::ofstream(dir / "in" / "generation_config.json")
      << R"({"temperature": 0.5, "top_k": 20, "do_sample": true, "eos_token_id": 3})";
  ASSERT_TRUE(quantize(job_of(dir / "in", dir / "a.gguf", "f32")));
  const auto file = open_weights(dir / "a.gguf").value();
  EXPECT_EQ(file->config().at("general.sampling.temp"), 0.5);
  EXPECT_EQ(file->config().at("general.sampling.top_k"), 20);
  ASSERT_TRUE(quantize(job_of(dir / "a.gguf", dir / "b", "f32")));
  EXPECT_EQ(json::parse(std::ifstream(dir / "b" / "generation_config.json")),
            json({{"temperature", 0.5}, {"top_k", 20}}));
  ASSERT_TRUE(quantize(job_of(golden("llama2"), dir / "c.gguf", "f32")));
  ASSERT_TRUE(quantize(job_of(dir / "c.gguf", dir / "d", "f32")));
  EXPECT_FALSE(fs::exists(dir / "d" / "generation_config.json"));
}

// Settings of another tool's quantization are not those of what is written.
TEST(QuantizeDirectory, SettingsOfTheInputsQuantizationAreLeftOut) {
  const TempDir dir;
  fs::copy(golden("llama2"), dir / "in");
  std::ofstream(dir / "in" / "hf_quant_config.json") << R"({"quantization": {"quant_algo": null}})";
  ASSERT_TRUE(quantize(job_of(dir / "in", dir / "out", "f32")));
  EXPECT_FALSE(fs::exists(dir / "out" / "hf_quant_config.json"));
}

// llama.cpp refuses a file whose counts are signed.
TEST(QuantizeGguf, CountsAreUnsigned) {
  const TempDir dir;
  for (const char* name : {"llama3", "mixtral", "gemma3"}) {
    const fs::path out = dir / (std::string(name) + ".gguf");
    ASSERT_TRUE(quantize(job_of(golden(name), out, "q8_0")));
    const auto source = open_weights(out).value();
    int n_counts = 0;
    for (const auto& [key, value] : source->config().items()) {
      if (!value.is_number_integer()) continue;
      EXPECT_TRUE(value.is_number_unsigned()) << name << " " << key;
      ++n_counts;
    }
    EXPECT_GE(n_counts, 8) << name;
  }
}

// Other tools take every linear layer for quantized but those that config.json names.
TEST(QuantizeDirectory, SmallMatricesOfStreamsAreNamedAsKept) {
  const TempDir dir;
  const auto report = quantize(job_of(golden("gemma3n"), dir / "out", "int8"));
  ASSERT_TRUE(report) << report.error().message;
  const auto written = open_weights(dir / "out").value();
  const std::string quantization = written->config().at("quantization_config").dump();
  for (const char* name :
       {"model.altup_projections.2", "model.altup_unembed_projections.0",
        "model.per_layer_model_projection", "model.layers.0.altup.modality_router",
        "model.layers.4.altup.prediction_coefs", "model.layers.4.altup.correction_coefs",
        "model.layers.1.laurel.linear_left", "model.layers.1.laurel.linear_right"}) {
    EXPECT_NE(quantization.find(name), std::string::npos) << name;
    EXPECT_NE(written->find(fmt::format("{}.weight", name)), nullptr) << name;
  }
  EXPECT_EQ(quantization.find("per_layer_input_gate"), std::string::npos);
}

// What the types' own row encoders give is what lies in the file.
TEST(QuantizeGguf, EveryEncodingLoadsAndIsNearTheOriginal) {
  const TempDir dir;
  const fs::path in = golden("llama3");
  const Rows original = logits_of(in);
  double last = 0;
  for (const char* type : {"q8_0", "q5_1", "q4_0", "iq4_nl", "mxfp4"}) {
    const fs::path out = dir / (std::string(type) + ".gguf");
    const auto report = quantize(job_of(in, out, type));
    ASSERT_TRUE(report) << type << ": " << report.error().message;
    EXPECT_LT(report->bytes_out, report->bytes_in) << type;
    const double error = relative(original, logits_of(out));
    EXPECT_LT(error, 0.5) << type;  // a model of 32 channels
    EXPECT_GT(error, 0) << type;
    last = std::max(last, error);
  }
}

struct LayoutCase {
  const char* type;
  const char* layout;
  int group;
  bool asymmetric;
  double most;  // relative error of the logits
};

// Random weights in sizes that every layout can hold.
fs::path wide_model(const TempDir& dir) {
  const auto source = open_weights(golden("llama2")).value();
  ModelConfig config = read_config(*source).value();
  config.model_dim = 64;
  config.ffn_dim = 128;
  config.n_heads = 4;
  config.n_kv_heads = 2;
  config.head_dim = 16;
  config.ropes[0].rotary_dim = 16;
  config.attention.scale = 0.25f;
  config.vocab_size = 64;
  config.name = "wide";
  const auto made = make_synthetic_source(config, "f32").value();
  EXPECT_TRUE(write_gguf(*made, dir / "wide.gguf"));
  return dir / "wide.gguf";
}

class Layouts : public ::testing::TestWithParam<LayoutCase> {};

TEST_P(Layouts, ReadBackByOurReader) {
  const TempDir dir;
  const LayoutCase& c = GetParam();
  const fs::path in = wide_model(dir);
  QuantizeJob job = job_of(in, dir / "out", c.type);
  job.recipe.layout = c.layout;
  job.recipe.group_size = c.group;
  job.recipe.asymmetric = c.asymmetric;
  const auto report = quantize(job);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_LT(relative(logits_of(in), logits_of(dir / "out")), c.most);
  // A second run on the same output is refused, and replaces it when told to.
  EXPECT_FALSE(quantize(job));
  job.force = true;
  EXPECT_TRUE(quantize(job));
}
INSTANTIATE_TEST_SUITE_P(
    All, Layouts,
    ::testing::Values(
        LayoutCase{"int8", "compressed-tensors", 16, false, 0.01},
        LayoutCase{"int8", "compressed-tensors", 0, true, 0.02},
        LayoutCase{"int8", "gptq", 16, false, 0.01}, LayoutCase{"int4", "gptq", 16, false, 0.25},
        LayoutCase{"int4", "gptq", 16, true, 0.25}, LayoutCase{"int4", "awq", 16, true, 0.25},
        LayoutCase{"int4", "compressed-tensors", 16, true, 0.25},
        LayoutCase{"int4", "compressed-tensors", 0, false, 0.4},
        LayoutCase{"int6", "gptq", 16, false, 0.06}, LayoutCase{"int5", "gptq", 0, true, 0.2},
        LayoutCase{"int3", "gptq", 16, true, 0.6}, LayoutCase{"int2", "gptq", 16, true, 1.5},
        LayoutCase{"int7", "compressed-tensors", 16, false, 0.03},
        LayoutCase{"nf4", "bitsandbytes", 32, false, 0.3},
        LayoutCase{"fp4", "bitsandbytes", 32, false, 0.4}, LayoutCase{"w8a8", "", 0, false, 0.05},
        LayoutCase{"fp8", "", 0, false, 0.1}, LayoutCase{"ternary", "", 0, false, 2.0}));

std::map<std::string, std::string> files_in(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().filename()] = std::string(std::istreambuf_iterator<char>(file), {});
  }
  return files;
}

// A limit of a file's size stands for a full disk: pieces fit, and what they are put together to does not.
TEST(Output, OfADirectoryOnAFullDiskLeavesNothing) {
  const TempDir dir;
  QuantizeJob job = job_of(golden("llama3"), dir / "whole", "bf16");
  ASSERT_TRUE(quantize(job));
  const auto whole = files_in(job.out);
  job.out = dir / "out";
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  for (const bool exists : {false, true}) {
    if (exists) fs::create_directory(job.out);
    rlimit few = limit;
    few.rlim_cur = whole.at("model.safetensors").size() - 1;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &few), 0);
    const auto failed = quantize(job);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, ErrorCode::kResourceExhausted) << failed.error().message;
    EXPECT_EQ(fs::exists(job.out), exists);
    EXPECT_FALSE(fs::exists(dir / "out.unfinished"));
  }
  std::signal(SIGXFSZ, before);
  const auto done = quantize(job);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_GT(done->n_resumed, 0);
  EXPECT_EQ(files_in(job.out), whole);
}

// What a killed run left is taken over, whichever file it was at; what is not its own stays.
TEST(Output, OfADirectoryTakesOverWhatAnUnfinishedRunLeft) {
  const TempDir dir;
  QuantizeJob job = job_of(golden("llama3"), dir / "whole", "bf16");
  ASSERT_TRUE(quantize(job));
  const auto whole = files_in(job.out);
  job.out = dir / "out";
  const auto leave = [&] {
    auto left = UnfinishedDirectory::begin(job.out).value();
    ASSERT_TRUE(left.write("tokenizer.json", "{"));
    std::ofstream(left.place("model.safetensors").value().string() + ".partial") << "half";
  };
  leave();
  ASSERT_TRUE(quantize(job));
  EXPECT_EQ(files_in(job.out), whole);
  EXPECT_FALSE(fs::exists(dir / "out.unfinished"));
  // An earlier output that was to be replaced, some of whose files are gone, is one too.
  leave();
  std::ofstream(job.out / "config.json") << whole.at("config.json");
  ASSERT_TRUE(quantize(job)) << "without --force";
  EXPECT_EQ(files_in(job.out), whole);
  // A whole output is none, and what somebody else put there stays.
  EXPECT_EQ(quantize(job).error().code, ErrorCode::kInvalidArgument);
  fs::remove_all(job.out);
  {  // of a run that still writes
    auto other = UnfinishedDirectory::begin(job.out).value();
    ASSERT_TRUE(other.write("tokenizer.json", "{"));
    const auto refused = quantize(job);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, ::testing::HasSubstr("another run is writing"));
    EXPECT_EQ(files_in(job.out).size(), 1u);
  }
  leave();
  std::ofstream(job.out / "notes") << "mine";
  fs::create_symlink(dir / "whole" / "config.json", job.out / "config.json");
  EXPECT_EQ(quantize(job).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(files_in(job.out).size(), 2u);
  EXPECT_EQ(files_in(dir / "whole"), whole);
  fs::remove_all(job.out);
  std::ofstream(dir / "out.unfinished") << "what I still have to do";
  EXPECT_EQ(quantize(job).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(fs::file_size(dir / "out.unfinished"), 23u);
}

// Nobody asked for a group size: one that divides every layer's inputs (32 and 48 here: whole rows)
// is taken. Who asks gets it or an error.
TEST(GroupSize, ThatOfTheTypeOrOneThatFits) {
  const TempDir dir;
  QuantizeJob job = job_of(golden("llama3"), dir / "fits", "int4");
  const auto done = quantize(job);
  ASSERT_TRUE(done) << done.error().message;
  const auto written = open_weights(dir / "fits").value();
  const auto& group =
      written->config().at("quantization_config").at("config_groups").at("group_0").at("weights");
  EXPECT_EQ(group.at("strategy"), "channel");
  job.out = dir / "asked";
  job.recipe.group_size = 128;
  const auto refused = quantize(job);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
}

// Methods choose codes or what they are rounded to: into plain floats there is nothing to choose.
TEST(Methods, PlainFloatsInADirectoryTakeNoneButRounding) {
  const TempDir dir;
  for (const char* type : {"f32", "f16", "bf16"}) {
    for (const char* method : {"gptq", "awq", "smoothquant"}) {
      QuantizeJob job = job_of(golden("llama3"), dir / "out", type);
      job.recipe.method = method;
      job.samples = {{1, 2, 3, 4}, {5, 6, 7, 8}};
      const auto refused = quantize(job);
      ASSERT_FALSE(refused) << type << " " << method;
      EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
      EXPECT_THAT(refused.error().message, ::testing::HasSubstr(method));
    }
  }
}

// 48 outputs of 3 bits are no whole words of the gptq layout, the default of int3.
TEST(Layout, ThatOfTheTypeOrOneThatFits) {
  const TempDir dir;
  QuantizeJob job = job_of(golden("llama3"), dir / "fits", "int3");
  const auto done = quantize(job);
  ASSERT_TRUE(done) << done.error().message;
  const auto written = open_weights(dir / "fits").value();
  EXPECT_EQ(written->config().at("quantization_config").at("quant_method"), "compressed-tensors");
  EXPECT_LT(relative(logits_of(golden("llama3")), logits_of(dir / "fits")), 0.8);
  job.out = dir / "asked";
  job.recipe.layout = "gptq";
  const auto refused = quantize(job);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
}

// BitNet in a directory is packed or, as master weights, rounded at load; a GGUF file holds -1, 0
// and 1 times the scale, and both round activations.
TEST(Formats, BitNetKeepsTheLogits) {
  const TempDir dir;
  for (const std::string name : {"bitnet", "bitnet_packed"}) {
    const Rows original = logits_of(golden(name));
    const fs::path gguf = dir / (name + ".gguf"), back = dir / (name + "-hf"),
                   again = dir / (name + "-again");
    const auto there = quantize(job_of(golden(name), gguf, "f32"));
    ASSERT_TRUE(there) << name << ": " << there.error().message;
    EXPECT_LT(max_difference(original, logits_of(gguf)), 2e-4) << name;
    const auto returned = quantize(job_of(gguf, back, "ternary"));
    ASSERT_TRUE(returned) << name << ": " << returned.error().message;
    EXPECT_LT(max_difference(original, logits_of(back)), 2e-4) << name;
    const auto source = open_weights(back).value();
    EXPECT_EQ(source->config().at("quantization_config").at("quant_method"), "bitnet");
    EXPECT_EQ(source->find("model.layers.0.self_attn.q_proj.weight")->type, QuantType::kU8);
    ASSERT_TRUE(quantize(job_of(back, again, "ternary")));
    EXPECT_LT(max_difference(original, logits_of(again)), 2e-4) << name;
    // Plain tensors would compute without rounding activations.
    const auto refused = quantize(job_of(gguf, dir / (name + "-plain"), "f32"));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(refused.error().message, ::testing::HasSubstr("ternary"));
    EXPECT_FALSE(fs::exists(dir / (name + "-plain")));
  }
}

// The first BitNet has SiLU: another name in GGUF, the same class in a directory.
TEST(Formats, BitNetWithSiluKeepsItsName) {
  const TempDir dir;
  fs::copy(golden("bitnet_packed"), dir / "silu", fs::copy_options::recursive);
  auto config = nlohmann::json::parse(std::ifstream(golden("bitnet_packed") / "config.json"));
  config["hidden_act"] = "silu";
  std::ofstream(dir / "silu" / "config.json") << config.dump();
  const Rows original = logits_of(dir / "silu");
  ASSERT_TRUE(quantize(job_of(dir / "silu", dir / "a.gguf", "f32")));
  EXPECT_EQ(open_weights(dir / "a.gguf").value()->config().at("general.architecture"), "bitnet");
  EXPECT_LT(max_difference(original, logits_of(dir / "a.gguf")), 2e-4);
  ASSERT_TRUE(quantize(job_of(dir / "a.gguf", dir / "b", "ternary")));
  EXPECT_LT(max_difference(original, logits_of(dir / "b")), 2e-4);
}

// GPT-2's layers are stored transposed; quantized ones are not.
TEST(Formats, Gpt2InFewBits) {
  const TempDir dir;
  const Rows original = logits_of(golden("gpt2"));
  for (const char* type : {"int8", "nf4"}) {
    QuantizeJob job = job_of(golden("gpt2"), dir / type, type);
    job.recipe.layout = job.recipe.type == "int8" ? "gptq" : "";
    job.recipe.group_size = 32;
    const auto report = quantize(job);
    ASSERT_TRUE(report) << type << ": " << report.error().message;
    EXPECT_LT(relative(original, logits_of(job.out)), job.recipe.type == "int8" ? 0.02 : 0.3)
        << type;
  }
  QuantizeJob gptq = job_of(golden("gpt2"), dir / "gptq", "int4");
  gptq.recipe.method = "gptq";
  gptq.recipe.group_size = 32;
  const std::vector<int> tokens = some_tokens();
  gptq.samples.assign(4, {tokens.begin(), tokens.end()});
  const auto report = quantize(gptq);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_LT(relative(original, logits_of(gptq.out)), 0.3);
  const auto refused = quantize(job_of(golden("gpt2"), dir / "w8a8", "w8a8"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
}

// 48 and 32 inputs in blocks of 64: blocks of bitsandbytes go on from one row to the next.
TEST(Formats, Nf4BlocksCrossRows) {
  const TempDir dir;
  QuantizeJob job = job_of(golden("llama3"), dir / "crossing", "nf4");
  job.recipe.group_size = 64;
  const auto report = quantize(job);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_LT(relative(logits_of(golden("llama3")), logits_of(job.out)), 0.4);
  // The values are those of the flat weight in blocks of 64.
  const auto plain = open_weights(golden("llama3")).value(), made = open_weights(job.out).value();
  const auto layers = open_prequantized(*made).value();
  const std::string name = "model.layers.0.mlp.down_proj";
  const auto layer = layers->find_linear(name).value().value();
  const TensorInfo* tensor = plain->find(name + ".weight");
  std::vector<float> values(static_cast<size_t>(tensor->n_elements())), read(values.size());
  dequantize_row(tensor->type, tensor->bytes.data(), values.data(), tensor->n_elements());
  layer.dequantize(0, layer.rows, read.data());
  ASSERT_NE(layer.cols % 64, 0);
  for (size_t first = 0; first < values.size(); first += 64) {
    float largest = 0;
    for (size_t i = first; i < std::min(first + 64, values.size()); ++i)
      largest = std::max(largest, std::fabs(values[i]));
    for (size_t i = first; i < std::min(first + 64, values.size()); ++i)
      ASSERT_NEAR(read[i], values[i], largest * 0.16) << i;  // half the widest step of NF4
  }
}

// Experts and the vocabulary projection in few bits.
TEST(Formats, MixturesOfExpertsWithAQuantizedHead) {
  const TempDir dir;
  for (const std::string name : {"mixtral", "qwen3_moe"}) {
    const Rows original = logits_of(golden(name));
    const fs::path gguf = dir / (name + ".gguf");
    ASSERT_TRUE(quantize(job_of(golden(name), gguf, "q8_0")));
    const auto source = open_weights(gguf).value();
    for (const char* tensor :
         {"output.weight", "blk.1.ffn_gate_exps.weight", "blk.0.attn_q.weight"}) {
      ASSERT_NE(source->find(tensor), nullptr) << name << " " << tensor;
      EXPECT_EQ(source->find(tensor)->type, QuantType::kQ8_0) << name << " " << tensor;
    }
    ASSERT_NE(source->find("blk.0.ffn_gate_inp.weight"), nullptr);
    EXPECT_EQ(source->find("blk.0.ffn_gate_inp.weight")->type, QuantType::kF32) << name;
    EXPECT_LT(relative(original, logits_of(gguf)), 0.1) << name;
    for (const char* layout : {"gptq", "compressed-tensors"}) {
      QuantizeJob job = job_of(golden(name), dir / (name + layout), "int8");
      job.recipe.layout = layout;
      job.recipe.group_size = 16;
      ASSERT_TRUE(quantize(job)) << name << " " << layout;
      EXPECT_LT(relative(original, logits_of(job.out)), 0.1) << name << " " << layout;
      // The router stays as it is, and the configuration says so.
      const auto written = open_weights(job.out).value();
      const std::string config = written->config().at("quantization_config").dump();
      EXPECT_THAT(config, ::testing::HasSubstr("gate")) << layout;
    }
  }
}

// A checkpoint that differs from golden llama3 in one value.
void damage(const fs::path& from, const fs::path& to, const std::string& tensor, float value) {
  fs::copy(from, to, fs::copy_options::recursive);
  std::fstream file(to / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), 8);
  std::string text(length, ' ');
  file.read(text.data(), static_cast<std::streamsize>(length));
  const auto header = nlohmann::json::parse(text);
  const auto& entry = header.at(tensor);
  const auto offset = 8 + length + entry.at("data_offsets").at(0).get<uint64_t>();
  file.seekp(static_cast<std::streamoff>(offset));
  uint32_t bits = 0;
  std::memcpy(&bits, &value, 4);
  if (entry.at("dtype") == "F32") {
    file.write(reinterpret_cast<const char*>(&bits), 4);
  } else {
    ASSERT_EQ(entry.at("dtype"), "BF16");
    bits >>= 16;
    file.write(reinterpret_cast<const char*>(&bits), 2);
  }
}

TEST(QuantizeErrors, NotFiniteWeightsAreNamed) {
  const TempDir dir;
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  for (const float value : {NAN, INFINITY}) {
    const fs::path in = dir / (std::isnan(value) ? "nan" : "inf");
    damage(golden("llama3"), in, name, value);
    const auto report = quantize(job_of(in, dir / "x.gguf", "q8_0"));
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(report.error().message, ::testing::HasSubstr(name));
    EXPECT_FALSE(fs::exists(dir / "x.gguf"));
  }
}

// A model with parts that its configuration does not say of is refused as it is by loading, not
// written without them.
TEST(QuantizeErrors, TensorsOfAnotherArchitectureAreNamedAsByLoading) {
  const TempDir dir;
  const fs::path in = dir / "in";
  fs::copy(golden("qwen3"), in, fs::copy_options::recursive);
  write_config(in, {{"model_type", "llama"}, {"architectures", {"LlamaForCausalLM"}}});
  const auto ops = make_ops("cpu", {.n_threads = 1}).value();
  const auto source = open_weights(in).value();
  const auto model = Model::load(*source, *ops);
  ASSERT_FALSE(model);
  for (const char* out : {"x.gguf", "x"}) {
    const auto report = quantize(job_of(in, dir / out, "f16"));
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(report.error().message, model.error().message);
    EXPECT_THAT(report.error().message, ::testing::HasSubstr("k_norm.weight [12] is not part of"));
    EXPECT_FALSE(fs::exists(dir / out));
  }
}

TEST(QuantizeErrors, WrongRecipesSayWhatWouldBeRight) {
  const TempDir dir;
  const auto message = [&](const std::string& out, auto change) {
    QuantizeJob job = job_of(golden("llama3"), dir / out, "int4");
    change(job.recipe);
    const auto report = quantize(job);
    EXPECT_FALSE(report);
    return report ? std::string() : report.error().message;
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message("x.gguf", [](auto&) {}), HasSubstr("q4_k_m"));
  EXPECT_THAT(message("x", [](auto& r) { r.type = "q4_k"; }), HasSubstr(".gguf"));
  EXPECT_THAT(message("x", [](auto& r) { r.type = "int9"; }), HasSubstr("int8"));
  EXPECT_THAT(message("x", [](auto& r) { r.method = "best"; }), HasSubstr("smoothquant"));
  EXPECT_THAT(message("x", [](auto& r) { r.method = "gptq"; }), HasSubstr("calibration"));
  EXPECT_THAT(message("x", [](auto& r) { r.group_size = 48; }), HasSubstr("divisor"));
  EXPECT_THAT(message("x", [](auto& r) { r.type = "nf4", r.layout = "awq"; }), HasSubstr("layout"));
  EXPECT_THAT(message("x", [](auto& r) { r.method = "smoothquant"; }), HasSubstr("w8a8"));
}

// Stopped after some layers, the same command makes the same bytes as one run, and does not do the
// finished layers again.
TEST(QuantizeResume, GoesOnWhereItStopped) {
  const TempDir dir;
  for (const std::string method : {"rtn", "gptq", "awq", "smoothquant"}) {
    const bool smooth = method == "smoothquant";
    const auto job_to = [&](const std::string& name) {
      QuantizeJob job = job_of(golden("llama3"), dir / (method + name), smooth ? "w8a8" : "int4");
      job.recipe.method = method;
      if (!smooth) {
        job.recipe.layout = "gptq";
        job.recipe.group_size = 16;
      }
      if (method != "rtn") {
        const std::vector<int> tokens = some_tokens();
        job.samples.assign(4, {tokens.begin(), tokens.end()});
      }
      return job;
    };
    ASSERT_TRUE(quantize(job_to("whole")));
    QuantizeJob job = job_to("parts");
    int asked = 0;
    job.should_stop = [&] { return ++asked > 4; };  // embedding, norm, head (if any), first layer
    const auto stopped = quantize(job);
    ASSERT_FALSE(stopped);
    EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
    EXPECT_FALSE(fs::exists(job.out));
    job.should_stop = {};
    const auto report = quantize(job);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_GE(report->n_resumed, 3);
    const auto bytes = [&](const fs::path& path) {
      std::ifstream file(path / "model.safetensors", std::ios::binary);
      return std::string(std::istreambuf_iterator<char>(file), {});
    };
    EXPECT_EQ(bytes(job.out), bytes(job_to("whole").out)) << method;
    EXPECT_FALSE(fs::exists(job.out.string() + ".parts"));
  }
}

std::vector<std::vector<TokenId>> calibration() {
  std::vector<std::vector<TokenId>> samples;
  uint32_t state = 1;
  for (int s = 0; s < 8; ++s) {
    auto& sample = samples.emplace_back();
    for (int i = 0; i < 48; ++i) {
      state = state * 1664525u + 1013904223u;
      sample.push_back(static_cast<TokenId>(state >> 16) % 60);
    }
  }
  return samples;
}

// Methods that only move scales around compute the same function when nothing is rounded hard: 8
// bits per group.
TEST(QuantizeMethods, ScalesAreFoldedExactly) {
  for (const char* model : {"llama3", "qwen2", "mistral", "mixtral", "gemma3"}) {
    const TempDir dir;
    QuantizeJob job = job_of(golden(model), dir / "out", "w8a8");
    job.recipe.method = "smoothquant";
    job.recipe.smoothing = 0.5;
    job.samples = calibration();
    const auto report = quantize(job);
    ASSERT_TRUE(report) << model << ": " << report.error().message;
    EXPECT_LT(relative(logits_of(job.in), logits_of(job.out)), 0.05) << model;
  }
}

TEST(QuantizeMethods, LatentsAreNotCalibrated) {
  const TempDir dir;
  for (const char* method : {"gptq", "awq"}) {
    QuantizeJob job = job_of(golden("deepseek_v3"), dir / "a.gguf", "q4_0");
    job.recipe.method = method;
    job.samples = calibration();
    const auto there = quantize(job);
    ASSERT_FALSE(there) << method;
    EXPECT_EQ(there.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(there.error().message, ::testing::HasSubstr("latent"));
    EXPECT_FALSE(fs::exists(dir / "a.gguf"));
  }
}

TEST(QuantizeMethods, EveryMethodRunsAndAgreesWithTheOriginal) {
  const TempDir dir;
  struct Case {
    const char *method, *type, *out;
    double most;
  };
  for (const Case& c :
       {Case{"gptq", "int8", "gptq8", 0.02}, Case{"gptq", "int4", "gptq4", 0.3},
        Case{"awq", "int4", "awq4", 0.3}, Case{"gptq", "q4_0", "q4.gguf", 0.5},
        Case{"awq", "q8_0", "q8.gguf", 0.06}, Case{"smoothquant", "w8a8-static", "static", 0.1},
        Case{"rtn", "q4_0", "importance.gguf", 0.5}}) {
    QuantizeJob job = job_of(golden("llama3"), dir / c.out, c.type);
    job.recipe.method = c.method;
    if (std::string(c.type).starts_with("int")) job.recipe.group_size = 16;
    job.samples = calibration();
    const auto report = quantize(job);
    ASSERT_TRUE(report) << c.out << ": " << report.error().message;
    EXPECT_LT(relative(logits_of(job.in), logits_of(job.out)), c.most) << c.out;
  }
}

TEST(Importance, IsWrittenReadAndUsed) {
  const TempDir dir;
  QuantizeJob job;
  job.in = golden("mixtral");
  job.samples = calibration();
  job.threads = 2;
  const auto measured = measure_importance(job);
  ASSERT_TRUE(measured) << measured.error().message;
  ASSERT_TRUE(write_imatrix(*measured, dir / "i.gguf"));
  const auto read = read_imatrix(dir / "i.gguf");
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->rows().size(), measured->rows().size());
  for (const auto& [key, value] : measured->rows()) {
    const auto* other = read->find(key.first, key.second);
    ASSERT_NE(other, nullptr) << key.first;
    for (size_t i = 0; i < value.first.size(); ++i)
      EXPECT_NEAR((*other)[i], value.first[i], 1e-5 * std::abs(value.first[i]) + 1e-9);
  }
  QuantizeJob with = job_of(job.in, dir / "with.gguf", "q4_0"),
              without = job_of(job.in, dir / "without.gguf", "q4_0");
  with.imatrix = dir / "i.gguf";
  ASSERT_TRUE(quantize(with));
  ASSERT_TRUE(quantize(without));
  EXPECT_GT(relative(logits_of(with.out), logits_of(without.out)), 0);
  EXPECT_FALSE(read_imatrix(with.out));
}

TEST(Evaluate, TheOriginalAgreesWithItself) {
  const TempDir dir;
  const auto made = quantize(job_of(golden("llama3"), dir / "q4.gguf", "q4_0"));
  ASSERT_TRUE(made);
  EvaluateOptions options;
  options.threads = 2;
  const auto result =
      evaluate(golden("llama3"), {golden("llama3"), dir / "q4.gguf"}, calibration(), options);
  ASSERT_TRUE(result) << result.error().message;
  const Agreement &same = result->variants[0], &other = result->variants[1];
  EXPECT_EQ(same.n_tokens, 8 * 47);
  EXPECT_NEAR(same.kl, 0, 1e-9);
  EXPECT_EQ(same.top1, 1);
  EXPECT_EQ(same.top5, 1);
  EXPECT_EQ(same.nll, result->reference.nll);
  EXPECT_GT(other.kl, 1e-6);
  EXPECT_LT(other.top5, 1);
  ASSERT_FALSE(result->layer_errors[1].empty());
  EXPECT_GT(result->layer_errors[1][0].relative, result->layer_errors[1].back().relative);
  EXPECT_LT(result->layer_errors[0][0].relative, 1e-6);
}

}  // namespace
}  // namespace penstock
