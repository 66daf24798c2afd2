// LFM2: gated short convolutions in most layers, attention in the others; LFM2-MoE: experts after
// some dense layers. LFM3: windows in some of the attention layers, norms after each sub-layer,
// output gates of attention.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"
#include "model/blocks/short_conv.h"

namespace penstock {

namespace {

constexpr int kMaxTaps = 64;
constexpr Key kTaps{"shortconv.l_cache", "conv_L_cache"};

using nlohmann::json;

// Reads the kinds of layers: KV heads in GGUF, names in directories, or the indices of attention
// layers in older ones. window: of sliding layers; 0: none may slide.
void read_mixers(ConfigReader& reader, ModelConfig& config, int taps, int window) {
  const std::shared_ptr<const Mixer> mixer = short_conv(taps);
  const json* kinds = reader.find({"attention.head_count_kv", "layer_types"});
  const json* attending = reader.find({"", "full_attn_idxs"});
  const size_t n = config.layers.size();
  if (kinds != nullptr && (!kinds->is_array() || kinds->size() != n)) {
    return reader.fail(ErrorCode::kCorruptFile,
                       fmt::format("{}: expected a list of {} layers",
                                   reader.gguf() ? "attention.head_count_kv" : "layer_types", n));
  }
  for (size_t i = 0; i < n; ++i) {
    bool attention = true;
    if (kinds != nullptr && reader.gguf()) {
      attention = (*kinds)[i] != 0;
    } else if (kinds != nullptr) {
      const json& kind = (*kinds)[i];
      const bool sliding = window > 0 && kind == "sliding_attention";
      attention = kind == "full_attention" || sliding;
      if (sliding) config.layers[i].window = window;
      if (!attention && kind != "conv")
        reader.fail(
            ErrorCode::kUnsupported,
            fmt::format("layer_types: expected conv{} or full_attention, got {}",
                        window > 0 ? ", sliding_attention" : "",
                        kind.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)));
    } else if (attending != nullptr) {
      attention = std::ranges::find(*attending, json(i)) != attending->end();
    }
    config.layers[i].attention = attention;
    if (!attention) config.layers[i].mixer = mixer;
  }
}

// Computes the width of feed-forwards from the keys of Hugging Face directories.
void adjust_ffn(ConfigReader& reader, ModelConfig& config) {
  if (reader.gguf() || !reader.flag({"", "block_auto_adjust_ff_dim"}, true)) return;
  const int multiple = reader.integer({"", "block_multiple_of"}, 1, 1 << 16, 256);
  const Key factor{"", "block_ffn_dim_multiplier"};
  config.ffn_dim = 2 * config.ffn_dim / 3;
  if (reader.has(factor)) {
    const json* value = reader.find(factor);
    const double by = reader.number(factor, 0.0f, 1024.0f) > 0 ? value->get<double>() : 0.0;
    const auto scaled = static_cast<int64_t>(by * config.ffn_dim);
    config.ffn_dim = static_cast<int>((scaled + multiple - 1) / multiple * multiple);
  }
  if (config.ffn_dim < 1 || config.ffn_dim > 1 << 20)
    reader.fail(ErrorCode::kCorruptFile,
                fmt::format("block_ffn_dim_multiplier: a feed-forward of {}", config.ffn_dim));
}

void configure_common(ConfigReader& reader, ModelConfig& config, int taps = 3, int window = 0) {
  config.attention.qk_norm = QkNorm::kHead;
  read_mixers(reader, config, reader.integer(kTaps, 1, kMaxTaps, taps), window);
}

void describe_common(ConfigWriter& writer, const ModelConfig& config) {
  json kv_heads = json::array(), kinds = json::array();
  for (const LayerConfig& layer : config.layers) {
    kv_heads.push_back(layer.attention ? static_cast<uint64_t>(config.n_kv_heads) : uint64_t{0});
    kinds.push_back(layer.attention ? "full_attention" : "conv");
  }
  writer.set({"attention.head_count_kv", ""}, kv_heads);
  writer.set({"", "layer_types"}, kinds);
  writer.set(kTaps, std::max(short_conv_taps(config), 1));
  writer.set({"", "conv_bias"}, writer.has_tensor("blk.0.shortconv.conv.bias"));
}

void configure_lfm2(ConfigReader& reader, ModelConfig& config) {
  configure_common(reader, config);
  adjust_ffn(reader, config);
}

void configure_lfm2_moe(ConfigReader& reader, ModelConfig& config) {
  configure_common(reader, config);
  read_experts(reader, config);
  read_sigmoid_routing(reader, config);
  config.experts.routing.group_top = 1;
  config.experts.routing.sum_eps = 1e-6f;
  const int n_dense = reader.integer({"leading_dense_block_count", "num_dense_layers"}, 0, 1 << 20,
                                     reader.gguf() ? 0 : 2);
  for (int i = 0; i < config.n_layers && i < n_dense; ++i)
    config.layers[static_cast<size_t>(i)].moe = false;
  const bool gguf_bias = reader.has_tensor(fmt::format("blk.{}.exp_probs_b.bias", n_dense));
  config.experts.selection_bias =
      reader.gguf() ? gguf_bias : reader.flag({"", "use_expert_bias"}, true);
}

void configure_lfm3(ConfigReader& reader, ModelConfig& config) {
  const int window =
      reader.integer({"attention.sliding_window", "sliding_window"}, 0, 1 << 30, 256);
  configure_common(reader, config, 7, window);
  if (!reader.gguf() && !reader.has({"", "layer_types"}))
    return reader.fail(ErrorCode::kCorruptFile, "layer_types is missing");
  read_local_rope(reader, config);
  if (reader.flag({"", "use_sandwich_norm"}, true)) config.residual.norms = NormPlacement::kBoth;
  config.attention.head_gates = reader.flag({"", "use_attention_gate"}, true);
}

void lfm2_names(NameTable& names, const ModelConfig&) {
  names.final_norm = "embedding_norm", names[tensor::kAttnNorm] = "operator_norm",
  names[tensor::kFfnNorm] = "ffn_norm";
  names[tensor::kO] = "self_attn.out_proj", names[tensor::kQNorm] = "self_attn.q_layernorm";
  names[tensor::kKNorm] = "self_attn.k_layernorm";
  names[tensor::kGate] = "feed_forward.w1", names[tensor::kUp] = "feed_forward.w3",
  names[tensor::kDown] = "feed_forward.w2";
  names[tensor::kGateUp] = "";
  names[tensor::kRouter] = "feed_forward.gate",
  names[tensor::kSelectionBias] = "feed_forward.expert_bias";
  names[tensor::kExpertGate] = "feed_forward.experts.{}.w1",
  names[tensor::kExpertUp] = "feed_forward.experts.{}.w3";
  names[tensor::kExpertDown] = "feed_forward.experts.{}.w2";
}

void lfm3_names(NameTable& names, const ModelConfig& config) {
  lfm2_names(names, config);
  names[tensor::kQNorm] = "self_attn.q_norm", names[tensor::kKNorm] = "self_attn.k_norm",
  names[tensor::kO] = "self_attn.o_proj";
  names[tensor::kGates] = "self_attn.gate_proj";
  names[tensor::kAttnPostNorm] = "post_operator_norm",
  names[tensor::kFfnPostNorm] = "post_ffn_norm";
}

// The final norm has the name that other models give to the norm after the embedding.
void lfm2_gguf_names(NameTable& names, const ModelConfig&) { names.final_norm = "token_embd_norm"; }

void describe_lfm2(ConfigWriter& writer, const ModelConfig& config) {
  describe_common(writer, config);
  writer.set({"", "block_auto_adjust_ff_dim"}, false);
}

void describe_lfm3(ConfigWriter& writer, const ModelConfig& config) {
  describe_common(writer, config);
  writer.set({"", "use_sandwich_norm"}, config.residual.norms == NormPlacement::kBoth);
  writer.set({"", "use_attention_gate"}, config.attention.head_gates);
  writer.set({"", "attention_bias"}, writer.has_tensor("blk.0.attn_q.bias"));
}

void describe_lfm2_moe(ConfigWriter& writer, const ModelConfig& config) {
  describe_common(writer, config);
  describe_sigmoid_routing(writer, config);
  for (const std::string_view key : {"n_group", "topk_group"}) writer.erase({"", key});
  for (const std::string_view key : {"expert_group_count", "expert_group_used_count"})
    writer.erase({key, ""});
  writer.set({"leading_dense_block_count", "num_dense_layers"}, leading_dense_layers(config));
  writer.set({"", "use_expert_bias"}, config.experts.selection_bias);
}

constexpr std::string_view kLfm2Defaults =
    R"({"tie_word_embeddings": true, "rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_key_value_heads": 8,
    "block_ffn_dim_multiplier": 1.0})";

