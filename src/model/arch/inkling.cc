// Inkling: attention without positions whose scores have learned terms for distances, between
// convolutions over the last tokens; experts of which the last ones are used by every token.
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "model/arch/archs.h"

namespace penstock {

namespace {

using nlohmann::json;

constexpr int kMostTaps = 64, kMostProfiles = 1 << 12, kMostDistances = 1 << 16;

bool inkling_lacks(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null();
}

// The published file lists layers with a window, counts leading dense layers, and calls the width of
// experts intermediate_size.
void usual_inkling(json& object) {
  if (!inkling_lacks(object, "dense_intermediate_size")) {
    object["moe_intermediate_size"] = object.value("intermediate_size", json(24576));
    object["intermediate_size"] = json(object["dense_intermediate_size"]);
  }
  const json layers = object.value("num_hidden_layers", json(66));
  if (!layers.is_number_integer() || layers < 1 || layers > 1024) return;
  if (inkling_lacks(object, "layer_types")) {
    const json local = object.value("local_layer_ids", json());
    json kinds = json::array();
    for (int i = 0; i < layers.get<int>(); ++i) {
      const bool slides =
          local.is_array() ? std::ranges::find(local, json(i)) != local.end() : (i + 1) % 6 != 0;
      kinds.push_back(slides ? "hybrid_sliding" : "hybrid");
    }
    object["layer_types"] = kinds;
  }
  if (!inkling_lacks(object, "mlp_layer_types")) return;
  const json dense = object.value("dense_mlp_idx", json(0));
  json kinds = json::array();
  for (int i = 0; i < layers.get<int>(); ++i)
    kinds.push_back(dense.is_number_integer() && i < dense ? "dense" : "sparse");
  object["mlp_layer_types"] = kinds;
}

}  // namespace

void read_profile_layers(ConfigReader& reader, ModelConfig& config) {
  const json* kinds = reader.find({"", "layer_types"});
  if (kinds == nullptr || !kinds->is_array() || kinds->size() != config.layers.size())
    return reader.fail(ErrorCode::kCorruptFile,
                       fmt::format("layer_types: expected {} layers", config.layers.size()));
  const int window = reader.integer({"", "sliding_window_size"}, 1, kMostDistances, 512),
            heads = reader.integer({"", "swa_num_attention_heads"}, 1, 1024, config.n_heads),
            kv_heads = reader.integer({"", "swa_num_key_value_heads"}, 1, heads, 16),
            head = reader.integer({"", "swa_head_dim"}, 1, 4096, 128);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    const json& kind = (*kinds)[i];
    if (kind != "hybrid" && kind != "hybrid_sliding")
      reader.fail(ErrorCode::kUnsupported, "layer_types: expected hybrid or hybrid_sliding");
    if (kind != "hybrid_sliding") continue;
    layer.window = window, layer.n_heads = heads, layer.n_kv_heads = kv_heads;
    layer.head_dim = head;
  }
  ProfileConfig& profiles = config.profiles;
  profiles.width = reader.integer({"", "d_rel"}, 1, kMostProfiles, 16);
  profiles.extent = reader.integer({"", "rel_extent"}, 1, kMostDistances, 1024);
  profiles.taps = reader.integer({"", "conv_kernel_size"}, 2, kMostTaps, 4);
  const Key floor{"", "log_scaling_n_floor"};
  if (!reader.has(floor)) return;
  PositionScale& scale = config.attention.query_scale;
  scale.beta = reader.number({"", "log_scaling_alpha"}, 0.0f, 1e6f, 0.1f);
  scale.period = static_cast<float>(reader.integer(floor, 1, kMaxContextLength));
  scale.offset = 1, scale.smooth = true;
  for (LayerConfig& layer : config.layers) layer.query_scale = layer.window == 0;
}

void read_unpadded_rows(ConfigReader& reader, ModelConfig& config) {
  config.embedding.n_rows = config.vocab_size;
  config.vocab_size =
      reader.integer({"", "unpadded_vocab_size"}, 1, config.vocab_size, config.vocab_size);
}

