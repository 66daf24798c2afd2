// Zamba 2: scans of Mamba 2 in all layers; in some, a shared block of attention and a feed-forward
// adds to what the scan reads.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "model/arch/rope.h"
#include "model/arch/scans.h"

namespace penstock {

namespace {

using nlohmann::json;

constexpr int kMostAdapterRank = 1 << 16;

bool is_shared(const json& kind) { return kind == "hybrid"; }

// Kinds of 54 layers as published, where the file does not list them; heads have the features of two
// streams.
void usual_zamba2(json& object) {
  if (!object.contains("layers_block_type") || object["layers_block_type"].is_null()) {
    const auto is_one = [](int i) { return (i > 0 && i < 43 && i % 6 == 0) || i == 47 || i == 51; };
    json kinds = json::array();
    for (int i = 0; i < 54; ++i) kinds.push_back(is_one(i) ? "hybrid" : "mamba");
    object["layers_block_type"] = kinds;
  }
  const json dim = object.value("hidden_size", json(2560)),
             heads = object.value("num_attention_heads", json(32));
  constexpr int64_t kMost = 1 << 20;
  const auto fits = [](const json& value) {
    return value.is_number_integer() && value >= 1 && value <= kMost;
  };
  if (fits(dim) && fits(heads)) object["head_dim"] = 2 * dim.get<int64_t>() / heads.get<int64_t>();
}

// Blocks are used in turn; a block belongs to the first layer that uses it.
void read_zamba2_layers(ConfigReader& reader, ModelConfig& config) {
  const json* kinds = reader.find({"", "layers_block_type"});
  if (kinds == nullptr || !kinds->is_array() || kinds->size() != config.layers.size())
    return reader.fail(
        ErrorCode::kCorruptFile,
        fmt::format("layers_block_type: expected a list of {} layers", config.layers.size()));
  ScanConfig scan_of_all = read_scan(reader, config);
  scan_of_all.min_step = reader.number({"", "time_step_min"}, 0.0f, 1e6f, 0.001f);
  scan_of_all.norm_eps = 1e-5f;
  const std::shared_ptr<const Mixer> mixer = scan(scan_of_all);
  const bool rotated = reader.flag({"", "use_mem_rope"}, false);
  const auto n_blocks = static_cast<size_t>(reader.integer({"", "num_mem_blocks"}, 1, 1024, 1));
  std::vector<int> owners, shared;  // layers that own a block, and that use one
  size_t use = 0;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    const json& kind = (*kinds)[i];
    layer.mixer = mixer;
    layer.feed_forward = false;
    layer.attention = is_shared(kind);
    layer.rope = layer.attention && rotated ? 0 : -1;
    if (!is_shared(kind) && kind != "mamba" && kind != "linear_attention")
      return reader.fail(
          ErrorCode::kUnsupported,
          fmt::format("layers_block_type: expected mamba or hybrid, got {}",
                      kind.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 60)));
    if (!layer.attention) continue;
    if (owners.size() < n_blocks) owners.push_back(static_cast<int>(i));
    layer.shared_layer = owners[use++ % n_blocks];
    shared.push_back(static_cast<int>(i));
  }
  const Key ids{"", "hybrid_layer_ids"};
  if (reader.has(ids) && reader.integers(ids, 0, config.n_layers) != shared)
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("hybrid_layer_ids: expected the hybrid layers of layers_block_type, {}",
                            fmt::join(shared, ", ")));
}

void configure_zamba2(ConfigReader& reader, ModelConfig& config) {
  if (!config.embedding.tied)
    reader.fail(ErrorCode::kUnsupported,
                "tie_word_embeddings: expected true: without it layers share no blocks");
  if (reader.has({"", "use_shared_block_lora"}))
    reader.fail(
        ErrorCode::kUnsupported,
        "use_shared_block_lora: the checkpoint is of a class before transformers', which has "
        "other names and sizes");
  config.shared.ffn_dim = config.ffn_dim;
  config.ffn_dim = 0;
  config.shared.rank = reader.integer({"", "adapter_rank"}, 1, kMostAdapterRank, 128);
  config.shared.adapts_attention = reader.flag({"", "use_shared_attention_adapter"}, false);
  if (config.shared.adapts_attention && config.n_kv_heads != config.n_heads)
    reader.fail(ErrorCode::kUnsupported,
                "use_shared_attention_adapter: expected as many key heads as heads");
  config.attention.scale = 1.0f / std::sqrt(0.5f * static_cast<float>(config.head_dim));
  if (reader.flag({"", "use_long_context"}, false)) config.max_seq_len = 16384;
  read_zamba2_layers(reader, config);
}

void zamba2_names(NameTable& names, const ModelConfig& config) {
  names.final_norm = "final_layernorm";
  for (const LayerConfig& layer : config.layers)
    names.at_layers.emplace_back(layer.shared_layer >= 0 ? "mamba_decoder." : "");
  names[tensor::kAttnNorm] = "@input_layernorm";
  names[tensor::kSsmIn] = "@mamba.in_proj", names[tensor::kSsmConv] = "@mamba.conv1d";
  names[tensor::kSsmRate] = "@mamba.A_log", names[tensor::kSsmSkip] = "@mamba.D";
  names[tensor::kSsmBias] = "@mamba.dt_bias", names[tensor::kSsmNorm] = "@mamba.norm";
  names[tensor::kSsmOut] = "@mamba.out_proj";
}

}  // namespace

StepOutputs zamba2_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                           KvCache& cache, Ops& ops, const ForwardOptions& options) {
  PENSTOCK_CHECK(options.stream == nullptr);  // LayerRunner refuses such models
  const auto [first_layer, end_layer] = layers_of(config, weights, options);
  const Tensor x = ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream),
               first = ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream),
               normed = ops.new_tensor(shape.tokens, config.model_dim);
  Sublayer sublayer(config, weights, shape, cache, ops);
  SharedBlock shared(sublayer, first);
  const Mixer& mixer = *config.layers[0].mixer;  // of all layers
  const MixerScratch scratch = mixer.scratch(sublayer);
  begin_stream(config, weights, shape, x, ops, options);
  ops.copy(x, first);
  for (int i = first_layer; i < end_layer; ++i) {
    const bool has_block = config.layers[static_cast<size_t>(i)].shared_layer >= 0;
    const LayerWeights& layer = weights.layers[static_cast<size_t>(i)];
    const NormedInput h{has_block ? shared.forward(i, x) : x, norm_params(config, layer.attn_norm),
                        normed};
    ops.prepare(h);
    mixer.forward(sublayer, scratch, i, h, x, nullptr);
  }
  return output_head(config, weights, x, shape, ops, options);
}

extern constinit const Architecture kZamba2 = {
    .name = "zamba2",
    .title = "Zamba 2",
    .hf_types = {"zamba2", "Zamba2ForCausalLM"},
    .directories_only = true,
    .configure = configure_zamba2,
    .hf_names = zamba2_names,
    .forward = zamba2_forward,
    .hf_defaults = R"({"tie_word_embeddings": true, "hidden_act": "gelu", "rms_norm_eps": 1e-5,
    "mamba_d_state": 64, "mamba_n_heads": 8})",
    .hf_aliases = R"({"mamba_ngroups": "mamba_n_groups", "n_mamba_heads": "mamba_n_heads",
    "layer_types": "layers_block_type", "attention_head_dim": "head_dim"})",
    .hf_usual = usual_zamba2,
    .wide_ffn = true,
};

}  // namespace penstock
