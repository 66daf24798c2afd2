// Gemma 3n (text): several residual streams (alt_up.h), per-layer inputs, sparse activations of
// feed-forwards, and last layers that attend to keys and values of earlier ones.
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "model/arch/archs.h"
#include "model/blocks/alt_up.h"
#include "model/blocks/per_layer.h"
#include "model/forward/decoder.h"

namespace penstock {

using nlohmann::json;

namespace {

constexpr Key kSparsity{"activation_sparsity_scale", "activation_sparsity_pattern"};

// share of closed gates in the first layers of the published sizes
constexpr double kUsualShare = 0.95;
constexpr int kUsualLayers = 10;

// Cumulative distribution function of the normal distribution.
double share_below(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

// Inverse of share_below().
float cutoff_of(double share) {
  if (share <= 0) return kNoCutoff;
  double low = -40, high = 40;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (share_below(middle) < share ? low : high) = middle;
  }
  return static_cast<float>(low);
}

// Directories state the share of closed gates, GGUF files the cutoff.
void read_sparsity(ConfigReader& reader, ModelConfig& config) {
  const json* list = reader.find(kSparsity);
  if (list == nullptr) {
    for (int i = 0; config.n_layers > kUsualLayers && i < kUsualLayers; ++i)
      config.layers[static_cast<size_t>(i)].gate_cutoff = cutoff_of(kUsualShare);
    return;
  }
  if (!list->is_array() || list->size() != config.layers.size()) {
    return reader.fail(ErrorCode::kCorruptFile,
                       fmt::format("{}: expected a list of {} numbers", reader.name(kSparsity),
                                   config.layers.size()));
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const double value = (*list)[i].is_number() ? (*list)[i].get<double>() : std::nan("");
    const bool known = reader.gguf() ? value < 1e6 : value >= 0 && value < 1;
    if (!known) {
      return reader.fail(
          ErrorCode::kCorruptFile,
          fmt::format(
              "{}: layer {}: expected {}, got {}", reader.name(kSparsity), i,
              reader.gguf() ? "a number or -infinity" : "a share from 0 to less than 1",
              (*list)[i].dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 60)));
    }
    config.layers[i].gate_cutoff = reader.gguf() ? static_cast<float>(value) : cutoff_of(value);
  }
}

void read_streams(ConfigReader& reader, ModelConfig& config) {
  AltUpConfig& altup = config.altup;
  altup.n_streams = reader.integer({"altup.num_inputs", "altup_num_inputs"}, 1, 16, 4);
  altup.active =
      reader.integer({"altup.active_idx", "altup_active_idx"}, 0, altup.n_streams - 1, 0);
  altup.correct_scale = reader.flag({"", "altup_correct_scale"}, true);
  // GGUF has it only as the shape of a tensor.
  altup.laurel_rank = reader.gguf() ? reader.rows_of("blk.0.laurel_l.weight")
                                    : reader.integer({"", "laurel_rank"}, 1, 1 << 16);
  if (altup.laurel_rank < 1)
    reader.fail(ErrorCode::kCorruptFile,
                "tensor blk.0.laurel_l.weight: expected a matrix, found none");
}

void configure_gemma3n(ConfigReader& reader, ModelConfig& config) {
  config.residual.norms = NormPlacement::kBoth;
  config.attention.qk_norm = QkNorm::kHead;
  config.attention.value_norm = true;
  config.attention.scale = 1.0f;
  if (reader.gguf()) config.ffn.activation = Activation::kGeluTanh;
  config.embedding.scale = std::sqrt(static_cast<float>(config.model_dim));
  config.output.softcap = reader.number({"final_logit_softcapping", "final_logit_softcapping"},
                                        0.0f, 1e6f, reader.gguf() ? 30.0f : 0.0f);
  config.per_layer.dim = reader.integer(
      {"embedding_length_per_layer_input", "hidden_size_per_layer_input"}, 1, 1 << 16, 256);
  config.per_layer.vocab = reader.gguf() ? reader.rows_of("per_layer_token_embd.weight")
                                         : reader.integer({"", "vocab_size_per_layer_input"}, 1,
                                                          1 << 24, config.vocab_size);
  read_windows(reader, config, 5, 512);
  read_local_rope(reader, config);
  share_last_layers(reader, config);
  read_streams(reader, config);
  read_sparsity(reader, config);
}

void describe_gemma3n(ConfigWriter& writer, const ModelConfig& config) {
  json widths = json::array(), types = json::array(), sliding = json::array(),
       sparsity = json::array();
  int n_shared = 0, window = 0;
  for (int i = 0; i < config.n_layers; ++i) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    widths.push_back(static_cast<uint64_t>(config.ffn_dim_of(i)));
    types.push_back(layer.window > 0 ? "sliding_attention" : "full_attention");
    sliding.push_back(layer.window > 0);
    window = std::max(window, layer.window);
    n_shared += layer.kv_layer >= 0 ? 1 : 0;
    const bool closes = layer.gate_cutoff != kNoCutoff;
    if (writer.gguf()) sparsity.push_back(static_cast<double>(layer.gate_cutoff));
    if (!writer.gguf()) sparsity.push_back(closes ? share_below(layer.gate_cutoff) : 0.0);
  }
  writer.set({"feed_forward_length", "intermediate_size"}, widths);
  writer.set({"attention.sliding_window_pattern", ""}, sliding);
  writer.set({"", "layer_types"}, types);
  if (window > 0) writer.set({"attention.sliding_window", "sliding_window"}, window);
  writer.set(kSparsity, sparsity);
  writer.set({"attention.shared_kv_layers", "num_kv_shared_layers"}, n_shared);
  writer.set({"embedding_length_per_layer_input", "hidden_size_per_layer_input"},
             config.per_layer.dim);
  writer.set({"", "vocab_size_per_layer_input"}, config.per_layer_rows());
  writer.set({"altup.num_inputs", "altup_num_inputs"}, config.altup.n_streams);
  writer.set({"altup.active_idx", "altup_active_idx"}, config.altup.active);
  writer.set({"", "altup_correct_scale"}, config.altup.correct_scale);
  writer.set({"", "laurel_rank"}, config.altup.laurel_rank);
  writer.set({"rope.freq_base_swa", "rope_local_base_freq"}, config.ropes[1].theta);
  writer.set({"final_logit_softcapping", "final_logit_softcapping"}, config.output.softcap);
  writer.erase({"attention.scale", "query_pre_attn_scalar"});
}