namespace {

void configure_inkling(ConfigReader& reader, ModelConfig& config) {
  if (reader.gguf())
    return reader.fail(ErrorCode::kUnsupported,
                       "GGUF files of this architecture are not known: expected a directory");
  if (config.ffn.activation.kind != Activation::kSilu)
    reader.fail(ErrorCode::kUnsupported, "hidden_act: expected silu");
  reader.expect_flag("shared_expert_sink", true);
  drop_ropes(config);
  read_profile_layers(reader, config);
  read_unpadded_rows(reader, config);
  config.embedding.norm = true;
  config.output.scale =
      1.0f / reader.number({"", "logits_mup_width_multiplier"}, 1e-6f, 1e6f, 24.0f);
  config.attention.scale = 1.0f / static_cast<float>(config.head_dim);
  for (LayerConfig& layer : config.layers)
    if (layer.head_dim > 0)
      layer.score_factor = static_cast<float>(config.head_dim) / static_cast<float>(layer.head_dim);
  read_experts(reader, config);
  ExpertsConfig& experts = config.experts;
  experts.n_pinned = reader.integer({"", "n_shared_experts"}, 1, 64, 2);
  experts.count += experts.n_pinned, experts.routing.n_active += experts.n_pinned;
  experts.shared_dim = 0;
  experts.selection_bias = experts.bare_router = experts.scaled = config.ffn.scaled = true;
  experts.routing.score = RouterScore::kSigmoid, experts.routing.normalize = true;
  experts.routing.scale = reader.number({"", "route_scale"}, -1e6f, 1e6f, 8.0f);
  read_mlp_layer_types(reader, config);
}

}  // namespace

// Names of the published files, which Inkling 2 shares.
void inkling_names(NameTable& names, const ModelConfig&) {
  names.prefixes = {"model.llm.", "model.", ""};
  names.embedding = "embed", names.embedding_norm = "embed_norm";
  names.lm_head = "model.llm.unembed";
  names[tensor::kAttnNorm] = "attn_norm", names[tensor::kFfnNorm] = "mlp_norm";
  names[tensor::kGateUp] = "mlp.w13_dn", names[tensor::kDown] = "mlp.w2_md";
  names[tensor::kGate] = names[tensor::kUp] = "";
  names.gate_and_up_alternate = names.experts_interleaved = true;
  names[tensor::kExpertGateUp] = "mlp.experts.w13_weight";
  names[tensor::kExpertDown] = "mlp.experts.w2_weight";
  names[tensor::kPinnedGateUp] = "mlp.shared_experts.shared_w13_weight";
  names[tensor::kPinnedDown] = "mlp.shared_experts.shared_w2_weight";
  names[tensor::kRouter] = "mlp.gate.weight", names[tensor::kSelectionBias] = "mlp.gate.bias";
  names[tensor::kWeightsFactor] = "mlp.gate.global_scale";
}

StepOutputs inkling_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                            KvCache& cache, Ops& ops, const ForwardOptions& options) {
  PENSTOCK_CHECK(options.stream == nullptr);  // LayerRunner refuses models with states
  const auto [first_layer, end_layer] = layers_of(config, weights, options);
  const Tensor x = ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream),
               y = ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream),
               normed = ops.new_tensor(shape.tokens, config.model_dim);
  DecoderParts decoder(config, weights, shape, cache, ops);
  begin_stream(config, weights, shape, x, ops, options);
  for (int i = first_layer; i < end_layer; ++i) {
    const LayerWeights& layer = weights.layers[static_cast<size_t>(i)];
    const auto input = [&](const NormWeights& norm) {
      const NormedInput h{x, norm_params(config, norm), normed};
      ops.clear(y), ops.prepare(h);
      return h;
    };
    const NormedInput h = input(layer.attn_norm);
    decoder.profiles().forward(i, h, h, h, y);
    decoder.profiles().add_convolved(i, true, y, x);
    decoder.feed_forward(i, input(layer.ffn_norm), y, nullptr);
    decoder.profiles().add_convolved(i, false, y, x);
  }
  return output_head(config, weights, x, shape, ops, options);
}

extern constinit const Architecture kInkling = {
    .name = "inkling",
    .title = "Inkling (text, also of `inkling_mm_model`)",
    .hf_types = {"inkling_text", "InklingForCausalLM", "inkling_mm_model",
                 "InklingForConditionalGeneration"},
    .directories_only = true,
    .configure = configure_inkling,
    .hf_names = inkling_names,
    .forward = inkling_forward,
    .hf_defaults = R"({"num_experts_per_tok": 6, "n_routed_experts": 256,
    "moe_intermediate_size": 3072, "tie_word_embeddings": false})",
    .hf_aliases =
        R"({"sconv_kernel_size": "conv_kernel_size", "model_max_length": "max_position_embeddings",
    "sliding_window": "sliding_window_size", "num_local_experts": "n_routed_experts"})",
    .hf_usual = usual_inkling,
    .heads_by_layer = true,
};

}  // namespace penstock
