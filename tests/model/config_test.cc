// Configurations: known shapes, hostile files, and that messages say what was wrong.
#include "model/arch/names.h"
#include "model/arch/read_config.h"
#include "model/arch/rope.h"
#include "model/load/load_weights.h"
#include "model/next_token_layer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

#include "model/runner.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::filesystem::path kModels = tests_dir() / "golden" / "models";
const std::filesystem::path kEncoders = tests_dir() / "golden" / "encoders";

// A checkpoint with its configuration or tensors changed.
class Changed final : public WeightSource {
 public:
  explicit Changed(const std::filesystem::path& path)
      : base_(open_weights(path).value()), json_(base_->config()) {
    tensors_.assign(base_->tensors().begin(), base_->tensors().end());
  }
  Naming naming() const override { return base_->naming(); }
  const std::filesystem::path& path() const override { return base_->path(); }
  const json& config() const override { return json_; }
  const json& generation_config() const override { return base_->generation_config(); }
  std::span<const TensorInfo> tensors() const override { return tensors_; }
  const TensorInfo* find(std::string_view name) const override {
    const auto found = std::ranges::find(tensors_, name, &TensorInfo::name);
    return found == tensors_.end() ? nullptr : &*found;
  }
  std::optional<std::string> side_file(std::string_view) const override { return {}; }
  void drop(const TensorInfo&) const override {}

  json& json_config() { return json_; }
  std::vector<TensorInfo>& tensor_list() { return tensors_; }

 private:
  std::shared_ptr<const WeightSource> base_;  // copies share it
  json json_;
  std::vector<TensorInfo> tensors_;
};

// Loads; when that works, runs three tokens. Returns the error's message or "".
std::string try_model(const WeightSource& source, Ops& ops) {
  const auto model = Model::load(source, ops);
  if (!model) return model.error().message;
  testing::Runner runner(**model, ops, 4);
  const std::vector<int> tokens = {1, 2, 3};
  if ((*model)->config().max_seq_len >= 3) runner.run(0, tokens);
  return "";
}

std::string error_of(const WeightSource& source) {
  const auto config = read_config(source);
  return config ? "" : config.error().message;
}

class Hostile : public ::testing::TestWithParam<std::string> {
 protected:
  static std::vector<std::filesystem::path> forms() {
    std::vector<std::filesystem::path> result = {kModels / GetParam()};
    if (std::filesystem::exists(kModels / GetParam() / "model.gguf"))
      result.push_back(kModels / GetParam() / "model.gguf");
    return result;
  }
  std::unique_ptr<Ops> ops_ = make_ops("cpu", {.n_threads = 1}).value();
};

// Every value of every key (and of rope's own keys) replaced by nonsense: an error or a model that
// runs. Each key of each model has a third of the kinds (thorough: all); what one model's key lacks,
// the same key of others has.
TEST_P(Hostile, ConfigValues) {
  const json nonsense[] = {
      nullptr,      0,   -1,   1,    3,  1 << 30,       int64_t{1} << 40,      -1e300,        1e300,
      std::nan(""), 0.5, true, "xx", "", json::array(), json::array({1, "x"}), json::object()};
  int n_errors = 0;
  const size_t step = thorough() ? 1 : 3;
  size_t first = std::hash<std::string>()(GetParam());  // another third with every key
  const auto attempt = [&](const Changed& original, const auto& value_of) {
    for (size_t i = first++ % step; i < std::size(nonsense); i += step) {
      Changed source = original;
      value_of(source.json_config()) = nonsense[i];
      n_errors += try_model(source, *ops_).empty() ? 0 : 1;
    }
  };
  for (const auto& path : forms()) {
    const Changed original(path);
    for (const auto& [key, value] : original.config().items()) {
      attempt(original, [&](json& config) -> json& { return config[key]; });
      if (!value.is_object()) continue;
      for (const auto& [inner, unused] : value.items())
        attempt(original, [&](json& config) -> json& { return config[key][inner]; });
    }
  }
  EXPECT_GT(n_errors, thorough() ? 50 : 10);
}

// A GGUF file's count of types is that of its tensor, and what makes predictions is not an
// encoder's.
bool is_not_read(const std::string& name, const ModelConfig& config) {
  const int n_layers = config.n_layers;
  if (!config.output.has_head && (is_of_a_head(name) || name == "token_types.weight")) return true;
  if (is_of_another_modality(name, "")) return true;
  if (config.experts.group_size > 0 && name.ends_with("mlp.expert_bias")) return true;
  // llama.cpp's RWKV 7: the first layer has no values before it
  for (const char* first : {"v0", "v1", "v2"})
    if (name == fmt::format("blk.0.time_mix_{}.weight", first)) return true;
  for (int i = 0; i < std::max(1, config.n_next_token_layers); ++i)
    if (name.starts_with(fmt::format("blk.{}.", n_layers + i)) ||
        name.starts_with(fmt::format("model.layers.{}.", n_layers + i)))
      return true;
  return is_ignorable_tensor(name);
}

// Every tensor missing, of another shape, or of a type that is no weight.
TEST_P(Hostile, Tensors) {
  for (const auto& path : forms()) {
    const Changed original(path);
    const ModelConfig config = read_config(original).value();
    for (size_t i = 0; i < original.tensors().size(); ++i) {
      const std::string name = original.tensors()[i].name;
      if (is_not_read(name, config)) continue;
      Changed missing = original, longer = original, flat = original, integer = original;
      missing.tensor_list().erase(missing.tensor_list().begin() + static_cast<long>(i));
      std::vector<int64_t>& shape = longer.tensor_list()[i].shape;
      if (shape.empty()) shape = {1};  // a number
      shape[0] += 1;
      flat.tensor_list()[i].shape = {flat.tensor_list()[i].n_elements(), 1, 1};
      integer.tensor_list()[i].type = QuantType::kI64;
      // Optional tensors: biases, rope factors, an untied output in a file that has none is a tied
      // one.
      const bool optional =
          name.ends_with(".bias") || name.starts_with("rope_f") || name == "output.weight" ||
          (name == "lm_head.weight" && original.config().value("tie_word_embeddings", false));
      EXPECT_TRUE(optional || !try_model(missing, *ops_).empty()) << name;
      // not read: the longest sequence needs the long ones
      if (!name.starts_with("rope_factors_short")) {
        EXPECT_NE(try_model(flat, *ops_), "") << name;
        EXPECT_THAT(try_model(longer, *ops_), HasSubstr("expected")) << name;
        if (original.tensors()[i].type != QuantType::kI64) {
          EXPECT_THAT(try_model(integer, *ops_), HasSubstr(name.substr(0, name.rfind('.'))))
              << name;
        }
      }
    }
  }
}

TEST(NextTokenLayers, OfMultimodalCheckpointsLoad) {
  const auto ops = make_ops("cpu", {.n_threads = 1}).value();
  for (const char* name : {"qwen3_5_moe", "qwen3_5_moe/model.gguf"}) {
    const Changed source(kModels / name);
    const auto model = Model::load(source, *ops).value();
    const auto layer = NextTokenLayer::load(source, *model, *ops);
    EXPECT_TRUE(layer) << (layer ? "" : layer.error().message);
  }
}

// A next-token layer's tensors, each missing, of another shape, or of a type that is no weight.
TEST(NextTokenLayers, RefuseWhatDoesNotFit) {
  const auto ops = make_ops("cpu", {.n_threads = 1}).value();
  for (const char* name : {"deepseek_v3_mtp", "glm4_moe_mtp", "glm4_moe_mtp/model.gguf",
                           "qwen3_5_text_mtp", "qwen3_next_mtp", "qwen3_next_mtp/model.gguf",
                           "glm4_moe_mtp2", "step3p5_mtp2", "step3p5_mtp2/model.gguf"}) {
    const Changed original(kModels / name);
    const auto model = Model::load(original, *ops).value();
    const ModelConfig& config = model->config();
    const int n_layers = NextTokenLayer::count(original, *model, *ops);
    ASSERT_EQ(n_layers, std::string_view(name).find("mtp2") == std::string_view::npos ? 1 : 2)
        << name;
    const auto error_of = [&](const Changed& source) {
      for (int i = 0; i < n_layers; ++i) {
        const auto layer = NextTokenLayer::load(source, *model, *ops, i);
        if (!layer) return layer.error().message;
      }
      return std::string();
    };
    ASSERT_EQ(error_of(original), "") << name;
    int n_tensors = 0;
    for (size_t i = 0; i < original.tensors().size(); ++i) {
      const std::string tensor = original.tensors()[i].name;
      if (!is_not_read(tensor, config)) continue;
      ++n_tensors;
      Changed missing = original, longer = original, integer = original;
      missing.tensor_list().erase(missing.tensor_list().begin() + static_cast<long>(i));
      longer.tensor_list()[i].shape[0] += 1;
      integer.tensor_list()[i].type = QuantType::kI64;
      // Without them the target's take their place.
      const bool optional =
          tensor.find("embed_tokens") != std::string::npos || tensor.ends_with("head.weight") ||
          tensor.ends_with("head_norm.weight") || tensor.ends_with(".bias") ||
          tensor.find("shared_head.output") != std::string::npos || tensor.starts_with("rope_f") ||
          tensor.find("shared_head_head") != std::string::npos;
      EXPECT_TRUE(optional || !error_of(missing).empty()) << tensor;
      EXPECT_THAT(error_of(longer), HasSubstr("expected")) << tensor;
      EXPECT_THAT(error_of(integer), HasSubstr("expected")) << tensor;
    }
    EXPECT_GT(n_tensors, 10) << name;
  }
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kModels))
    names.push_back(entry.path().filename().string());
  for (const auto& entry : std::filesystem::directory_iterator(kModels / ".." / "encoders"))
    names.push_back("../encoders/" + entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Tiny, Hostile, ::testing::ValuesIn(model_names()), [](const auto& info) {
  return info.param.substr(info.param.rfind('/') + 1);
});

// The text model of a multimodal checkpoint: nested settings, longer names, tensors of its other
// parts beside.
TEST(Config, TheTextPartOfAMultimodalCheckpointLoads) {
  const auto ops = make_ops("cpu", {.n_threads = 1}).value();
  for (const char* prefix : {"model.language_model.", "language_model.model."}) {
    Changed source(kModels / "qwen3");
    source.json_config() = {
        {"model_type", "some_vl"}, {"text_config", source.config()}, {"vision_config", {}}};
    for (TensorInfo& tensor : source.tensor_list()) {
      if (tensor.name.starts_with("model.")) tensor.name = prefix + tensor.name.substr(6);
      if (tensor.name == "lm_head.weight" && prefix[0] == 'l')
        tensor.name = "language_model.lm_head.weight";
    }
    TensorInfo eye = source.tensors()[0];
    eye.name = "model.visual.blocks.0.norm1.weight";
    source.tensor_list().push_back(eye);
    EXPECT_EQ(try_model(source, *ops), "") << prefix;
  }
}

TEST(Config, WhatIsNotUnderstoodIsRefused) {
  const auto with = [](const std::string& model, const char* key, const json& value) {
    Changed source(kModels / model);
    source.json_config()[key] = value;
    return error_of(source);
  };
  EXPECT_THAT(with("llama2", "logit_scale", 0.5),
              AllOf(HasSubstr("logit_scale"), HasSubstr("not understood")));
  EXPECT_EQ(with("llama2", "logit_scale", 1.0), "");
  EXPECT_EQ(with("cohere", "logit_scale", 0.5), "");
  EXPECT_THAT(with("llama2", "layer_types", {"full_attention", "linear_attention"}),
              HasSubstr("layer_types"));
  EXPECT_EQ(with("llama2", "layer_types", {"full_attention", "full_attention"}), "");
  EXPECT_THAT(with("minimax_m2", "scoring_func", "softmax"), HasSubstr("expected sigmoid"));
  EXPECT_THAT(with("minimax_m2", "shared_intermediate_size", 8),
              HasSubstr("shared_intermediate_size"));
  EXPECT_THAT(with("glm4_moe_lite", "mlp_layer_types", {"dense", "sparse", "wide"}),
              HasSubstr("\"wide\""));
  EXPECT_THAT(with("deepseek_v2", "topk_method", "noaux_tc"), HasSubstr("'noaux_tc'"));
  EXPECT_THAT(with("deepseek_v2", "scoring_func", "sigmoid"), HasSubstr("expected softmax"));
  EXPECT_THAT(with("deepseek_v2", "norm_topk_prob", true), HasSubstr("norm_topk_prob"));
  EXPECT_THAT(with("deepseek_v3", "scoring_func", "softmax"), HasSubstr("expected sigmoid"));
  EXPECT_THAT(with("deepseek_v3", "topk_method", "greedy"), HasSubstr("expected noaux_tc"));
  EXPECT_EQ(with("deepseek_v3/model.gguf", "deepseek2.expert_gating_func", nullptr), "");
  EXPECT_THAT(with("deepseek_v3", "rope_parameters", {{"rope_type", "proportional"}}),
              HasSubstr("proportional are not known beside latents"));
  EXPECT_EQ(with("llama2", "num_nextn_predict_layers", 5), "");
  EXPECT_THAT(with("phimoe", "num_experts_per_tok", 3), HasSubstr("expected 2, got 3"));
  EXPECT_THAT(with("llama2/model.gguf", "llama.attention.clamp_kqv", 3.0), HasSubstr("clamp_kqv"));
  EXPECT_THAT(with("llama2/model.gguf", "general.architecture", "lama"),
              HasSubstr("nearest: llama"));
}

