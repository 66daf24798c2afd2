// Inkling 2: Inkling's attention with bounded lengths, gates and sinks of tokens, between residuals
// over blocks of layers (blocks/block_residuals.h); experts with soft bounds.
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "model/arch/archs.h"

namespace penstock {

namespace {

using nlohmann::json;

// Every sixth layer attends to all tokens.
void usual_inkling2(json& object) {
  const auto kinds = object.find("layer_types");
  const json layers = object.value("num_hidden_layers", json(48));
  if ((kinds != object.end() && !kinds->is_null()) || !layers.is_number_integer() || layers < 1 ||
      layers > 1024)
    return;
  json usual = json::array();
  for (int i = 0; i < layers.get<int>(); ++i)
    usual.push_back((i + 1) % 6 == 0 ? "hybrid" : "hybrid_sliding");
  object["layer_types"] = usual;
}

void configure_inkling2(ConfigReader& reader, ModelConfig& config) {
  if (reader.gguf())
    return reader.fail(ErrorCode::kUnsupported,
                       "GGUF files of this architecture are not known: expected a directory");
  if (config.ffn.activation.kind != Activation::kSilu)
    reader.fail(ErrorCode::kUnsupported, "hidden_act: expected silu");
  reader.expect_text("scoring_func", "sigmoid");
  drop_ropes(config);
  read_profile_layers(reader, config);
  read_unpadded_rows(reader, config);
  config.profiles.bounded = true;
  config.profiles.bound = reader.number({"", "qk_l2_clip_threshold"}, 1e-6f, 1e6f, 22.627417f);
  config.profiles.mix_bound = reader.number({"", "rel_l2_clip_threshold"}, 1e-6f, 1e6f, 8.0f);
  config.embedding.norm = true;
  config.output.softcap = reader.number({"", "final_logit_softcapping"}, 1e-3f, 1e6f, 30.0f);
  const auto scale_of = [](int head) { return 1.0f / std::sqrt(static_cast<float>(head)); };
  config.attention.scale = scale_of(config.head_dim);
  for (LayerConfig& layer : config.layers)
    if (layer.head_dim > 0) layer.score_factor = scale_of(layer.head_dim) / config.attention.scale;
  config.residual.norms = NormPlacement::kNone;  // other blocks have them
  config.residual.recalls = true;
  config.block_residuals.layers = reader.integer({"", "n_layers_per_attn_res_block"}, 1, 1024, 6);
  read_experts(reader, config);
  config.experts.selection_bias = config.experts.bare_router = true;
  config.experts.routing.score = RouterScore::kSigmoid;
  config.experts.routing.normalize = true, config.experts.routing.sum_eps = 1e-20f;
  config.experts.routing.scale = reader.number({"", "route_scale"}, -1e6f, 1e6f, 8.0f);
  ActivationFunction capped(Activation::kSoftCappedSilu);
  capped.parameters[0] = reader.number({"", "mlp_gate_softcap"}, 1e-3f, 1e6f, 4.0f);
  capped.parameters[1] = reader.number({"", "mlp_up_softcap"}, 1e-3f, 1e6f, 25.0f);
  for (LayerConfig& layer : config.layers) layer.expert_activation = capped;
}

}  // namespace

StepOutputs inkling2_forward(const ModelConfig& config, const ModelWeights& weights,
                             StepShape shape, KvCache& cache, Ops& ops,
                             const ForwardOptions& options) {
  PENSTOCK_CHECK(options.stream == nullptr);  // LayerRunner refuses models with states
  const auto [first_layer, end_layer] = layers_of(config, weights, options);
  const auto stream = [&] {
    return ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream);
  };
  const Tensor x = stream(), y = stream();
  const Tensor read[] = {stream(), stream(), stream()}, normed[] = {stream(), stream(), stream()};
  DecoderParts decoder(config, weights, shape, cache, ops);
  BlockResiduals blocks(config, shape.tokens, ops);
  begin_stream(config, weights, shape, x, ops, options);
  for (int i = first_layer; i < end_layer; ++i) {
    const LayerWeights& layer = weights.layers[static_cast<size_t>(i)];
    const BlockQueries& queries = layer.block_queries;
    const auto input = [&](const NormWeights& norm, Tensor from, size_t part) {
      const NormedInput h{from, norm_params(config, norm), normed[part]};
      ops.prepare(h);
      return h;
    };
    for (size_t q = 0; q < queries.attention.size(); ++q)
      blocks.read(*queries.attention[q], x, read[q]);
    NormedInput in[3];
    const auto& norms = layer.profiles.input_norms;
    for (size_t part = 0; part < 3; ++part) {
      const size_t from =
          std::min(part, queries.attention.empty() ? 0 : queries.attention.size() - 1);
      in[part] = part < norms.size()
                     ? input(norms[part], queries.attention.empty() ? x : read[from], part)
                     : in[0];
    }
    ops.clear(y);
    decoder.profiles().forward(i, in[0], in[1], in[2], y);
    if (i % config.block_residuals.layers == 0) {
      blocks.keep(x);
      ops.clear(x);
    }
    decoder.profiles().add_convolved(i, true, y, x);
    blocks.read(*queries.feed_forward, x, read[0]);
    const NormedInput between = input(layer.ffn_norm, read[0], 0);
    ops.clear(y);
    decoder.feed_forward(i, between, y, nullptr);
    decoder.profiles().add_convolved(i, false, y, x);
  }
  blocks.read(*weights.last_block_query, x, y);
  return output_head(config, weights, y, shape, ops, options);
}

extern constinit const Architecture kInkling2 = {
    .name = "inkling2",
    .title = "Inkling 2 (text, also of `inkling2`; CPU)",
    .hf_types = {"inkling2_text", "Inkling2ForCausalLM", "inkling2",
                 "Inkling2ForConditionalGeneration"},
    .directories_only = true,
    .configure = configure_inkling2,
    .hf_names = inkling_names,
    .forward = inkling2_forward,
    .hf_defaults = R"({"num_experts_per_tok": 8, "n_routed_experts": 384,
    "moe_intermediate_size": 2304, "tie_word_embeddings": false, "unpadded_vocab_size": 200058, "sliding_window_size": 1024,
    "swa_num_key_value_heads": 8, "log_scaling_n_floor": 128000})",
    .hf_aliases =
        R"({"sconv_kernel_size": "conv_kernel_size", "model_max_length": "max_position_embeddings",
    "sliding_window": "sliding_window_size", "num_local_experts": "n_routed_experts", "routed_scaling_factor": "route_scale",
    "intermediate_size": "moe_intermediate_size"})",
    .hf_usual = usual_inkling2,
    .heads_by_layer = true,
};

}  // namespace penstock
