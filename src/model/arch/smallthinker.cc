// SmallThinker: experts with ReLU gates that are chosen by the stream before attention; windows and
// rotation in some layers.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "model/arch/archs.h"

namespace penstock {

namespace {

using nlohmann::json;

constexpr int kMostThinkerWindow = 1 << 30;

// Kinds of layers as the usual lists, and the width that only experts have.
void usual_smallthinker(json& object) {
  const auto windows = object.find("sliding_window_layout");
  if (windows != object.end() && windows->is_array()) {
    json kinds = json::array();
    for (const json& each : *windows)
      kinds.push_back(each == 0 || each == false ? "full_attention" : "sliding_attention");
    object["layer_types"] = kinds;
  }
  if (object.contains("sliding_window_size"))
    object["sliding_window"] = object["sliding_window_size"];
  const auto width = object.find("moe_ffn_hidden_size");
  if (width != object.end()) object["intermediate_size"] = *width;
}

// GGUF files name a window only if some layers have one: then three of four have it, and these alone
// are rotated.
void configure_smallthinker(ConfigReader& reader, ModelConfig& config) {
  constexpr size_t kFullEvery = 4;
  config.ffn.activation = Activation::kRelu;
  read_experts(reader, config);
  ExpertsConfig& experts = config.experts;
  experts.routes_early = true;
  const bool by_sigmoid = reader.gguf()
                              ? reader.integer({"expert_gating_func", ""}, 1, 2, 1) == 2
                              : !reader.flag({"", "moe_primary_router_apply_softmax"}, false);
  experts.routing.score = by_sigmoid ? RouterScore::kSigmoid : RouterScore::kSoftmax;
  experts.routing.normalize = true;
  reader.expect_flag("norm_topk_prob", true);
  const Key window_key{"attention.sliding_window", "sliding_window"};
  if (reader.gguf() && reader.has(window_key)) {
    const int window = reader.integer(window_key, 1, kMostThinkerWindow);
    for (size_t i = 0; i < config.layers.size(); ++i) {
      const bool slides = i % kFullEvery != 0;
      config.layers[i].window = slides ? window : 0;
      config.layers[i].rope = slides ? 0 : -1;
    }
  }
  if (reader.gguf()) return;
  if (reader.has({"", "layer_types"})) read_windows(reader, config, 0, 4096);
  const Key rope_key{"", "rope_layout"};
  const std::vector<int> rotates = reader.integers(rope_key, 0, 1);
  if (!rotates.empty() && rotates.size() != config.layers.size())
    return reader.fail(ErrorCode::kCorruptFile,
                       fmt::format("rope_layout: expected {} numbers, got {}", config.layers.size(),
                                   rotates.size()));
  for (size_t i = 0; i < rotates.size(); ++i) config.layers[i].rope = rotates[i] != 0 ? 0 : -1;
}

void describe_smallthinker(ConfigWriter& writer, const ModelConfig& config) {
  const bool by_sigmoid = config.experts.routing.score == RouterScore::kSigmoid;
  writer.set({"expert_gating_func", ""}, by_sigmoid ? 2 : 1);
  writer.set({"", "moe_primary_router_apply_softmax"}, !by_sigmoid);
  writer.set({"feed_forward_length", ""}, config.experts.ffn_dim);
  json windows = json::array(), rotates = json::array();
  int window = 0;
  for (const LayerConfig& layer : config.layers) {
    windows.push_back(layer.window > 0 ? uint64_t{1} : uint64_t{0});
    rotates.push_back(layer.rope >= 0 ? uint64_t{1} : uint64_t{0});
    window = std::max(window, layer.window);
  }
  if (window > 0) writer.set({"attention.sliding_window", "sliding_window_size"}, window);
  writer.erase({"", "layer_types"});
  writer.set({"", "sliding_window_layout"}, windows);
  writer.set({"", "rope_layout"}, rotates);
}

void smallthinker_names(NameTable& names, const ModelConfig&) {
  names[tensor::kRouter] = "block_sparse_moe.primary_router";
  names[tensor::kExpertGate] = "block_sparse_moe.experts.{}.gate";
  names[tensor::kExpertUp] = "block_sparse_moe.experts.{}.up";
  names[tensor::kExpertDown] = "block_sparse_moe.experts.{}.down";
}

}  // namespace

StepOutputs smallthinker_forward(const ModelConfig& config, const ModelWeights& weights,
                                 StepShape shape, KvCache& cache, Ops& ops,
                                 const ForwardOptions& options) {
  PENSTOCK_CHECK(options.stream == nullptr);  // LayerRunner refuses such models
  const auto [first_layer, end_layer] = layers_of(config, weights, options);
  const Tensor x = ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream),
               normed = ops.new_tensor(shape.tokens, config.model_dim);
  DecoderParts decoder(config, weights, shape, cache, ops);
  begin_stream(config, weights, shape, x, ops, options);
  for (int i = first_layer; i < end_layer; ++i) {
    const LayerWeights& layer = weights.layers[static_cast<size_t>(i)];
    const NormedInput h{x, norm_params(config, layer.attn_norm), normed},
        between{x, norm_params(config, layer.ffn_norm), normed};
    decoder.choose_experts(i, {x, {}, x});
    ops.prepare(h);
    decoder.attention(i, h, x, &between);
    decoder.feed_forward(i, between, x, nullptr);
  }
  return output_head(config, weights, x, shape, ops, options);
}

extern constinit const Architecture kSmallThinker = {
    .name = "smallthinker",
    .title = "SmallThinker",
    .hf_types = {"smallthinker", "SmallThinkerForCausalLM"},
    .configure = configure_smallthinker,
    .hf_names = smallthinker_names,
    .forward = smallthinker_forward,
    .hf_defaults = R"({"tie_word_embeddings": true, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
    "head_dim": 128, "num_key_value_heads": 2, "moe_num_primary_experts": 32, "moe_ffn_hidden_size": 768,
    "moe_num_active_primary_experts": 4})",
    .hf_aliases = R"({"moe_num_primary_experts": "num_experts",
    "moe_num_active_primary_experts": "num_experts_per_tok", "moe_ffn_hidden_size": "moe_intermediate_size"})",
    .hf_usual = usual_smallthinker,
    .describe = describe_smallthinker,
};

}  // namespace penstock