// As llama.cpp: a factor without a type is linear, also under the name of the files of 2023.
TEST(Config, AFactorOfRopeWithoutATypeIsLinear) {
  const auto frequency = [](const json& settings) {
    Changed gguf(kModels / "llama2" / "model.gguf");
    gguf.json_config().update(settings);
    EXPECT_EQ(error_of(gguf), "");
    return rope_frequencies(read_config(gguf)->ropes[0], false)[0];
  };
  EXPECT_EQ(frequency({{"llama.rope.scaling.factor", 4.0}}), 0.25f);
  EXPECT_EQ(frequency({{"llama.rope.scale_linear", 2.0}}), 0.5f);
  EXPECT_EQ(frequency({{"llama.rope.scale_linear", 2.0}, {"llama.rope.scaling.factor", 8.0}}),
            0.125f);
  EXPECT_EQ(frequency({{"llama.rope.scaling.factor", 4.0}, {"llama.rope.scaling.type", "none"}}),
            1.0f);
  EXPECT_EQ(frequency({{"llama.rope.scaling.factor", 0.0}}), 1.0f);
}

// What is added to a newer file under the older name counts, and the theta that it does not say stays.
TEST(Config, RopeScalingCountsBesideRopeParameters) {
  Changed both(kModels / "qwen2");
  both.json_config()["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(error_of(both), "");
  const RopeConfig rope = read_config(both)->ropes[0];
  EXPECT_EQ(rope.factor, 4.0f);
  EXPECT_EQ(rope.theta, 1e6f);
  both.json_config()["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  EXPECT_EQ(read_config(both)->ropes[0].factor, 2.0f);
  both.json_config()["rope_scaling"] = json::object();
  EXPECT_EQ(read_config(both)->ropes[0].factor, 1.0f);
  both.json_config()["rope_scaling"] = nullptr;
  EXPECT_EQ(read_config(both)->ropes[0].factor, 1.0f);
  // Kinds of layers keep what each of them has.
  Changed kinds(kModels / "gemma3");
  const std::vector<RopeConfig> own = read_config(kinds)->ropes;
  kinds.json_config()["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(error_of(kinds), "");
  const std::vector<RopeConfig> ropes = read_config(kinds)->ropes;
  ASSERT_EQ(ropes.size(), own.size());
  for (size_t i = 0; i < own.size(); ++i) {
    EXPECT_EQ(ropes[i].theta, own[i].theta) << i;
    EXPECT_EQ(ropes[i].factor, own[i].factor) << i;
  }
}

// Whether tokens see later ones: as config.json says, or the name of the class; GGUF has a key.
TEST(Config, DecodersWhoseTokensSeeTheWholeText) {
  const auto changed = [](const char* model, const json& settings) {
    Changed source(kModels / model);
    source.json_config().update(settings);
    return source;
  };
  for (const auto& [model, settings] :
       {std::pair("qwen2", json{{"is_causal", false}}),
        std::pair("llama3", json{{"model_type", "llama_bidirec"},
                                 {"architectures", {"LlamaBidirectionalModel"}}}),
        std::pair("mistral", json{{"architectures", {"MistralBidirectionalModel"}}}),
        std::pair("qwen2/model.gguf", json{{"qwen2.attention.causal", false}})}) {
    const auto config = read_config(changed(model, settings));
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_FALSE(config->attention.causal) << model;
    EXPECT_FALSE(config->output.has_head) << model;
  }
  EXPECT_TRUE(read_config(changed("qwen2", {{"is_causal", true}}))->attention.causal);
  EXPECT_TRUE(read_config(changed("qwen2/model.gguf", {{"qwen2.attention.causal", true}}))
                  ->attention.causal);
  for (const char* model : {"lfm2", "deepseek_v3", "qwen3_next"})
    EXPECT_THAT(error_of(changed(model, {{"is_causal", false}})), HasSubstr("see earlier tokens"))
        << model;
  EXPECT_THAT(error_of(changed("lfm2", {{"architectures", {"Lfm2BidirectionalModel"}}})),
              HasSubstr("is_causal"));
}

TEST(Config, ScalesOfCachesAreNoPartOfTheModel) {
  for (const char* name : {"model.layers.0.self_attn.k_scale", "model.layers.1.attn.v_scale"})
    EXPECT_TRUE(is_ignorable_tensor(name)) << name;
  EXPECT_FALSE(is_ignorable_tensor("model.layers.0.mlp.k_scale"));
}

TEST(Config, WhatIsWrittenInOlderOrOtherWordsIsReadAlike) {
  Changed older(kModels / "ministral3");
  const float beta = read_config(older)->attention.query_scale.beta;
  older.json_config()["rope_scaling"] = older.json_config()["rope_parameters"];
  older.json_config().erase("rope_parameters");
  EXPECT_EQ(read_config(older)->attention.query_scale.beta, beta);
  EXPECT_GT(beta, 0.0f);

  Changed share(kModels / "mistral4");
  json& ropes = share.json_config()["rope_parameters"];
  share.json_config()["partial_rotary_factor"] = ropes["partial_rotary_factor"];
  EXPECT_EQ(error_of(share), "");
  EXPECT_EQ(read_config(share)->ropes[0].rotary_dim, 8);
  share.json_config()["partial_rotary_factor"] = 0.5;
  EXPECT_THAT(error_of(share), HasSubstr("partial_rotary_factor"));

  Changed wide(kModels / "gemma4");  // with ten layers or more transformers writes "05"
  json& by_layer = wide.json_config()["per_layer_config"];
  for (const char* layer : {"0", "2", "5"}) {
    by_layer[std::string("0") + layer] = by_layer[layer];
    by_layer.erase(layer);
  }
  EXPECT_EQ(read_config(wide)->head_dim_of(5), 16);
  EXPECT_EQ(error_of(wide), "");
  by_layer["6"] = by_layer["05"];
  EXPECT_THAT(error_of(wide), HasSubstr("per_layer_config: expected a layer in 0..5, got '6'"));
}

TEST(Config, LettersBesideAListOfLayersAreNotRead) {
  Changed source(kModels / "exaone4");
  source.json_config()["sliding_window_pattern"] = "LLLG";
  json types = json::array();
  for (int i = 0; i < read_config(source)->n_layers; ++i)
    types.push_back(i % 2 == 0 ? "sliding_attention" : "full_attention");
  source.json_config()["layer_types"] = types;
  const ModelConfig listed = read_config(source).value();
  for (int i = 0; i < listed.n_layers; ++i)
    EXPECT_EQ(listed.layers[static_cast<size_t>(i)].window > 0, i % 2 == 0) << i;
}

TEST(Config, HunyuanSaysThatItHasNorms) {
  Changed source(kModels / "hunyuan");
  source.json_config().update({{"use_qk_norm", true}, {"num_experts", 1}, {"use_cla", false}});
  EXPECT_EQ(read_config(source)->attention.qk_norm, QkNorm::kHead);
  source.json_config()["use_cla"] = true;
  EXPECT_THAT(error_of(source), HasSubstr("use_cla: expected false"));
  source.json_config().update({{"use_qk_norm", false}, {"use_cla", false}});
  EXPECT_EQ(read_config(source)->attention.qk_norm, QkNorm::kNone);
}

// Between a high and a low factor that are equal there is no ramp.
TEST(Config, Llama3sFactorsMayBeEqual) {
  Changed source(kModels / "llama3");
  json& rope = source.json_config()["rope_parameters"];
  rope["low_freq_factor"] = rope["high_freq_factor"] = 1.0;
  const RopeConfig scaled = read_config(source).value().ropes[0];
  RopeConfig plain = scaled;
  plain.scaling = RopeScaling::kNone;
  const auto got = rope_frequencies(scaled), all = rope_frequencies(plain);
  int n_kept = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const bool keeps = scaled.original_max_seq_len * all[i] >= 2 * M_PI;
    n_kept += keeps ? 1 : 0;
    EXPECT_FLOAT_EQ(got[i], keeps ? all[i] : all[i] / scaled.factor) << i;
  }
  EXPECT_GT(n_kept, 0);
  EXPECT_LT(n_kept, static_cast<int>(got.size()));
}

// Alibaba's code: theta times the factor, and all of it divided by factor^(2 / dim).
TEST(Config, NtkOfGte) {
  Changed source(kModels / ".." / "encoders" / "gte");
  source.json_config().erase("rope_parameters");
  source.json_config().update({{"model_type", "new"},
                               {"rope_theta", 1.6e5},
                               {"rope_scaling", {{"type", "ntk"}, {"factor", 2.0}}},
                               {"position_embedding_type", "rope"}});
  const ModelConfig config = read_config(source).value();
  const auto got = rope_frequencies(config.ropes[0]);
  const double dim = config.head_dim;
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(
        got[i] / (std::pow(3.2e5, -2.0 * static_cast<double>(i) / dim) / std::pow(2.0, 2.0 / dim)),
        1.0, 1e-5)
        << i;
  source.json_config()["logn_attention_scale"] = true;
  EXPECT_THAT(error_of(source), HasSubstr("logn_attention_scale"));
}

// Of a wrapper either object may say that the output is the embedding; the file has the last word.
TEST(Config, TheOutputBelongsToTheWholeModel) {
  Changed source(kModels / "qwen3");
  json text = source.config();
  text["tie_word_embeddings"] = false;
  source.json_config() = {
      {"model_type", "some_vl"}, {"text_config", text}, {"tie_word_embeddings", true}};
  for (TensorInfo& tensor : source.tensor_list()) tensor.name = "language_model." + tensor.name;
  EXPECT_FALSE(read_config(source)->embedding.tied);
  std::erase_if(source.tensor_list(),
                [](const TensorInfo& tensor) { return tensor.name.ends_with("lm_head.weight"); });
  EXPECT_TRUE(read_config(source)->embedding.tied);
  source.json_config().erase("tie_word_embeddings");
  source.json_config()["text_config"].erase("tie_word_embeddings");
  EXPECT_TRUE(read_config(source)->embedding.tied);
}

// transformers 4 wrote of a text model inside another what differs from its class.
TEST(Config, SizesThatAWrapperLeavesOutAreTransformersOwn) {
  Changed source(kModels / "llama2");
  source.json_config() = {{"model_type", "llava"},
                          {"text_config", {{"model_type", "llama"}, {"vocab_size", 32064}}}};
  const ModelConfig config = read_config(source).value();
  EXPECT_EQ(config.model_dim, 4096);
  EXPECT_EQ(config.n_layers, 32);
  EXPECT_EQ(config.ffn_dim, 11008);
  EXPECT_EQ(config.vocab_size, 32064);
  source.json_config() = {{"model_type", "llama"}, {"vocab_size", 32064}};
  EXPECT_THAT(error_of(source), HasSubstr("is missing"));
}

TEST(Config, RopesOfLfm3ThatAreNotListedAreTransformersOwn) {
  Changed source(kModels / "lfm3");
  source.json_config().erase("rope_parameters");
  const auto config = read_config(source);
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->ropes.size(), 2u);
  EXPECT_EQ(config->ropes[0].scaling, RopeScaling::kProportional);
  EXPECT_EQ(config->ropes[0].n_turning, config->head_dim / 4);
  EXPECT_EQ(config->ropes[0].theta, 1e6f);
  EXPECT_EQ(config->ropes[1].rotary_dim, config->head_dim);
}

// As transformers reads it: models with root mean squares know one name of the epsilon, and
// BioGPT's never changes.
TEST(Config, EpsilonsOfOtherNormsAreNotTaken) {
  const auto eps = [](const std::string& model, const char* key) {
    Changed source(kModels / model);
    for (const char* name : {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon"})
      source.json_config().erase(name);
    source.json_config()[key] = 0.25;
    return read_config(source).value().norm.eps;
  };
  EXPECT_EQ(eps("granitemoeshared", "layer_norm_eps"), 1e-6f);
  EXPECT_EQ(eps("granitemoeshared", "rms_norm_eps"), 0.25f);
  EXPECT_EQ(eps("mamba2", "layer_norm_epsilon"), 0.25f);
  EXPECT_EQ(eps("gpt2", "layer_norm_epsilon"), 0.25f);
  EXPECT_EQ(eps("opt", "layer_norm_eps"), 0.25f);
  EXPECT_EQ(eps("biogpt", "layer_norm_eps"), 1e-5f);
}

TEST(Config, LayersOfGptNeoAreThoseOfItsList) {
  const auto error = [](const char* types) {
    Changed source(kModels / "gpt_neo");
    source.json_config()["attention_types"] = json::parse(types);
    return error_of(source);
  };
  EXPECT_EQ(error(R"([[["local"], 2], [["global"], 1]])"), "");
  for (const char* bad :
       {R"([[["local"], 4]])", R"([[["local"], 2]])", R"([[["far"], 3]])", R"("local")",
        R"([[["local"], -3]])", R"([[[], 3]])", R"([[3, ["local"]]])"})
    EXPECT_THAT(error(bad),
                HasSubstr("attention_types: expected [[[global or local, ...], times], ...] of 3"));
}

TEST(Config, AShareOfRopeIsHeededWhereTransformersDoes) {
  const auto rotary_dim = [](const std::string& model, const char* type) {
    Changed source(kModels / model);
    source.json_config()["rope_parameters"] = {
        {"rope_type", type}, {"rope_theta", 1e4}, {"factor", 2.0}, {"partial_rotary_factor", 0.5}};
    const auto config = read_config(source);
    return config ? std::to_string(config->ropes[0].rotary_dim) : config.error().message;
  };
  EXPECT_EQ(rotary_dim("llama2", "default"), "8");
  EXPECT_EQ(rotary_dim("stablelm", "default"), "4");
  EXPECT_EQ(rotary_dim("stablelm", "linear"), "4");
  EXPECT_THAT(
      rotary_dim("llama2", "linear"),
      HasSubstr(
          "partial_rotary_factor: expected 1 for rope_type linear of architecture llama, got 0.5"));
}

TEST(Config, WindowsThatAreNotListedAreTransformersOwn) {
  const auto windows = [](const char* model, const json& settings) {
    Changed source(kModels / model);
    source.json_config().erase("layer_types");
    source.json_config().update(settings);
    std::vector<int> windows;
    const ModelConfig config = read_config(source).value();
    for (const LayerConfig& layer : config.layers) windows.push_back(layer.window);
    return windows;
  };
  json settings = {{"use_sliding_window", true}, {"sliding_window", 7}, {"max_window_layers", 1}};
  EXPECT_EQ(windows("qwen2", settings), (std::vector{0, 7}));
  EXPECT_EQ(windows("qwen3_moe", settings), (std::vector{7, 7}));
  EXPECT_EQ(windows("qwen2_moe_mixed", settings), (std::vector{7, 0, 0}));
  settings["max_window_layers"] = 28;
  EXPECT_EQ(windows("qwen2_moe_mixed", settings), (std::vector{7, 0, 7}));
  settings["use_sliding_window"] = false;
  EXPECT_EQ(windows("qwen3_moe", settings), (std::vector{0, 0}));
}

TEST(Config, EveryLayerOfAfmoeMaySeeAll) {
  Changed source(kModels / "afmoe");
  source.json_config().erase("layer_types");
  source.json_config()["global_attn_every_n_layers"] = 1;
  const ModelConfig config = read_config(source).value();
  for (const LayerConfig& layer : config.layers) EXPECT_TRUE(layer.window == 0 && layer.rope == -1);
  source.json_config()["sliding_window"] = nullptr;
  EXPECT_THAT(error_of(source), HasSubstr("sliding_window: expected at least 1"));
}

TEST(Config, ScalesOfMiniCpm3ThatAreNullAreNone) {
  Changed source(kModels / "minicpm3_scales");
  EXPECT_NE(read_config(source)->residual.scale, 1.0f);
  EXPECT_NE(read_config(source)->output.scale, 1.0f);
  source.json_config()["scale_depth"] = nullptr;
  source.json_config()["dim_model_base"] = nullptr;
  EXPECT_FLOAT_EQ(read_config(source)->residual.scale, 1.0f);
  EXPECT_FLOAT_EQ(read_config(source)->output.scale, 1.0f);
}

TEST(Config, PositionsThatAreComputedAreBounded) {
  Changed source(kModels / "xglm");
  source.json_config()["d_model"] = 1 << 20;
  source.json_config()["max_position_embeddings"] = 1 << 16;
  EXPECT_THAT(error_of(source), HasSubstr("max_position_embeddings x d_model: expected at most"));
}

TEST(Config, GemmasActivationIsWhatTheFileSays) {
  const auto activation = [](const char* model, const char* key, const char* name) {
    Changed source(kModels / model);
    source.json_config()[key] = name;
    return read_config(source)->ffn.activation.kind;
  };
  // so its first files name it
  EXPECT_EQ(activation("gemma", "hidden_act", "gelu"), Activation::kGeluTanh);
  EXPECT_EQ(activation("gemma", "hidden_act", "relu"), Activation::kRelu);
  EXPECT_EQ(activation("gemma2", "hidden_activation", "gelu"), Activation::kGelu);
  EXPECT_EQ(activation("gemma3", "hidden_activation", "silu"), Activation::kSilu);
  Changed capped(kModels / "gemma3");
  capped.json_config()["attn_logit_softcapping"] = 30.0;
  EXPECT_THAT(error_of(capped), HasSubstr("attn_logit_softcapping: 30.0 is not understood"));
}

TEST(Config, ScoresOfGpt2MayBeUnscaled) {
  Changed source(kModels / "gpt2");
  source.json_config()["scale_attn_weights"] = false;
  EXPECT_EQ(read_config(source)->attention.scale, 1.0f);
  source.json_config()["scale_attn_weights"] = true;
  EXPECT_NEAR(read_config(source)->attention.scale, 1 / std::sqrt(8.0), 1e-6);
}

TEST(Config, TablesThatAreAlikeAreOne) {
  Changed source(kModels / "llama_two_tables");
  EXPECT_FALSE(read_config(source)->embedding.tied);
  auto& tensors = source.tensor_list();
  const auto table = std::ranges::find(tensors, "model.embed_tokens.weight", &TensorInfo::name);
  std::ranges::find(tensors, "lm_head.weight", &TensorInfo::name)->bytes = table->bytes;
  EXPECT_TRUE(read_config(source)->embedding.tied);
  EXPECT_EQ(error_of(source), "");
}

TEST(Config, WhatMiMoJambaOlmoHybridAndChatGlmDoNotHaveIsRefused) {
  const auto with = [](const std::string& model, const char* key, const json& value) {
    Changed source(kModels / model);
    source.json_config()[key] = value;
    return error_of(source);
  };
  EXPECT_THAT(with("mimo_v2_flash", "swa_head_dim", 16), HasSubstr("swa_head_dim: expected 12"));
  EXPECT_THAT(with("mimo_v2_flash", "swa_num_attention_heads", 6), HasSubstr("expected 4"));
  EXPECT_THAT(with("mimo_v2_flash", "v_head_dim", 16), HasSubstr("v_head_dim"));
  EXPECT_THAT(with("mimo_v2_flash", "n_shared_experts", 1), HasSubstr("n_shared_experts"));
  EXPECT_THAT(with("mimo_v2_flash", "scoring_func", "softmax"), HasSubstr("scoring_func"));
  EXPECT_THAT(with("mimo_v2_flash", "hybrid_layer_pattern", {0, 2, 1, 0}),
              HasSubstr("expected sliding_attention or full_attention, got \"2\""));
  EXPECT_THAT(with("mimo_v2_flash", "moe_layer_freq", {0, 1, 1}), HasSubstr("mlp_layer_types"));
  EXPECT_THAT(with("llama2/model.gguf", "llama.attention.value_length", 4),
              HasSubstr("keys and values of different sizes"));
  EXPECT_THAT(with("mamba", "hidden_act", "gelu"), HasSubstr("silu only"));
  Changed wide(kModels / "mamba");
  wide.json_config()["intermediate_size"] = 1 << 20, wide.json_config()["state_size"] = 4095;
  EXPECT_THAT(error_of(wide), HasSubstr("1048576 channels with states of 4095"));
  EXPECT_THAT(with("mamba", "time_step_rank", "large"), HasSubstr("mamba_dt_rank"));
  EXPECT_THAT(with("jamba", "mamba_inner_layernorms", false), HasSubstr("mamba_inner_layernorms"));
  EXPECT_THAT(with("jamba", "attn_layer_offset", 9), HasSubstr("attn_layer_offset"));
  EXPECT_THAT(with("llama2", "attn_layer_period", 4), HasSubstr("attn_layer_period"));
  EXPECT_THAT(with("olmo_hybrid", "linear_num_value_heads", 3),
              HasSubstr("multiple of the 4 key heads"));
  EXPECT_THAT(with("olmo_hybrid_rope", "layer_types", {"full_attention", "mamba", "mamba"}),
              HasSubstr("got \"mamba\""));
  EXPECT_THAT(with("chatglm", "position_encoding_2d", true), HasSubstr("position_encoding_2d"));
  EXPECT_THAT(with("chatglm", "rope_ratio", 16), HasSubstr("ChatGLM 2's"));
  EXPECT_THAT(with("chatglm", "quantization_bit", 4), HasSubstr("quantization_bit"));
  EXPECT_THAT(with("chatglm", "original_rope", false), HasSubstr("original_rope"));
}

// Layers with a window have twice the KV heads; a token's key has 12 features for each, its value 8.
TEST(Config, NarrowValuesTakeLessOfTheCache) {
  for (const char* model : {"mimo_v2_flash", "mimo_v2_flash/model.gguf"}) {
    const CacheSpec spec = read_config(Changed(kModels / model))->cache_spec(KvDType::kF16, 16);
    ASSERT_EQ(spec.layers.size(), 4u);
    EXPECT_EQ(CacheSpec::token_bytes(spec.layers[0], KvDType::kF16), 2 * (12 + 8));
    EXPECT_EQ(CacheSpec::token_bytes(spec.layers[1], KvDType::kF16), 2 * 2 * (12 + 8));
    EXPECT_EQ(CacheSpec::token_bytes(spec.layers[1], KvDType::kI8), 2 * (12 + 8) + 2 * 2 * 4);
  }
}

TEST(Config, FieldsOfHybridsThatAreNotKnownAreRefused) {
  const auto with = [](const std::string& model, const char* key, const json& value) {
    Changed source(kModels / model);
    source.json_config()[key] = value;
    return error_of(source);
  };
  EXPECT_THAT(with("recurrent_gemma", "block_types", {"recurrent", "mamba"}),
              HasSubstr("got \"mamba\""));
  EXPECT_THAT(with("recurrent_gemma", "block_types", json::array()), HasSubstr("expected a list"));
  EXPECT_THAT(with("recurrent_gemma", "lru_width", 25),
              HasSubstr("multiple of the 3 heads, got 25"));
  EXPECT_THAT(with("recurrent_gemma", "embeddings_scale_by_sqrt_dim", false),
              HasSubstr("embeddings_scale_by_sqrt_dim"));
  EXPECT_THAT(with("recurrent_gemma", "conv1d_width", 0), HasSubstr("conv1d_width"));
  EXPECT_THAT(with("zamba2", "tie_word_embeddings", false), HasSubstr("share no blocks"));
  EXPECT_THAT(with("zamba2", "layers_block_type", {"mamba", "hybrid"}),
              HasSubstr("expected a list of 5 layers"));
  EXPECT_THAT(with("zamba2", "layers_block_type", {"mamba", "moe", "mamba", "mamba", "mamba"}),
              HasSubstr("got \"moe\""));
  EXPECT_THAT(with("zamba2", "use_shared_block_lora", true), HasSubstr("before transformers'"));
  EXPECT_THAT(with("zamba2", "hybrid_layer_ids", {1, 2}), HasSubstr("hybrid_layer_ids"));
  EXPECT_THAT(with("zamba2", "n_mamba_heads", 5), HasSubstr("expected 48 features in all"));
  EXPECT_THAT(with("zamba2_adapters", "num_key_value_heads", 2), HasSubstr("as many key heads"));
  EXPECT_THAT(with("lara_mini", "layer_types", {"linear_attention"}),
              HasSubstr("expected a list of 5 layers"));
  EXPECT_THAT(with("diffllama", "num_key_value_heads", 1), HasSubstr("expected even numbers"));
  EXPECT_THAT(with("apertus1p5", "tie_word_embeddings", true), HasSubstr("output_vocab_size"));
  EXPECT_THAT(with("apertus1p5", "output_vocab_size", 54), HasSubstr("output_vocab_size"));
  EXPECT_THAT(with("gemma4_unified", "hidden_size_per_layer_input", 12),
              HasSubstr("expected neither"));
  const std::string longformer = "../encoders/longformer";
  EXPECT_THAT(with(longformer, "attention_window", {8, 5}),
              HasSubstr("expected even numbers, got 5"));
  EXPECT_THAT(with(longformer, "attention_window", {8, 4, 4}),
              HasSubstr("expected 2 numbers, got 3"));
  EXPECT_THAT(with(longformer, "architectures", {"LongformerForSequenceClassification"}),
              HasSubstr("attend globally"));
}

TEST(Config, KindsAndExpertsOfNemotronThatAreNotKnownAreRefused) {
  const auto with = [](const std::string& model, const char* key, const json& value) {
    Changed source(kModels / model);
    source.json_config()[key] = value;
    return error_of(source);
  };
  EXPECT_EQ(
      with("nemotron_h_moe", "layers_block_type", {"mamba", "moe", "attention", "moe", "mamba"}),
      "");
  EXPECT_THAT(
      with("nemotron_h_moe", "layers_block_type", {"mamba", "router", "attention", "moe", "mamba"}),
      HasSubstr("\"router\" is not known"));
  EXPECT_THAT(with("nemotron_h_moe", "num_hidden_layers", 4),
              HasSubstr("expected 4 entries, got 5"));
  EXPECT_THAT(with("nemotron_h_moe", "layers_block_type", nullptr),
              HasSubstr("num_hidden_layers is missing"));
  EXPECT_THAT(with("nemotron_h_moe", "moe_latent_size", -3), HasSubstr("moe_latent_size"));
  EXPECT_THAT(with("nemotron_h_moe", "n_group", 4), HasSubstr("groups of experts"));
  EXPECT_THAT(with("nemotron_h_moe", "moe_intermediate_size", {16, 24}),
              HasSubstr("moe_intermediate_size"));
  Changed no_kinds(kModels / "nemotron_h_moe");
  no_kinds.json_config().erase("layers_block_type");
  no_kinds.json_config()["num_hidden_layers"] = 5;
  EXPECT_THAT(error_of(no_kinds), HasSubstr("expected the kind of every layer"));
  const auto gguf = [&](const char* key, const json& value) {
    return with("nemotron_h_moe_latent/model.gguf", (std::string("nemotron_h_moe.") + key).c_str(),
                value);
  };
  EXPECT_THAT(gguf("attention.head_count_kv", {0, 0, 0, 2}),
              HasSubstr("expected 5 entries, got 4"));
  EXPECT_THAT(gguf("expert_gating_func", 1), HasSubstr("expected 2 (sigmoid)"));
  EXPECT_THAT(with("nemotron_h_moe/model.gguf", "nemotron_h_moe.expert_group_used_count", nullptr),
              HasSubstr("expert_group_used_count is missing"));
}

TEST(Config, Gemma4ThatCannotBeComputedIsRefused) {
  const auto with = [](const char* key, const json& value, const char* model = "gemma4") {
    Changed source(kModels / model);
    source.json_config()[key] = value;
    return error_of(source);
  };
  EXPECT_EQ(with("use_bidirectional_attention", "vision"), "");  // of images only
  EXPECT_THAT(with("use_bidirectional_attention", "all"), HasSubstr("use_bidirectional_attention"));
  EXPECT_THAT(with("layer_types", {"a", "b", "c", "d", "e", "f"}), HasSubstr("got \"a\""));
  EXPECT_THAT(with("layer_types", {"full_attention"}), HasSubstr("expected a list of 6 layers"));
  EXPECT_THAT(with("num_kv_shared_layers", 5),
              HasSubstr("finds no layer of its kind before layer 1"));
  EXPECT_THAT(with("num_kv_shared_layers", 6), HasSubstr("0..5"));
  EXPECT_THAT(with("per_layer_config", {{"0", {{"head_dim", 16}, {"rope", 3}}}}),
              HasSubstr("rope is not understood"));
  EXPECT_THAT(with("per_layer_config", {{"5", {{"head_dim", 24}}}}),
              HasSubstr("heads have other sizes"));
  EXPECT_THAT(with("vocab_size_per_layer_input", 40), HasSubstr("vocab_size_per_layer_input"));
  EXPECT_THAT(with("rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}),
              HasSubstr("sliding_attention is missing"));
  EXPECT_THAT(with("gemma4.attention.head_count_kv", {2, 2}, "gemma4_experts/model.gguf"),
              HasSubstr("gemma4.attention.head_count_kv: expected 3 numbers, got 2"));
}

TEST(Config, Gemma3nThatCannotBeComputedIsRefused) {
  const auto with = [](const char* key, const json& value, const char* model = "gemma3n") {
    Changed source(kModels / model);
    source.json_config()[key] = value;
    return error_of(source);
  };
  EXPECT_THAT(with("altup_active_idx", 4),
              HasSubstr("altup_active_idx: expected an integer in 0..3, got 4"));
  EXPECT_THAT(with("altup_num_inputs", 0), HasSubstr("altup_num_inputs"));
  EXPECT_THAT(with("laurel_rank", 0), HasSubstr("laurel_rank"));
  EXPECT_THAT(with("hidden_size_per_layer_input", 0), HasSubstr("hidden_size_per_layer_input"));
  EXPECT_THAT(with("num_kv_shared_layers", 3),
              HasSubstr("finds no layer of its kind before layer 2"));
  EXPECT_THAT(with("activation_sparsity_pattern", {0.5}),
              HasSubstr("expected a list of 5 numbers"));
  EXPECT_THAT(with("activation_sparsity_pattern", {0, 0, 0, 1.0, 0}),
              HasSubstr("layer 3: expected a share"));
  EXPECT_THAT(with("activation_sparsity_pattern", {0, "a", 0, 0, 0}),
              HasSubstr("layer 1: expected a share"));
  EXPECT_THAT(with("intermediate_size", {40, 40}),
              HasSubstr("intermediate_size: expected 5 numbers, got 2"));
  EXPECT_THAT(
      with("gemma3n.activation_sparsity_scale", {0, 0, 0, nullptr, 0}, "gemma3n/model.gguf"),
      HasSubstr("layer 3: expected a number or -infinity"));
  EXPECT_THAT(with("gemma3n.altup.active_idx", 9, "gemma3n/model.gguf"),
              HasSubstr("gemma3n.altup.active_idx"));
}

// Directories have shares, GGUF files where a normal distribution has them; neither: the first ten
// layers of more.
TEST(Config, SparseGatesAreThoseOfBothFormats) {
  const auto cutoffs = [](const WeightSource& source) {
    std::vector<float> all;
    const ModelConfig config = read_config(source).value();
    for (const LayerConfig& layer : config.layers) all.push_back(layer.gate_cutoff);
    return all;
  };
  const auto wanted = ::testing::ElementsAre(::testing::FloatNear(1.644854f, 1e-5f),
                                             ::testing::FloatNear(0.841621f, 1e-5f), kNoCutoff,
                                             ::testing::FloatNear(0.0f, 1e-6f), kNoCutoff);
  EXPECT_THAT(cutoffs(Changed(kModels / "gemma3n")), wanted);
  EXPECT_THAT(cutoffs(Changed(kModels / "gemma3n" / "model.gguf")), wanted);
  Changed unsaid(kModels / "gemma3n");
  unsaid.json_config().erase("activation_sparsity_pattern");
  EXPECT_THAT(cutoffs(unsaid), ::testing::Each(kNoCutoff));
  for (const char* key : {"intermediate_size", "layer_types"}) unsaid.json_config().erase(key);
  unsaid.json_config()["num_hidden_layers"] = 12;
  const std::vector<float> twelve = cutoffs(unsaid);
  EXPECT_NEAR(twelve[9], 1.644854f, 1e-5f);
  EXPECT_EQ(twelve[10], kNoCutoff);
}

TEST(Config, LayersThatShareKeysAndValuesHaveNoCache) {
  const Changed source(kModels / "gemma4");
  const CacheSpec spec = read_config(source).value().cache_spec(KvDType::kF16, 16);
  std::vector<int> heads, sizes;
  for (const KvLayerSpec& layer : spec.layers) {
    heads.push_back(layer.n_kv_heads);
    sizes.push_back(layer.n_kv_heads > 0 ? layer.head_dim : 0);
  }
  EXPECT_THAT(heads, ::testing::ElementsAre(2, 2, 2, 0, 0, 0));
  EXPECT_THAT(sizes, ::testing::ElementsAre(16, 8, 16, 0, 0, 0));
}

// Published checkpoints hold tensors of shared layers that nobody reads.
TEST(Config, TensorsThatSharedLayersDoNotUseArePassedOver) {
  const auto ops = make_ops("cpu", {.n_threads = 1}).value();
  Changed source(kModels / "gemma4");
  for (const char* part : {"k_proj", "v_proj", "k_norm"}) {
    TensorInfo unused = *source.find(fmt::format("model.layers.1.self_attn.{}.weight", part));
    unused.name = fmt::format("model.layers.3.self_attn.{}.weight", part);
    source.tensor_list().push_back(unused);
  }
  EXPECT_EQ(try_model(source, *ops), "");
}

// Its text model is Gemma's, which is causal elsewhere.
TEST(Config, PromptsSeenFromBothSidesAreRefused) {
  Changed source(kModels / "gemma");
  const json text = source.json_config();
  source.json_config() = {{"model_type", "paligemma"}, {"text_config", text}};
  EXPECT_THAT(error_of(source), HasSubstr("'paligemma' are seen from both sides"));
  source.json_config()["model_type"] = "another";
  EXPECT_EQ(error_of(source), "");
}

// Attention that chooses tokens by an index: dense attention would give other logits.
TEST(Config, SparseAttentionOfOtherArchitecturesIsRefused) {
  Changed source(kModels / "deepseek_v3");
  source.json_config()["model_type"] = "deepseek_v41";
  source.json_config()["architectures"] = {"DeepseekV41ForCausalLM"};
  EXPECT_THAT(error_of(source), AllOf(HasSubstr("deepseek_v41"), HasSubstr("nearest: deepseek_v")));
  Changed disguised(kModels / "deepseek_v3");
  disguised.json_config()["index_topk"] = 2048;
  EXPECT_THAT(error_of(disguised), HasSubstr("index_topk"));
}

TEST(Config, IndexersAreChecked) {
  const auto with = [](const char* model, const char* key, const json& value) {
    Changed source(kModels / model);
    source.json_config()[key] = value;
    return error_of(source);
  };
  EXPECT_THAT(with("deepseek_v32", "index_topk", 0), HasSubstr("index_topk"));
  EXPECT_THAT(with("deepseek_v32", "index_head_dim", 6), HasSubstr("index_head_dim"));
  EXPECT_THAT(with("deepseek_v32", "index_head_dim", 13),
              HasSubstr("index_head_dim: expected an even number, got 13"));
  EXPECT_THAT(with("deepseek_v32", "q_lora_rank", nullptr), HasSubstr("q_lora_rank: expected"));
  EXPECT_THAT(with("deepseek_v32", "layer_types", {"sliding_attention"}),
              HasSubstr("layer_types: expected indexed_attention"));
  EXPECT_EQ(with("deepseek_v32", "layer_types", {"deepseek_sparse_attention"}), "");
  EXPECT_THAT(with("glm_moe_dsa", "indexer_types", {"shared", "full", "full", "full"}),
              HasSubstr("indexer_types: expected 4 layers, full in the first"));
  EXPECT_THAT(with("glm_moe_dsa", "indexer_types", {"full", "half", "full", "full"}),
              HasSubstr("indexer_types: expected full or shared, got \"half\""));
  EXPECT_THAT(with("glm_moe_dsa", "indexer_types", {"full"}), HasSubstr("expected 4 layers"));
}

// In whatever words a file says which layers have an indexer.
TEST(Config, LayersShareASelection) {
  const auto selecting = [](const json& changes) {
    Changed source(kModels / "glm_moe_dsa");
    source.json_config().erase("indexer_types");
    source.json_config().update(changes);
    std::vector<int> layers;
    for (const LayerConfig& layer : read_config(source).value().layers)
      layers.push_back(layer.selecting_layer);
    return layers;
  };
  using Layers = std::vector<int>;
  EXPECT_EQ(selecting(json::object()), (Layers{0, 1, 2, 3}));
  EXPECT_EQ(selecting({{"indexer_types", {"full", "shared", "shared", "full"}}}),
            (Layers{0, 0, 0, 3}));
  EXPECT_EQ(selecting({{"index_topk_pattern", "FSFS"}}), (Layers{0, 0, 2, 2}));
  EXPECT_EQ(selecting({{"index_topk_freq", 2}}), (Layers{0, 1, 1, 3}));
  EXPECT_EQ(selecting({{"index_topk_freq", 4}, {"index_skip_topk_offset", 1}}),
            (Layers{0, 0, 0, 0}));
}

TEST(Config, IndexersKeysAreCachedBesideTheLatents) {
  const CacheSpec spec = read_config(*open_weights(kModels / "glm_moe_dsa").value())
                             .value()
                             .cache_spec(KvDType::kF16, 16);
  int64_t bytes = 0;
  for (const KvLayerSpec& layer : spec.layers) bytes += CacheSpec::token_bytes(layer, spec.dtype);
  constexpr int kLayers = 4, kIndexers = 2, kLatent = 20 + 8, kKey = 12;
  EXPECT_EQ(bytes, 2 * (kLayers * kLatent + kIndexers * kKey));
  EXPECT_EQ(spec.n_groups(), 1);
  EXPECT_EQ(spec.first_index_layer, kLayers);
}

// Means of open blocks, and the convolution and the tokens of rows of n-grams, are states.
TEST(Config, PooledIndexersAndNgramsHaveStates) {
  const ModelConfig config = read_config(*open_weights(kModels / "qwen4_exp").value()).value();
  const CacheSpec spec = config.cache_spec(KvDType::kF16, 16);
  int64_t bytes = 0;
  for (const KvLayerSpec& layer : spec.layers) bytes += CacheSpec::token_bytes(layer, spec.dtype);
  constexpr int kKeysAndValues = 2 * 2 * 8, kIndexKey = 10, kPool = 4, kWidth = 2 * 24;
  EXPECT_EQ(bytes, 2 * (kKeysAndValues + kIndexKey));
  ASSERT_EQ(spec.state_values.size(), 4u);
  EXPECT_EQ(spec.state_values[3], (kPool - 1) * kIndexKey);
  EXPECT_EQ(spec.state_values[1] - spec.state_values[0], 2 * 3 * kWidth + 2 * 3);
}

// A configuration alone has the hashes that transformers makes.
TEST(Config, HashesOfNgramsAreThoseOfTheCheckpoint) {
  const auto source = open_weights(kModels / "qwen4_exp_tables").value();
  const ModelConfig read = read_config(*source).value();
  Changed bare(kModels / "qwen4_exp_tables");
  bare.tensor_list().clear();
  const ModelConfig made = read_config(bare).value();
  ASSERT_EQ(made.ngrams.hashes.size(), 2u);
  EXPECT_EQ(made.ngrams, read.ngrams);
  Changed other(kModels / "qwen4_exp_tables");
  const auto error_with = [&](const char* key, const json& value) {
    Changed changed = other;
    changed.json_config()[key] = value;
    return error_of(changed);
  };
  EXPECT_THAT(error_with("indexer_budget", 7), HasSubstr("indexer_budget: expected a multiple"));
  EXPECT_THAT(error_with("indexer_compress_ratio", nullptr), HasSubstr("indexer_compress_ratio"));
  EXPECT_THAT(error_with("eos_token_id", nullptr), HasSubstr("eos_token_id: expected a token"));
  EXPECT_THAT(error_with("ple_layer_ids", {9}), HasSubstr("ple_layer_ids"));
  EXPECT_THAT(error_with("ple_embed_dim", 13), HasSubstr("ple_embed_dim: expected a multiple"));
  EXPECT_THAT(error_with("heads_per_ngram", 2), HasSubstr("ngram_heads_vocab_sizes"));
  EXPECT_THAT(error_with("output_gate_type", "tanh"), HasSubstr("output_gate_type: expected"));
}

TEST(Config, Glm53SaysWhatItCannotBe) {
  const Changed checkpoint(kModels / "glm5_next_shared");
  const auto error_with = [&](const char* key, const json& value) {
    Changed changed = checkpoint;
    changed.json_config()[key] = value;
    return error_of(changed);
  };
  EXPECT_EQ(error_of(checkpoint), "");
  EXPECT_THAT(error_with("index_topk", 13), HasSubstr("index_topk: expected a multiple of the 3"));
  EXPECT_THAT(error_with("index_kpool", 1), HasSubstr("index_kpool"));
  EXPECT_THAT(error_with("index_kpool_always_select_tail", false),
              HasSubstr("index_kpool_always_select_tail: expected true"));
  EXPECT_THAT(error_with("qk_rope_head_dim", 8), HasSubstr("qk_rope_head_dim: expected 0"));
  EXPECT_THAT(error_with("hidden_act", "gelu"), HasSubstr("hidden_act: expected silu"));
  EXPECT_THAT(error_with("layer_types", {"indexed_attention", "sliding", "linear_attention"}),
              HasSubstr("layer_types: expected linear_attention or indexed_attention, got"));
  EXPECT_THAT(error_with("indexer_types", {"full", "shared", "shared"}), "");  // not attention
  EXPECT_THAT(
      error_with("layer_types", {"indexed_attention", "linear_attention", "indexed_attention"}),
      "");
  EXPECT_THAT(error_with("num_key_value_heads", 2), HasSubstr("num_key_value_heads: expected"));
  json linear = checkpoint.config().at("linear_attn_config");
  linear["gate_shape"] = 1;
  EXPECT_THAT(error_with("linear_attn_config", linear),
              HasSubstr("linear_attn_config.gate_shape: its meaning is not known"));
  linear.erase("gate_shape");
  linear["kda_layers"] = {1, 2};
  EXPECT_THAT(error_with("linear_attn_config", linear), HasSubstr("linear_attn_config.kda_layers"));
  linear["kda_layers"] = {3};
  EXPECT_EQ(error_with("linear_attn_config", linear), "");
}

// Tokens of windows in a group of their own, entries and keys of the indexer; open entries are states.
TEST(Config, DeepSeekV4CachesTokensAndEntries) {
  const ModelConfig config = read_config(*open_weights(kModels / "deepseek_v4").value()).value();
  const CacheSpec spec = config.cache_spec(KvDType::kF16, 16);
  constexpr int kLayers = 4, kHead = 12, kKey = 12;
  EXPECT_EQ(spec.n_token_groups(), 2);
  EXPECT_EQ(spec.first_index_layer, kLayers);
  EXPECT_EQ(spec.first_entry_layer, 2 * kLayers);
  EXPECT_EQ(spec.block_bytes(1), 16 * 2 * kLayers * kHead);
  EXPECT_EQ(spec.layers[9].every, 16);
  EXPECT_EQ(spec.layers[10].every, 4);
  EXPECT_EQ(spec.block_bytes(0), 2 * ((1 + 4) * kHead + 16 * kKey));
  constexpr int kOpen = 15 * 2 * kHead, kOverlapping = 7 * 2 * 2 * (kHead + kKey);
  EXPECT_EQ(spec.state_values, (std::vector<int64_t>{0, kOpen, kOverlapping, 0}));
  for (const KvLayerSpec& layer : std::span(spec.layers).first(kLayers)) EXPECT_EQ(layer.window, 9);
  EXPECT_TRUE(config.layers[0].hashed_experts);
  EXPECT_FALSE(config.layers[1].hashed_experts);
}

// All of V4-Flash's parameters, and those that a token uses.
TEST(Config, DeepSeekV4HasItsPublishedSize) {
  std::ifstream file(tests_dir() / "golden" / "published" / "deepseek_v4_flash.json");
  Changed published(kModels / "deepseek_v4");
  published.json_config() = json::parse(file)["config"];
  const ModelConfig config = read_config(published).value();
  EXPECT_NEAR(static_cast<double>(config.n_parameters()), 284e9, 3e9);
  EXPECT_NEAR(static_cast<double>(config.n_active_parameters()), 13e9, 1e9);
  EXPECT_EQ(config.ropes[0].theta, 160000.0f);
  EXPECT_EQ(config.ropes[2].theta, 10000.0f);
  EXPECT_EQ(config.ropes[0].attention_factor, 1.0f);
  EXPECT_EQ(config.layers[1].entry_ratio, 0);
  EXPECT_EQ(config.layers[2].entry_ratio, 4);
  EXPECT_EQ(config.layers[3].entry_ratio, 128);
  EXPECT_EQ(config.layers[42].selecting_layer, 42);
}

TEST(Config, DeepSeekV4SaysWhatItCannotBe) {
  const Changed checkpoint(kModels / "deepseek_v4");
  const auto error_with = [&](const char* key, const json& value) {
    Changed changed = checkpoint;
    changed.json_config()[key] = value;
    return error_of(changed);
  };
  EXPECT_EQ(error_of(checkpoint), "");
  EXPECT_THAT(error_with("o_groups", 3), HasSubstr("o_groups: expected a divisor of the 4 heads"));
  EXPECT_THAT(error_with("num_key_value_heads", 2), HasSubstr("num_key_value_heads: expected 1"));
  EXPECT_THAT(error_with("num_key_value_heads", {1, 2, 1, 1}),
              HasSubstr("num_key_value_heads: expected 1, got 2 in layer 1"));
  EXPECT_THAT(error_with("layer_types", {0, 4, 8, 128}), HasSubstr("(ratios 0, 4 or 128), got 8"));
  EXPECT_THAT(error_with("layer_types", {"full_attention", "", "", ""}), HasSubstr("layer_types"));
  EXPECT_THAT(error_with("layer_types", {"sliding_attention"}), HasSubstr("list of 4 layers"));
  EXPECT_THAT(error_with("mlp_layer_types", {"sparse", "moe", "moe", "moe"}),
              HasSubstr("mlp_layer_types: expected hash_moe or moe, got"));
  EXPECT_THAT(error_with("scoring_func", "softmax"), HasSubstr("scoring_func: expected"));
  EXPECT_THAT(error_with("norm_topk_prob", false), HasSubstr("norm_topk_prob"));
  EXPECT_THAT(error_with("n_group", 2), HasSubstr("n_group: expected 1"));
  EXPECT_THAT(error_with("hidden_act", "gelu"), HasSubstr("hidden_act: expected silu"));
  EXPECT_THAT(error_with("attention_bias", true), HasSubstr("attention_bias"));
  EXPECT_THAT(error_with("compress_rates", {{"compressed_sparse_attention", 1}}),
              HasSubstr("compressed_sparse_attention"));
  EXPECT_THAT(error_with("index_head_dim", 13), HasSubstr("index_head_dim: expected an even"));
  EXPECT_THAT(error_with("rope_scaling", {{"type", "linear"}, {"factor", 2.0}}),
              HasSubstr("rope scaling: expected default or yarn"));
}

// A key of the indexer in the layers that have one, beside keys and values.
TEST(Config, MiniMaxM3SaysWhatItCannotBe) {
  const Changed checkpoint(kModels / "minimax_m3");
  const ModelConfig config = read_config(checkpoint).value();
  const CacheSpec spec = config.cache_spec(KvDType::kF16, 16);
  int64_t bytes = 0;
  for (const KvLayerSpec& layer : spec.layers) bytes += CacheSpec::token_bytes(layer, spec.dtype);
  constexpr int kKeysAndValues = 2 * 2 * 8, kIndexKey = 8;
  EXPECT_EQ(bytes, 2 * (3 * kKeysAndValues + 2 * kIndexKey));
  EXPECT_FALSE(spec.has_states());
  const auto error_with = [&](const char* key, const json& value) {
    Changed changed = checkpoint;
    changed.json_config()["text_config"][key] = value;
    return error_of(changed);
  };
  const auto error_of_sparse = [&](const char* key, const json& value) {
    json sparse = checkpoint.config().at("text_config").at("sparse_attention_config");
    sparse[key] = value;
    return error_with("sparse_attention_config", sparse);
  };
  EXPECT_EQ(error_of(checkpoint), "");
  EXPECT_THAT(error_with("attention_output_gate", true), HasSubstr("attention_output_gate"));
  EXPECT_THAT(error_with("use_gemma_norm", false), HasSubstr("use_gemma_norm"));
  EXPECT_THAT(error_with("qk_norm_type", "per_layer"), HasSubstr("qk_norm_type"));
  EXPECT_THAT(error_with("swiglu_beta", 0.5), HasSubstr("swiglu_beta: expected 1"));
  EXPECT_THAT(error_with("n_shared_experts", 2), HasSubstr("n_shared_experts: expected 0 or 1"));
  EXPECT_THAT(error_with("layer_types", {"full_attention", "sliding_attention", "full_attention"}),
              HasSubstr("layer_types: expected minimax_m3_sparse or full_attention"));
  EXPECT_THAT(error_of_sparse("sparse_score_type", "mean"), HasSubstr("sparse_score_type"));
  EXPECT_THAT(error_of_sparse("sparse_init_block", 1), HasSubstr("sparse_init_block: expected 0"));
  EXPECT_THAT(error_of_sparse("sparse_disable_index_value", {0, 1, 0}),
              HasSubstr("sparse_disable_index_value: expected 1"));
  EXPECT_THAT(error_of_sparse("sparse_local_block", 0), HasSubstr("index_local_blocks"));
  EXPECT_THAT(error_of_sparse("sparse_local_block", 4), HasSubstr("index_local_blocks"));
  EXPECT_THAT(error_of_sparse("sparse_num_index_heads", 1), HasSubstr("one for each of 2 KV"));
  EXPECT_THAT(error_of_sparse("sparse_window", 1), HasSubstr("its meaning is not known"));
  EXPECT_EQ(error_of_sparse("use_sparse_attention", true), "");
}

// Layers without rotation keep the latent alone, layers with the latents of others nothing but the
// indexer's keys.
TEST(Config, MistralLarge4SaysWhatItCannotBe) {
  const Changed checkpoint(kModels / "mistral_large4");
  const ModelConfig config = read_config(checkpoint).value();
  const CacheSpec spec = config.cache_spec(KvDType::kF16, 16);
  int64_t bytes = 0;
  for (const KvLayerSpec& layer : spec.layers) bytes += CacheSpec::token_bytes(layer, spec.dtype);
  constexpr int kLatent = 12, kTurned = 8, kIndexKey = 12;
  EXPECT_EQ(bytes, 2 * (3 * kLatent + 2 * kTurned + 3 * kIndexKey));
  const auto error_with = [&](const char* key, const json& value) {
    Changed changed = checkpoint;
    changed.json_config()["text_config"][key] = value;
    return error_of(changed);
  };
  EXPECT_EQ(error_of(checkpoint), "");
  EXPECT_THAT(error_with("kv_source_layers", {0, 1, 2, 2, 2}), HasSubstr("for layer 3 an earlier"));
  EXPECT_THAT(error_with("kv_source_layers", {0, 3, 2, 3, 2}), HasSubstr("for layer 1 an earlier"));
  EXPECT_THAT(error_with("kv_source_layers", {0, 0, 2, 1, 2}), HasSubstr("for layer 3 an earlier"));
  EXPECT_THAT(error_with("kv_source_layers", {0, 1}), HasSubstr("kv_source_layers: expected 5"));
  EXPECT_THAT(error_with("no_rope_layers", {0, 1}), HasSubstr("no_rope_layers: expected 5"));
  EXPECT_THAT(error_with("index_head_dim", 13), HasSubstr("index_head_dim: expected an even"));
  EXPECT_THAT(error_with("q_lora_rank", 8), HasSubstr("q_lora_rank: expected none"));
  EXPECT_THAT(error_with("norm_topk_prob", false), HasSubstr("norm_topk_prob: expected true"));
  EXPECT_THAT(error_with("hidden_act", "gelu"), HasSubstr("hidden_act: expected silu"));
  EXPECT_THAT(error_with("layer_types", {"sliding_attention"}), HasSubstr("layer_types: expected"));
}

// Layers with a window keep latents of their own size.
TEST(Config, Dots3SaysWhatItCannotBe) {
  const Changed checkpoint(kModels / "dots3_note");
  const ModelConfig config = read_config(checkpoint).value();
  const CacheSpec spec = config.cache_spec(KvDType::kF16, 16);
  int64_t bytes = 0;
  for (const KvLayerSpec& layer : spec.layers) bytes += CacheSpec::token_bytes(layer, spec.dtype);
  constexpr int kLatent = 12, kOfWindow = 16, kTurned = 8, kIndexKey = 12;
  EXPECT_EQ(bytes, 2 * 2 * (kLatent + kOfWindow + 2 * kTurned + kIndexKey));
  EXPECT_EQ(spec.layers[3].window, 9);
  EXPECT_EQ(spec.layers[3].values_in_keys, kOfWindow);
  EXPECT_EQ(config.n_heads_of(0), 4);
  EXPECT_EQ(config.n_heads_of(3), 2);
  const auto error_with = [&](const char* key, const json& value) {
    Changed changed = checkpoint;
    changed.json_config()[key] = value;
    return error_of(changed);
  };
  EXPECT_EQ(error_of(checkpoint), "");
  EXPECT_THAT(error_with("layer_types", {"full_attention", "chunked_attention", "a", "b"}),
              HasSubstr("layer_types: expected sliding_attention, indexed_attention or"));
  EXPECT_THAT(error_with("layer_types", {"full_attention"}), HasSubstr("expected 4 numbers"));
  EXPECT_THAT(error_with("layer_types", 3), HasSubstr("layer_types: expected"));
  EXPECT_THAT(error_with("swa_attention_gate_type", "elementwise"),
              HasSubstr("swa_attention_gate_type"));
  EXPECT_THAT(error_with("use_dynamic_rsf", true), HasSubstr("use_dynamic_rsf"));
  EXPECT_THAT(error_with("q_lora_rank", 0), HasSubstr("q_lora_rank: expected a latent"));
  EXPECT_THAT(error_with("index_head_dim", 13), HasSubstr("index_head_dim: expected an even"));
  EXPECT_THAT(error_with("hidden_act", "gelu"), HasSubstr("hidden_act: expected silu"));
  EXPECT_THAT(error_with("topk_method", "greedy"), HasSubstr("topk_method"));
  const json of_two = {{"2", {{"kv_lora_rank", 16}}}, {"3", {{"kv_lora_rank", 12}}}};
  EXPECT_THAT(error_with("per_layer_config", of_two), HasSubstr("per_layer_config: expected"));
  EXPECT_EQ(error_with("use_dsa", false), "");
}

TEST(Config, Hy4SaysWhatItCannotBe) {
  const Changed checkpoint(kModels / "hy_v4");
  const ModelConfig config = read_config(checkpoint).value();
  EXPECT_EQ(config.mixed_streams.shares(), 2 * 3);
  EXPECT_EQ(config.layers[2].selecting_layer, 1);
  const CacheSpec spec = config.cache_spec(KvDType::kF16, 16);
  int64_t bytes = 0;
  for (const KvLayerSpec& layer : spec.layers) bytes += CacheSpec::token_bytes(layer, spec.dtype);
  constexpr int kLatent = 12, kTurned = 8, kIndexKey = 12;
  EXPECT_EQ(bytes, 2 * (3 * (kLatent + kTurned) + 2 * kIndexKey));
  const auto error_with = [&](const char* key, const json& value) {
    Changed changed = checkpoint;
    changed.json_config()[key] = value;
    return error_of(changed);
  };
  EXPECT_EQ(error_of(checkpoint), "");
  EXPECT_THAT(error_with("enable_ihc", false), HasSubstr("enable_ihc: expected true"));
  EXPECT_THAT(error_with("gated_mla", false), HasSubstr("gated_mla: expected true"));
  EXPECT_THAT(error_with("gating_type", "headwise"), HasSubstr("gating_type: expected"));
  EXPECT_THAT(error_with("learnable_sink", false), HasSubstr("learnable_sink: expected true"));
  EXPECT_THAT(error_with("rope_interleave", false), HasSubstr("rope_interleave: expected true"));
  EXPECT_THAT(error_with("layer_types", {"full_attention"}), HasSubstr("layer_types: expected"));
  EXPECT_EQ(error_with("layer_types", {"sparse", "sparse_attention", "sparse"}), "");
  EXPECT_THAT(error_with("swiglu_limit", 0), HasSubstr("swiglu_limit"));
  EXPECT_THAT(error_with("hc_mult", 17), HasSubstr("hc_mult"));
  EXPECT_THAT(error_with("indexer_types", {"shared", "full", "full"}),
              HasSubstr("full in the first"));
  EXPECT_THAT(error_with("index_head_dim", 13), HasSubstr("index_head_dim: expected an even"));
}

// A pair of layers has one index in the file.
TEST(Config, LongcatSaysWhatItCannotBe) {
  const Changed checkpoint(kModels / "longcat_flash");
  const ModelConfig config = read_config(checkpoint).value();
  EXPECT_EQ(config.n_layers, 4);
  EXPECT_EQ(config.experts.n_routed(), 9);
  EXPECT_EQ(config.layers[3].joining_layer, 2);
  EXPECT_FALSE(config.layers[3].moe);
  const auto error_with = [&](const char* key, const json& value) {
    Changed changed = checkpoint;
    changed.json_config()[key] = value;
    return error_of(changed);
  };
  EXPECT_EQ(error_of(checkpoint), "");
  EXPECT_THAT(error_with("router_bias", true), HasSubstr("router_bias: expected false"));
  EXPECT_THAT(error_with("mla_scale_q_lora", false), HasSubstr("mla_scale_q_lora: expected true"));
  EXPECT_THAT(error_with("zero_expert_type", "copy"), HasSubstr("zero_expert_type: expected"));
  EXPECT_THAT(error_with("attention_method", "MHA"), HasSubstr("attention_method: expected MLA"));
  EXPECT_THAT(error_with("zero_expert_num", -1), HasSubstr("zero_expert_num"));
  EXPECT_THAT(error_with("q_lora_rank", 0), HasSubstr("q_lora_rank: expected a latent"));
  EXPECT_THAT(error_with("moe_topk", 10), HasSubstr("num_experts_per_tok"));
  EXPECT_THAT(error_with("hidden_act", "gelu"), HasSubstr("hidden_act: expected silu"));
}

// Layers of the middle are computed three times, and have a cache for each time.
TEST(Config, DorySaysWhatItCannotBe) {
  const Changed checkpoint(kModels / "dory");
  const ModelConfig config = read_config(checkpoint).value();
  EXPECT_EQ(config.n_layers, 8);
  std::vector<int> weights, windows;
  for (const LayerConfig& layer : config.layers) {
    weights.push_back(layer.weights_layer);
    windows.push_back(layer.window);
  }
  EXPECT_THAT(weights, ::testing::ElementsAre(-1, -1, -1, 1, 2, 1, 2, -1));
  EXPECT_THAT(windows, ::testing::ElementsAre(9, 0, 9, 0, 9, 0, 9, 0));
  EXPECT_EQ(config.cache_spec(KvDType::kF32, 16).layers.size(), 8u);
  EXPECT_GT(config.n_active_parameters(), config.n_parameters());
  const auto error_with = [&](const char* key, const json& value) {
    Changed changed = checkpoint;
    changed.json_config()[key] = value;
    return error_of(changed);
  };
  EXPECT_EQ(error_of(checkpoint), "");
  EXPECT_THAT(error_with("recurrent_kv_cache_mode", "last_loop"),
              HasSubstr("recurrent_kv_cache_mode: expected per_loop"));
  EXPECT_THAT(error_with("n_recurrent_loops", 0), HasSubstr("n_recurrent_loops"));
  EXPECT_THAT(error_with("n_recurrent_loops", 600), HasSubstr("at most 1024 layers"));
  EXPECT_THAT(error_with("n_output_layers", 4), HasSubstr("expected the sum of"));
  EXPECT_THAT(error_with("layer_types", {"mlp"}), HasSubstr("layer_types"));
  EXPECT_THAT(error_with("mlp_bias", true), HasSubstr("mlp_bias: expected false"));
  EXPECT_THAT(error_with("initial_state", "zeros"), HasSubstr("initial_state: expected"));
}

TEST(Config, DoryIsReadByTheNamesOfItsOtherPrograms) {
  Changed checkpoint(kModels / "dory");
  json& object = checkpoint.json_config();
  for (const char* key : {"layer_types", "rope_parameters", "head_dim", "sliding_window"})
    object.erase(key);
  object["hybrid_layer_pattern"] = "S-*-S-*-";
  object["attention_head_dim"] = 8, object["swa_window_size"] = 9;
  object["rope_theta"] = 5e5, object["rope_theta_2"] = 2e4;
  object["rope_profile_layers"] = {2, 2, 1, 1, 2, 2, 1, 1};
  const ModelConfig config = read_config(checkpoint).value();
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.layers[0].window, 9);
  EXPECT_EQ(config.ropes[static_cast<size_t>(config.layers[1].rope)].theta, 5e5f);
  EXPECT_EQ(config.ropes[static_cast<size_t>(config.layers[0].rope)].theta, 2e4f);
  object["rope_profile_layers"] = {2, 2, 1, 1, 1, 2, 1, 1};
  EXPECT_THAT(error_of(checkpoint), HasSubstr("rope_type"));
}

TEST(Config, HrmTextSaysWhatItCannotBe) {
  const Changed checkpoint(kModels / "hrm_text");
  const ModelConfig config = read_config(checkpoint).value();
  EXPECT_EQ(config.n_layers, 12);
  EXPECT_EQ(config.layers[4].weights_layer, -1);  // the second stack's first layer
  EXPECT_EQ(config.layers[11].weights_layer, 5);
  EXPECT_EQ(config.layers[9].weights_layer, 1);
  const auto error_with = [&](const char* key, const json& value) {
    Changed changed = checkpoint;
    changed.json_config()[key] = value;
    return error_of(changed);
  };
  EXPECT_EQ(error_of(checkpoint), "");
  EXPECT_THAT(error_with("attention_bias", true), HasSubstr("attention_bias: expected false"));
  EXPECT_THAT(error_with("num_key_value_heads", 2), HasSubstr("num_key_value_heads"));
  EXPECT_THAT(error_with("H_cycles", 1000), HasSubstr("at most 1024"));
  EXPECT_THAT(error_with("L_cycles", -1), HasSubstr("L_cycles"));
  Changed tied = checkpoint;
  tied.json_config()["tie_word_embeddings"] = true, tied.json_config()["L_cycles"] = 0;
  EXPECT_THAT(error_of(tied), HasSubstr("L_cycles"));
  // A file that counts the layers of a stack.
  Changed stack = checkpoint;
  stack.json_config().erase("num_layers_per_stack");
  stack.json_config()["num_hidden_layers"] = 2;
  EXPECT_EQ(read_config(stack).value().n_layers, 12);
}

TEST(Config, InklingSaysWhatItCannotBe) {
  const Changed checkpoint(kModels / "inkling");
  const ModelConfig config = read_config(checkpoint).value();
  EXPECT_EQ(config.vocab_size, 51);
  EXPECT_EQ(config.rows_in_file(), 53);
  EXPECT_EQ(config.experts.count, 8);
  EXPECT_EQ(config.experts.routing.n_active, 4);
  EXPECT_EQ(config.n_heads_of(0), 6);
  EXPECT_FALSE(config.layers[0].query_scale);
  EXPECT_TRUE(config.layers[1].query_scale);
  const auto error_with = [&](const char* key, const json& value) {
    Changed changed = checkpoint;
    changed.json_config()["text_config"][key] = value;
    return error_of(changed);
  };
  EXPECT_EQ(error_of(checkpoint), "");
  EXPECT_THAT(error_with("shared_expert_sink", false), HasSubstr("shared_expert_sink"));
  EXPECT_THAT(error_with("layer_types", {"hybrid"}), HasSubstr("layer_types: expected 4 layers"));
  EXPECT_THAT(error_with("d_rel", 0), HasSubstr("d_rel"));
  EXPECT_THAT(error_with("unpadded_vocab_size", 54), HasSubstr("unpadded_vocab_size"));
  EXPECT_THAT(error_with("n_shared_experts", 0), HasSubstr("n_shared_experts"));
  EXPECT_THAT(error_with("sconv_kernel_size", 1), HasSubstr("conv_kernel_size"));
}

TEST(Config, GrokSaysWhatItCannotBe) {
  const ModelConfig first = read_config(Changed(kModels / "grok")).value();
  EXPECT_EQ(first.experts.router_softcap, 0.0f);
  EXPECT_FALSE(first.experts.routing.normalize);
  const Changed checkpoint(kModels / "grok2");
  const ModelConfig config = read_config(checkpoint).value();
  EXPECT_GT(config.experts.router_softcap, 0.0f);
  EXPECT_EQ(config.experts.shared_dim, 40);
  EXPECT_EQ(config.max_seq_len, 64);  // behind it scores grow
  const auto error_with = [&](const char* key, const json& value) {
    Changed changed = checkpoint;
    changed.json_config()[key] = value;
    return error_of(changed);
  };
  EXPECT_EQ(error_of(checkpoint), "");
  EXPECT_THAT(error_with("rope_type", "yarn_log"), HasSubstr("rope_type: expected original"));
  EXPECT_THAT(error_with("rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}),
              HasSubstr("rope_scaling: expected none"));
  EXPECT_THAT(error_with("sliding_window_size", 512), HasSubstr("sliding_window_size"));
  EXPECT_THAT(error_with("global_attn_every_n", 2), HasSubstr("global_attn_every_n"));
}

TEST(Config, GroveMoeSaysWhatItCannotBe) {
  const Changed checkpoint(kModels / "grove_moe_groups");
  const ModelConfig config = read_config(checkpoint).value();
  EXPECT_EQ(config.experts.group_size, 3);
  EXPECT_EQ(config.experts.group_dim, 20);
  EXPECT_FALSE(config.layers[1].moe);
  Changed unsaid = checkpoint;
  for (const char* key :
       {"num_experts_per_group", "parallel_expert_intermediate_size", "parallel_expert_scale"})
    unsaid.json_config().erase(key);
  const ExpertsConfig usual = read_config(unsaid).value().experts;
  EXPECT_EQ(usual.group_size, 2);
  EXPECT_EQ(usual.group_dim, 128);
  EXPECT_EQ(usual.group_factor, 0.05f);
  const auto error_with = [&](const char* key, const json& value) {
    Changed changed = checkpoint;
    changed.json_config()[key] = value;
    return error_of(changed);
  };
  EXPECT_EQ(error_of(checkpoint), "");
  EXPECT_THAT(error_with("num_experts_per_group", 4), HasSubstr("expected a number that divides"));
  EXPECT_THAT(error_with("num_experts_per_group", 0), HasSubstr("num_experts_per_group"));
  EXPECT_THAT(error_with("norm_topk_prob", false), HasSubstr("norm_topk_prob: expected true"));
}

TEST(Config, PlamoSaysWhatItCannotBe) {
  const Changed first(kModels / "plamo");
  EXPECT_EQ(read_config(first).value().n_kv_heads, 2);  // the file says 6
  for (const json& shared : {json(0), json("3"), json(-1), json(4000000000U)}) {
    Changed changed = first;
    changed.json_config()["n_shared_head"] = shared;
    EXPECT_NE(error_of(changed), "") << shared;
  }
  const Changed second(kModels / "plamo2_windows"), third(kModels / "plamo3");
  const ModelConfig scans = read_config(second).value(), windows = read_config(third).value();
  EXPECT_EQ(scans.layers[0].mixer != nullptr, true);
  EXPECT_EQ(scans.layers[1].window, 0);
  EXPECT_EQ(scans.layers[4].window, 10);
  EXPECT_EQ(scans.layers[4].rope, 1);
  EXPECT_EQ(windows.layers[0].window, 10);
  EXPECT_EQ(windows.layers[2].window, 0);
  EXPECT_EQ(read_config(Changed(kModels / "plamo3_yarn")).value().layers[0].window, 9);
  const auto error_with = [&](const Changed& checkpoint, const char* key, const json& value) {
    Changed changed = checkpoint;
    changed.json_config()[key] = value;
    return error_of(changed);
  };
  EXPECT_EQ(error_of(second), "");
  EXPECT_EQ(error_of(third), "");
  EXPECT_THAT(error_with(second, "rms_norm_eps", 1e-5), HasSubstr("rms_norm_eps: expected 1e-06"));
  EXPECT_THAT(error_with(second, "linear_type", "fp8"), HasSubstr("linear_type: expected normal"));
  EXPECT_THAT(error_with(second, "mamba_num_heads", 0), HasSubstr("mamba_num_heads"));
  EXPECT_THAT(error_with(second, "mamba_step", 1), HasSubstr("mamba_step"));
  EXPECT_THAT(error_with(third, "rope_scaling_factor", 4), HasSubstr("initial_context_length"));
  EXPECT_THAT(error_with(third, "attention_bias", true), HasSubstr("attention_bias"));
  EXPECT_THAT(error_with(third, "scale_embedding", true), HasSubstr("scale_embedding"));
}

TEST(Config, Axk2SaysWhatItCannotBe) {
  const Changed checkpoint(kModels / "axk2");
  const ModelConfig config = read_config(checkpoint).value();
  EXPECT_EQ(config.norm.gate_rank, 5);
  EXPECT_EQ(config.experts.routing.n_groups, 1);
  EXPECT_FALSE(config.layers[0].moe);
  const auto error_with = [&](const char* key, const json& value) {
    Changed changed = checkpoint;
    changed.json_config()[key] = value;
    return error_of(changed);
  };
  EXPECT_EQ(error_of(checkpoint), "");
  EXPECT_THAT(error_with("n_group", 2), HasSubstr("n_group and topk_group: expected both"));
  EXPECT_THAT(error_with("q_lora_rank", 0), HasSubstr("q_lora_rank: expected a latent"));
  EXPECT_THAT(error_with("gated_norm_rank", 0), HasSubstr("gated_norm_rank"));
  EXPECT_THAT(error_with("layer_types", {"full"}), HasSubstr("layer_types: expected"));
  Changed other(kModels / "llama2");
  other.json_config()["gated_norm_rank"] = 16;
  EXPECT_THAT(error_of(other), HasSubstr("gated_norm_rank: 16 is not understood"));
}

TEST(Config, MuseSparkSaysWhatItCannotBe) {
  const Changed checkpoint(kModels / "muse_spark");
  const ModelConfig config = read_config(checkpoint).value();
  EXPECT_EQ(config.expert_dim(), 20);
  EXPECT_EQ(config.layers[0].rope, -1);
  EXPECT_EQ(config.layers[1].window, 9);
  EXPECT_NEAR(config.residual.share_temperature, 0.3f, 1e-6);
  const auto error_with = [&](const char* key, const json& value) {
    Changed changed = checkpoint;
    changed.json_config()["text_config"][key] = value;
    return error_of(changed);
  };
  EXPECT_EQ(error_of(checkpoint), "");
  EXPECT_THAT(error_with("residual_gate_temperature", 0), HasSubstr("residual_gate_temperature"));
  EXPECT_THAT(error_with("moe_hidden_size", 0), HasSubstr("moe_hidden_size"));
  EXPECT_THAT(error_with("post_norm_eps", 0), HasSubstr("post_norm_eps: expected a positive"));
  EXPECT_THAT(error_with("mlp_layer_types", {"sparse"}), HasSubstr("mlp_layer_types"));
  EXPECT_THAT(error_with("layer_rope_theta", {1.0}), HasSubstr("layer_rope_theta: expected 5"));
}

TEST(Config, ZayaSaysWhatItCannotBe) {
  const Changed checkpoint(kModels / "zaya_sliding");
  const ModelConfig config = read_config(checkpoint).value();
  EXPECT_EQ(config.layers[0].window, 9);
  EXPECT_EQ(config.layers[1].window, 0);
  EXPECT_EQ(config.ropes[0].theta, 1e5f);
  EXPECT_EQ(config.ropes[1].rotary_dim, 6);
  EXPECT_TRUE(config.has_states());
  EXPECT_EQ(config.stage_dim(1), 24 + 12);
  const auto error_with = [&](const char* key, const json& value) {
    Changed changed = checkpoint;
    changed.json_config()[key] = value;
    return error_of(changed);
  };
  EXPECT_EQ(error_of(checkpoint), "");
  EXPECT_THAT(error_with("num_experts_per_tok", 2), HasSubstr("num_experts_per_tok: expected 1"));
  EXPECT_THAT(error_with("hidden_act", "gelu"), HasSubstr("hidden_act: expected silu"));
  EXPECT_THAT(error_with("sliding_window", nullptr), HasSubstr("sliding_window: expected"));
  EXPECT_THAT(error_with("layer_types", {"hybrid", "mamba", "hybrid", "hybrid"}),
              HasSubstr("layer_types: expected"));
  EXPECT_THAT(error_with("cca_time1", 0), HasSubstr("cca_time1"));
  EXPECT_THAT(error_with("rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e6}}),
              HasSubstr("rope_type"));
  EXPECT_THAT(error_with("router_hidden_size", 0), HasSubstr("router_hidden_size"));
}

TEST(Config, RwkvSaysWhatItCannotBe) {
  const Changed sixth(kModels / "rwkv6"), seventh(kModels / "rwkv7");
  const ModelConfig config = read_config(seventh).value();
  EXPECT_TRUE(config.has_states());
  EXPECT_EQ(config.carried_dim, config.model_dim);
  EXPECT_FALSE(config.layers[0].attention);
  const auto error_with = [](Changed changed, const char* key, const json& value) {
    changed.json_config()[key] = value;
    return error_of(changed);
  };
  EXPECT_EQ(error_of(sixth), "");
  EXPECT_EQ(error_of(seventh), "");
  EXPECT_THAT(error_with(sixth, "head_size", 7), HasSubstr("expected a divisor of 24 features"));
  EXPECT_THAT(error_with(sixth, "attention_hidden_size", 48),
              HasSubstr("attention_hidden_size: expected hidden_size"));
  EXPECT_THAT(error_with(seventh, "attn", {{"layers", {0}}}), HasSubstr("attn: expected no"));
  EXPECT_THAT(error_with(seventh, "norm_first", false), HasSubstr("norm_first: expected true"));
  EXPECT_THAT(error_with(seventh, "norm_bias", false), HasSubstr("norm_bias: expected true"));
  EXPECT_THAT(error_with(seventh, "hidden_act", "relu"), HasSubstr("hidden_act: expected relu2"));
  EXPECT_THAT(error_with(seventh, "value_dim", {48, 48, 48}), HasSubstr("value_dim: expected"));
  EXPECT_THAT(error_with(seventh, "gate_low_rank_dim", 0), HasSubstr("gate_low_rank_dim"));
}

TEST(Config, SmallThinkerSaysWhatItCannotBe) {
  const Changed checkpoint(kModels / "smallthinker");
  const ModelConfig config = read_config(checkpoint).value();
  EXPECT_EQ(config.layers[0].window, 0);
  EXPECT_EQ(config.layers[0].rope, -1);
  EXPECT_EQ(config.layers[3].window, 9);
  EXPECT_EQ(config.experts.routing.score, RouterScore::kSigmoid);
  const auto error_with = [&](const char* key, const json& value) {
    Changed changed = checkpoint;
    changed.json_config()[key] = value;
    return error_of(changed);
  };
  EXPECT_EQ(error_of(checkpoint), "");
  EXPECT_THAT(error_with("rope_layout", {1, 1}), HasSubstr("rope_layout: expected 4 numbers"));
  EXPECT_THAT(error_with("sliding_window_layout", {1, 1}),
              HasSubstr("expected a list of 4 layers"));
  EXPECT_THAT(error_with("norm_topk_prob", false), HasSubstr("norm_topk_prob: expected true"));
  EXPECT_THAT(error_with("moe_num_active_primary_experts", 7), HasSubstr("num_experts_per_tok"));
}

TEST(Config, ArcticSaysWhatItCannotBe) {
  const Changed checkpoint(kModels / "arctic");
  const ModelConfig config = read_config(checkpoint).value();
  EXPECT_EQ(config.ffn_dim, 32);
  EXPECT_EQ(config.experts.ffn_dim, 16);
  const auto error_with = [&](const char* key, const json& value) {
    Changed changed = checkpoint;
    changed.json_config()[key] = value;
    return error_of(changed);
  };
  EXPECT_EQ(error_of(checkpoint), "");
  EXPECT_THAT(error_with("moe_layer_frequency", 2), HasSubstr("moe_layer_frequency: expected 1"));
  EXPECT_THAT(error_with("parallel_attn_mlp_res", false), HasSubstr("parallel_attn_mlp_res"));
  EXPECT_THAT(error_with("use_residual", false), HasSubstr("use_residual: expected true"));
  EXPECT_THAT(error_with("num_experts_per_tok", 1), HasSubstr("num_experts_per_tok: expected 2"));
}

TEST(Config, MiniMax01SaysWhatItCannotBe) {
  const Changed checkpoint(kModels / "minimax_01");
  const ModelConfig config = read_config(checkpoint).value();
  EXPECT_TRUE(config.layers[0].carries_state());
  EXPECT_FALSE(config.layers[0].attention);
  EXPECT_TRUE(config.layers[7].attention);
  EXPECT_EQ(config.residual.norm_factor, 3.5f);
  const auto error_with = [&](const char* key, const json& value) {
    Changed changed = checkpoint;
    changed.json_config()[key] = value;
    return error_of(changed);
  };
  EXPECT_EQ(error_of(checkpoint), "");
  EXPECT_THAT(error_with("attn_type_list", {0, 1}), HasSubstr("for 8 layers"));
  EXPECT_THAT(error_with("attn_type_list", {0, 1, 2, 0, 0, 0, 0, 1}), HasSubstr("layer_types"));
  EXPECT_THAT(error_with("layernorm_mlp_alpha", 2.0),
              HasSubstr("alpha factors: expected the same"));
  EXPECT_THAT(error_with("layernorm_mlp_beta", 2.0), HasSubstr("beta factors: expected the same"));
  EXPECT_THAT(error_with("postnorm", false), HasSubstr("postnorm: expected true"));
  EXPECT_THAT(error_with("shared_intermediate_size", 8), HasSubstr("shared_intermediate_size"));
  EXPECT_THAT(error_with("hidden_act", "gelu"), HasSubstr("hidden_act: expected silu"));
  EXPECT_THAT(error_with("rotary_dim", 9), HasSubstr("rotary_dim"));
}

TEST(Config, LatentsAreCachedOnce) {
  const CacheSpec spec =
      config_from_shape("deepseek-v2-lite").value().cache_spec(KvDType::kF16, 16);
  constexpr int kHeads = 16, kKey = 128 + 64, kValue = 128, kLatent = 512 + 64;
  EXPECT_EQ(CacheSpec::token_bytes(spec.layers[0], spec.dtype), 2 * kLatent);
  EXPECT_LT(CacheSpec::token_bytes(spec.layers[0], spec.dtype), 2 * kHeads * (kKey + kValue) / 8);
}

// As llama.cpp's converter wrote them until April 2025: one tensor of all heads' keys and values.
TEST(Config, LatentsOfOlderFilesAreRead) {
  Changed source(kModels / "deepseek_v2/model.gguf");
  const auto directory = open_weights(kModels / "deepseek_v2").value();
  json& config = source.json_config();
  config.erase("deepseek2.attention.key_length_mla");
  config.erase("deepseek2.attention.value_length_mla");
  config["deepseek2.attention.key_length"] = 14, config["deepseek2.attention.value_length"] = 10;
  config["deepseek2.attention.head_count_kv"] = 4;
  std::erase_if(source.tensor_list(), [](const TensorInfo& tensor) {
    return tensor.name.ends_with("attn_k_b.weight") || tensor.name.ends_with("attn_v_b.weight");
  });
  for (int i = 0; i < 3; ++i) {
    TensorInfo both =
        *directory->find(fmt::format("model.layers.{}.self_attn.kv_b_proj.weight", i));
    both.name = fmt::format("blk.{}.attn_kv_b.weight", i);
    source.tensor_list().push_back(both);
  }
  const auto ops = make_ops("cpu", {.n_threads = 1}).value();
  const auto logits_of = [&](const WeightSource& of) {
    const auto model = Model::load(of, *ops);
    EXPECT_TRUE(model) << model.error().message;
    return model ? testing::Runner(**model, *ops).run(0, std::vector<int>{1, 2, 3, 4, 5})
                 : testing::Rows();
  };
  EXPECT_EQ(logits_of(source), logits_of(*directory));
}

TEST(Config, MessagesSayWhatWhereExpectedGot) {
  const auto with = [](const char* key, const json& value, const char* file = "") {
    Changed source(*file == '\0' ? kModels / "llama2" : kModels / "llama2" / file);
    source.json_config()[key] = value;
    return error_of(source);
  };
  EXPECT_THAT(with("num_attention_heads", 0),
              AllOf(HasSubstr("llama2"), HasSubstr("num_attention_heads"), HasSubstr("1..1024"),
                    HasSubstr("got 0")));
  EXPECT_THAT(with("num_attention_heads", nullptr), HasSubstr("num_attention_heads is missing"));
  EXPECT_THAT(with("num_hidden_layers", 1000000000), HasSubstr("got 1000000000"));
  EXPECT_THAT(with("head_dim", 7), HasSubstr("even number of rotated dimensions"));
  EXPECT_THAT(with("num_key_value_heads", 3), HasSubstr("multiple of the 3 KV heads"));
  EXPECT_THAT(with("rms_norm_eps", std::nan("")), HasSubstr("rms_norm_eps"));
  EXPECT_THAT(with("hidden_act", "softplus"), HasSubstr("'softplus'"));
  EXPECT_THAT(with("model_type", "rwkv5"), "");  // the class name still says Llama
  EXPECT_THAT(with("rope_parameters", {{"rope_type", "spiral"}}), HasSubstr("'spiral'"));
  EXPECT_THAT(with("quantization_config", {{"quant_method", "hqq"}}), HasSubstr("hqq"));
  EXPECT_THAT(
      with("general.architecture", "rwkv5", "model.gguf"),
      AllOf(HasSubstr("general.architecture"), HasSubstr("llama, mistral"), HasSubstr("'rwkv5'")));
  EXPECT_THAT(with("llama.attention.head_count", "four", "model.gguf"),
              HasSubstr("llama.attention.head_count: expected an integer"));
  EXPECT_THAT(with("llama.attention.head_count", json::array({4}), "model.gguf"),
              HasSubstr("llama.attention.head_count: expected 2 numbers, got 1"));
  EXPECT_THAT(with("llama.attention.head_count", json::array({4, 8}), "model.gguf"),
              HasSubstr("llama.attention.head_count: 4 and 8 heads"));
}

TEST(Config, LengthsBeyondWhichAttentionChangesAreNotOffered) {
  const auto length = [](const char* model, const json& changes) {
    Changed source(kModels / model);
    source.json_config().update(changes);
    const auto config = read_config(source);
    return config ? config->max_seq_len : -1;
  };
  const json qwen = {{"max_position_embeddings", 128}, {"seq_length", 64}};
  EXPECT_EQ(length("qwen", qwen), 64);
  json plain = qwen;
  plain.update({{"use_dynamic_ntk", false}, {"use_logn_attn", false}});
  EXPECT_EQ(length("qwen", plain), 128);
  EXPECT_EQ(length("minicpm", {{"sparse_config", {{"dense_len", 32}}}}), 32);
  EXPECT_EQ(length("minicpm", {{"sparse_config", nullptr}}), 128);
}

TEST(Config, HeadsByLayerOnlyWhereProjectionsAndCachesHaveThem) {
  Changed fused(kModels / "internlm2");
  const int n = fused.json_config()["num_key_value_heads"];
  const json heads = json::array({n, 1});
  ASSERT_GT(n, 1);
  fused.json_config()["num_key_value_heads"] = heads;
  EXPECT_THAT(error_of(fused), HasSubstr("layers with fused projections have equally many"));
  Changed latent(kModels / "deepseek_v3");
  const int n_layers = latent.json_config()["num_hidden_layers"];
  latent.json_config()["num_key_value_heads"] = json::array();
  for (int i = 0; i < n_layers; ++i) latent.json_config()["num_key_value_heads"].push_back(i + 1);
  const auto config = read_config(latent);
  ASSERT_TRUE(config) << config.error().message;
  for (int i = 0; i < n_layers; ++i) EXPECT_EQ(config->n_kv_heads_of(i), 1);
}

TEST(Config, BaichuanHasDistancesWhereItHasNoRotation) {
  const auto bias = [](const char* model, const char* file, const json& changes) {
    Changed source(*file == '\0' ? kModels / model : kModels / model / file);
    source.json_config().update(changes);
    const auto config = read_config(source);
    return config ? config->attention.alibi_max_bias : -1.0f;
  };
  EXPECT_EQ(bias("baichuan", "", json::object()), 0.0f);
  EXPECT_EQ(bias("baichuan_alibi", "", json::object()), 8.0f);
  EXPECT_EQ(bias("baichuan", "model.gguf", json::object()), 0.0f);
  EXPECT_EQ(bias("baichuan", "model.gguf", {{"baichuan.block_count", 40}}), 8.0f);
  EXPECT_EQ(bias("baichuan", "model.gguf", {{"baichuan.attention.max_alibi_bias", 4}}), 4.0f);
  Changed second(kModels / "baichuan");
  second.json_config()["z_loss_weight"] = 0;
  const auto config = read_config(second);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_TRUE(config->output.unit_rows);
}

TEST(Config, NormsBehindExpertsAreInDenseLayersToo) {
  const auto ops = make_ops("cpu", {.n_threads = 1}).value();
  Changed source(kModels / "axk1");
  TensorInfo norm = source.tensors()[0];
  for (const TensorInfo& tensor : source.tensors())
    if (tensor.name == "model.layers.1.post_mlp_layernorm.weight") norm = tensor;
  norm.name = "model.layers.0.post_mlp_layernorm.weight";
  source.tensor_list().push_back(norm);
  EXPECT_EQ(try_model(source, *ops), "");
  source.tensor_list().back().name = "model.layers.0.post_mlp_norm.weight";
  EXPECT_THAT(try_model(source, *ops), HasSubstr("post_mlp_norm"));
}

TEST(Config, LayersOfDeciLackWhatTheFileSays) {
  const auto config = read_config(Changed(kModels / "deci"));
  ASSERT_TRUE(config) << config.error().message;
  std::vector<bool> attend, feed;
  for (const LayerConfig& layer : config->layers) {
    attend.push_back(layer.attention);
    feed.push_back(layer.feed_forward);
  }
  EXPECT_EQ(attend, std::vector<bool>({true, false, true, false, true}));
  EXPECT_EQ(feed, std::vector<bool>({true, true, false, false, true}));
  Changed linear(kModels / "deci");
  linear.json_config()["block_configs"][1]["attention"]["replace_with_linear"] = true;
  EXPECT_THAT(error_of(linear), HasSubstr("replace_with_linear"));
  Changed window(kModels / "deci");
  window.json_config()["block_configs"][0]["attention"]["window_length"] = 8192;
  EXPECT_THAT(error_of(window), HasSubstr("window_length"));
}

TEST(Config, LayersBehindTheLastWholeGroupOfLing3AreRefused) {
  Changed source(kModels / "bailing_hybrid");
  source.json_config()["layer_group_size"] = 3;
  EXPECT_THAT(error_of(source), HasSubstr("layer_group_size"));
  source.json_config()["layer_types"] = {"linear_attention", "full_attention", "linear_attention",
                                         "full_attention"};
  EXPECT_EQ(error_of(source), "");
}

TEST(Config, LayersOfAlbertAreOneInMemory) {
  const auto ops = make_ops("cpu", {.n_threads = 1}).value();
  Changed source(kEncoders / "albert");
  const ModelConfig config = read_config(source).value();
  ASSERT_EQ(config.n_layers, 3);
  const auto weights = load_weights(source, config, *ops, {}).value();
  EXPECT_EQ(weights->layers.size(), 3U);
  EXPECT_EQ(&weights->layers[2], &weights->layers[0]);
  EXPECT_EQ(weights->layers.end() - weights->layers.begin(), 1);
  source.json_config()["num_hidden_layers"] = 1;
  EXPECT_EQ(config.n_parameters(), read_config(source).value().n_parameters());
}

TEST(Config, NomicBertWithExpertsIsFoundInsideOtherModels) {
  const auto ops = make_ops("cpu", {.n_threads = 1}).value();
  for (const std::string prefix : {"bert.", "nomic_bert.", "model."}) {
    Changed source(kEncoders / "nomic_bert_moe");
    for (TensorInfo& tensor : source.tensor_list()) tensor.name = prefix + tensor.name;
    const auto model = Model::load(source, *ops);
    EXPECT_TRUE(model) << prefix << ": " << model.error().message;
  }
}

TEST(Config, EncodersByDistanceSayWhatTheyCannotBe) {
  const auto error_with = [](const char* name, const char* key, const json& value) {
    Changed source(kEncoders / name);
    source.json_config()[key] = value;
    return error_of(source);
  };
  for (const auto& [key, value] : {std::pair<const char*, json>{"conv_kernel_size", 3},
                                   {"share_att_key", false},
                                   {"relative_attention", false},
                                   {"position_biased_input", true},
                                   {"norm_rel_ebd", "batch_norm"},
                                   {"pos_att_type", ""},
                                   {"embedding_size", 128},
                                   {"attention_head_size", 12},
                                   {"position_buckets", 3},
                                   {"position_buckets", 1000},
                                   {"max_relative_positions", 1 << 20}})
    EXPECT_THAT(error_with("deberta_v2", key, value), HasSubstr(key)) << value;
  EXPECT_THAT(error_with("mpnet", "relative_attention_num_buckets", 64),
              HasSubstr("relative_attention_num_buckets: expected 32"));
  EXPECT_THAT(error_with("jina_v2", "feed_forward_type", "original"),
              HasSubstr("feed_forward_type"));
  EXPECT_THAT(error_with("jina_v2", "position_embedding_type", "absolute"),
              HasSubstr("position_embedding_type"));
  for (const char* key : {"rms_norm", "rope"})
    EXPECT_THAT(error_with("neo_bert", key, false), HasSubstr(key));
  EXPECT_THAT(error_with("neo_bert", "ngpt", true), HasSubstr("ngpt"));
}

TEST(Config, ClassesDecideWhereModelTypesDoNot) {
  EXPECT_EQ(read_config(Changed(kEncoders / "jina_v2")).value().arch, "jina-bert-v2");
  EXPECT_EQ(read_config(Changed(kEncoders / "bert")).value().arch, "bert");
}

TEST(Config, TensorOfAnotherModelIsRefused) {
  const auto ops = make_ops("cpu", {.n_threads = 1}).value();
  Changed source(kModels / "llama2");
  TensorInfo extra = source.tensors()[0];
  extra.name = "model.layers.0.self_attn.q_norm.weight";
  source.tensor_list().push_back(extra);
  EXPECT_THAT(try_model(source, *ops), HasSubstr("q_norm.weight"));
}

// --- Known shapes ---

TEST(Shapes, AllAreReadable) {
  for (const NamedShape& shape : named_shapes()) {
    const auto config = config_from_shape(shape.name);
    ASSERT_TRUE(config) << shape.name << ": " << config.error().message;
    EXPECT_EQ(config->name, shape.name);
  }
  const ModelConfig whole = config_from_shape("qwen3-next-80b-a3b").value(),
                    part = config_from_shape("qwen3-next-80b-a3b:8").value();
  EXPECT_NEAR(static_cast<double>(whole.n_parameters()) / 1e9, 79.7, 1);
  EXPECT_EQ(part.n_layers, 8);
  EXPECT_FALSE(part.layers[7].carries_state());
  EXPECT_EQ(config_from_shape("granite-4-tiny:6")->layers.size(), 6u);
  EXPECT_NEAR(static_cast<double>(config_from_shape("gpt-oss-120b")->n_parameters()) / 1e9, 116.8,
              1);
  for (const char* wrong :
       {"llama-3.1-8b:0", "llama-3.1-8b:33", "llama-3.1-8b:", "llama-3.1-8b:x", "gpt2:6"})
    EXPECT_EQ(config_from_shape(wrong).error().code, ErrorCode::kInvalidArgument) << wrong;
  EXPECT_THAT(config_from_shape("llama-9-1t").error().message,
              AllOf(HasSubstr("llama-9-1t"), HasSubstr("gpt2")));
}

TEST(Shapes, ParametersAsPublished) {
  const auto billions = [](const char* name) {
    return static_cast<double>(config_from_shape(name)->n_parameters()) / 1e9;
  };
  EXPECT_NEAR(billions("llama-2-7b"), 6.738, 0.001);
  EXPECT_NEAR(billions("llama-2-70b"), 68.977, 0.001);
  EXPECT_NEAR(billions("llama-3.1-8b"), 8.030, 0.001);
  EXPECT_NEAR(billions("llama-3.1-405b"), 405.853, 0.001);
  EXPECT_NEAR(billions("deepseek-v3"), 671.026, 0.001);
  EXPECT_NEAR(billions("deepseek-v3.2"), 671.878, 0.001);
  EXPECT_NEAR(billions("llama-3.2-1b"), 1.236, 0.001);
  EXPECT_NEAR(billions("mistral-7b"), 7.242, 0.001);
  EXPECT_NEAR(billions("mixtral-8x7b"), 46.703, 0.001);
  EXPECT_NEAR(billions("qwen2.5-0.5b"), 0.494, 0.001);
  EXPECT_NEAR(billions("qwen3-30b-a3b"), 30.532, 0.001);
  EXPECT_NEAR(billions("qwen3.5-0.8b"), 0.7524, 0.0001);
  EXPECT_NEAR(billions("qwen3.5-35b-a3b"), 34.661, 0.001);
  EXPECT_NEAR(billions("granite-4-tiny"), 6.939, 0.001);
  EXPECT_NEAR(billions("lfm2-1.2b"), 1.170, 0.001);
  EXPECT_NEAR(billions("gpt-oss-20b"), 20.9, 0.05);
  EXPECT_NEAR(billions("smollm-135m"), 0.1345, 0.0001);
  EXPECT_NEAR(billions("gemma-2-2b"), 2.614, 0.001);
  EXPECT_NEAR(billions("gemma-3-1b"), 1.000, 0.001);
  EXPECT_NEAR(billions("phi-3-mini"), 3.821, 0.001);
  EXPECT_NEAR(billions("gpt2"), 0.1244, 0.0002);
  EXPECT_NEAR(static_cast<double>(config_from_shape("mixtral-8x7b")->n_active_parameters()) / 1e9,
              12.75, 0.05);
}

TEST(Shapes, CacheOfWholeContexts) {
  const auto gib = [](const char* name, int n_tokens) {
    const CacheSpec spec = config_from_shape(name)->cache_spec(KvDType::kF16, 16);
    return static_cast<double>(spec.block_bytes(0)) * n_tokens / 16 / (1 << 30);
  };
  EXPECT_DOUBLE_EQ(gib("llama-2-7b", 4096), 2.0);
  EXPECT_DOUBLE_EQ(gib("llama-3-8b", 128000), 15.625);
  EXPECT_DOUBLE_EQ(gib("llama-2-70b", 4096), 1.25);
}

TEST(Shapes, WindowsAndRopes) {
  const ModelConfig gemma = config_from_shape("gemma-3-1b").value();
  for (int i = 0; i < gemma.n_layers; ++i) {
    EXPECT_EQ(gemma.layers[i].window, (i + 1) % 6 == 0 ? 0 : 512);
    EXPECT_EQ(gemma.ropes[gemma.layers[i].rope].theta, (i + 1) % 6 == 0 ? 1e6f : 1e4f);
  }
  const ModelConfig gemma2 = config_from_shape("gemma-2-2b").value();
  EXPECT_EQ(gemma2.layers[0].window, 4096);
  EXPECT_EQ(gemma2.layers[1].window, 0);
  EXPECT_EQ(gemma2.output.softcap, 30.0f);
  EXPECT_EQ(config_from_shape("mistral-7b")->layers[31].window, 4096);
}

}  // namespace
}  // namespace penstock