void gemma3n_names(NameTable& names, const ModelConfig&) {
  names[tensor::kAltupRouter] = "altup.modality_router",
  names[tensor::kAltupRouterNorm] = "altup.router_norm";
  names[tensor::kAltupPredict] = "altup.prediction_coefs",
  names[tensor::kAltupCorrect] = "altup.correction_coefs";
  names[tensor::kAltupScale] = "altup.correct_output_scale";
  names[tensor::kLaurelIn] = "laurel.linear_left",
  names[tensor::kLaurelOut] = "laurel.linear_right";
  names[tensor::kLaurelNorm] = "laurel.post_laurel_norm";
  names[tensor::kStreamsIn] = "altup_projections.{}",
  names[tensor::kStreamsOut] = "altup_unembed_projections.{}";
}

void gemma3n_gguf_names(NameTable& names, const ModelConfig&) {
  names[tensor::kAltupRouter] = "altup_router",
  names[tensor::kAltupRouterNorm] = "altup_router_norm";
  names[tensor::kAltupPredict] = "altup_predict_coef",
  names[tensor::kAltupCorrect] = "altup_correct_coef";
  names[tensor::kAltupScale] = "altup_correct_scale.weight";
  names[tensor::kLaurelIn] = "laurel_l", names[tensor::kLaurelOut] = "laurel_r",
  names[tensor::kLaurelNorm] = "laurel_post_norm";
  names[tensor::kStreamsIn] = "altup_proj", names[tensor::kStreamsOut] = "altup_unembd_proj";
}

}  // namespace

StepOutputs gemma3n_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                            KvCache& cache, Ops& ops, const ForwardOptions& options) {
  PENSTOCK_CHECK(options.stream == nullptr);  // the model has several streams
  const auto [first_layer, end_layer] = layers_of(config, weights, options);
  // [n, model_dim], the active stream
  const Tensor x = ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream);
  const Tensor normed = ops.new_tensor(shape.tokens, config.model_dim);
  DecoderParts decoder(config, weights, shape, cache, ops);
  AltUp streams(config, weights, shape.tokens, ops);
  std::optional<PerLayerInputs> beside;
  if (first_layer == 0) {
    embed_input(config, weights, shape, x, ops);
    beside.emplace(config, weights, x, ops);
    streams.begin(x);
  } else {
    const Tensor given = stage_input(config, weights, shape, ops, options);
    const int dim = config.altup.n_streams * config.model_dim;
    streams.go_on(given.columns(0, dim));
    beside.emplace(config, weights, given.columns(dim, given.cols - dim), first_layer, ops);
  }
  for (int i = first_layer; i < end_layer; ++i) {
    const LayerWeights& layer = weights.layers[static_cast<size_t>(i)];
    streams.predict(i, x);
    const NormedInput h{x, norm_params(config, layer.attn_norm), normed};
    const NormedInput between{x, norm_params(config, layer.ffn_norm), normed};
    ops.prepare(h);
    const Tensor low_rank = streams.laurel(i, h);
    decoder.attention(i, h, x, nullptr);
    ops.add(x, low_rank, 1.0f);
    ops.scale(x, std::sqrt(0.5f), 0.0f);
    ops.prepare(between);
    decoder.feed_forward(i, between, x, nullptr);
    streams.add_to_others(beside->update(i, streams.correct(i, x)));
  }
  if (goes_on(config, weights))
    return end_stage(std::array{streams.all(), beside->from(end_layer)}, ops);
  streams.merge(x);
  return output_head(config, weights, x, shape, ops, options);
}

extern constinit const Architecture kGemma3n = {
    .name = "gemma3n",
    .title = "Gemma 3n (text, also of `gemma3n`)",
    .hf_types = {"gemma3n_text", "Gemma3nForCausalLM", "gemma3n",
                 "Gemma3nForConditionalGeneration"},
    .configure = configure_gemma3n,
    .hf_names = gemma3n_names,
    .forward = gemma3n_forward,
    .hf_defaults =
        R"({"tie_word_embeddings": true, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 512,
        "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 262400, "max_position_embeddings": 32768,
        "intermediate_size": 16384, "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144,
        "num_kv_shared_layers": 15, "final_logit_softcapping": 30.0, "laurel_rank": 64})",
    .describe = describe_gemma3n,
    .gguf_names = gemma3n_gguf_names,
};

}  // namespace penstock