constexpr std::string_view kLfm2Aliases =
    R"({"norm_eps": "rms_norm_eps", "tie_embedding": "tie_word_embeddings", "block_ff_dim": "intermediate_size"})";

}  // namespace

extern constinit const Architecture kLfm2 = {
    .name = "lfm2",
    .title = "Lfm2",
    .hf_types = {"lfm2", "Lfm2ForCausalLM", "LFM2ForCausalLM"},
    .configure = configure_lfm2,
    .hf_names = lfm2_names,
    .forward = decoder_forward,
    .hf_defaults = kLfm2Defaults,
    .hf_aliases = kLfm2Aliases,
    .describe = describe_lfm2,
    .gguf_names = lfm2_gguf_names,
};

extern constinit const Architecture kLfm2Moe = {
    .name = "lfm2moe",
    .title = "Lfm2Moe",
    .hf_types = {"lfm2_moe", "Lfm2MoeForCausalLM"},
    .configure = configure_lfm2_moe,
    .hf_names = lfm2_names,
    .forward = decoder_forward,
    .hf_defaults = kLfm2Defaults,
    .hf_aliases = kLfm2Aliases,
    .describe = describe_lfm2_moe,
    .gguf_names = lfm2_gguf_names,
};

extern constinit const Architecture kLfm3 = {
    .name = "lfm3",
    .title = "LFM3",
    .hf_types = {"lfm3", "Lfm3ForCausalLM"},
    .configure = configure_lfm3,
    .hf_names = lfm3_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"head_dim": 128, "num_key_value_heads": 4, "rms_norm_eps": 1e-5,
    "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.5}}})",
    .hf_aliases = kLfm2Aliases,
    .describe = describe_lfm3,
    .gguf_names = lfm2_gguf_names,
};

}  // namespace penstock
