// RecurrentGemma (Griffin): RG-LRU in most layers, attention with a window in the others.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/half.h"
#include "model/arch/archs.h"
#include "model/blocks/rg_lru.h"

namespace penstock {

namespace {

using nlohmann::json;

constexpr int kMostLruChannels = 1 << 20, kMostLruTaps = 64;

// Reads which layers attend: the list is repeated.
void read_griffin_layers(ConfigReader& reader, ModelConfig& config) {
  const json* given = reader.find({"", "block_types"});
  const json kinds = given != nullptr ? *given : json({"recurrent", "recurrent", "attention"});
  if (!kinds.is_array() || kinds.empty())
    return reader.fail(ErrorCode::kCorruptFile, "block_types: expected a list");
  LruConfig lru;
  const int channels = reader.integer({"", "lru_width"}, 1, kMostLruChannels, config.model_dim);
  lru.taps = reader.integer({"", "conv1d_width"}, 1, kMostLruTaps, 4);
  lru.n_blocks = config.n_heads;
  lru.block_size = std::max(1, channels / config.n_heads);
  if (channels % config.n_heads != 0)
    reader.fail(ErrorCode::kCorruptFile,
                fmt::format("lru_width: expected a multiple of the {} heads, got {}",
                            config.n_heads, channels));
  const std::shared_ptr<const Mixer> mixer = rg_lru(lru);
  const int window = reader.integer({"", "sliding_window"}, 1, 1 << 30, 2048);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const json& kind = kinds[i % kinds.size()];
    if (kind != "recurrent" && kind != "attention")
      return reader.fail(
          ErrorCode::kUnsupported,
          fmt::format("block_types: expected recurrent or attention, got {}",
                      kind.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 60)));
    LayerConfig& layer = config.layers[i];
    layer.attention = kind == "attention";
    if (layer.attention) layer.window = window;
    if (!layer.attention) layer.mixer = mixer, layer.rope = -1;
  }
}

// The file's width is that of both halves of a feed-forward. The embedding's scale is a BF16 number.
void configure_recurrent_gemma(ConfigReader& reader, ModelConfig& config) {
  config.norm.offset = 1.0f;
  reader.expect_flag("embeddings_scale_by_sqrt_dim", true);
  config.embedding.scale = to_float(to_bfloat16(std::sqrt(static_cast<float>(config.model_dim))));
  config.output.softcap = reader.number({"", "logits_soft_cap"}, 1e-3f, 1e6f, 30.0f);
  config.ffn_dim = std::max(1, config.ffn_dim / 2);
  read_griffin_layers(reader, config);
}

void recurrent_gemma_names(NameTable& names, const ModelConfig&) {
  names.final_norm = "final_norm";
  names[tensor::kAttnNorm] = "temporal_pre_norm", names[tensor::kFfnNorm] = "channel_pre_norm";
  names[tensor::kQ] = "temporal_block.q_proj", names[tensor::kK] = "temporal_block.k_proj";
  names[tensor::kV] = "temporal_block.v_proj", names[tensor::kO] = "temporal_block.o_proj";
  names[tensor::kQkv] = "", names[tensor::kGateUp] = "";
  names[tensor::kGate] = "mlp_block.gate_proj", names[tensor::kUp] = "mlp_block.up_proj";
  names[tensor::kDown] = "mlp_block.down_proj";
}

}  // namespace

extern constinit const Architecture kRecurrentGemma = {
    .name = "recurrent_gemma",
    .title = "RecurrentGemma",
    .hf_types = {"recurrent_gemma", "RecurrentGemmaForCausalLM"},
    .directories_only = true,
    .configure = configure_recurrent_gemma,
    .hf_names = recurrent_gemma_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"tie_word_embeddings": true, "hidden_activation": "gelu_pytorch_tanh",
    "partial_rotary_factor": 0.5, "max_position_embeddings": 8192})",
    .hf_aliases = R"({"attention_window_size": "sliding_window"})",
    .partial_rope = true,
    .hf_norms_less_one = true,
};

}  // namespace penstock
