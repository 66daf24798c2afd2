// OpenELM: Llama whose layers have their own numbers of heads and widths of feed-forwards, with
// norms on the heads of queries and keys.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

using nlohmann::json;

constexpr int64_t kMostOpenElm = 1 << 24;

int64_t whole_number(const json& object, const char* key, int64_t usual) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer()
             ? std::clamp<int64_t>(found->get<int64_t>(), 1, kMostOpenElm)
             : usual;
}

// Rounds to the nearest multiple, up by one if that is less than nine tenths of the number.
int64_t divisible(double number, int64_t divisor) {
  const auto halves = static_cast<int64_t>(number + static_cast<double>(divisor) / 2);
  const int64_t rounded = std::max(divisor, halves / divisor * divisor);
  return static_cast<double>(rounded) < 0.9 * number ? rounded + divisor : rounded;
}

// The lists by layer, under the keys that files of other models have. transformers writes -1 for
// num_gqa_groups null.
void usual_openelm(json& object) {
  const auto multipliers = object.find("ffn_multipliers");
  if (multipliers != object.end() && multipliers->is_array()) {
    const int64_t dim = whole_number(object, "model_dim", 2048),
                  divisor = whole_number(object, "ffn_dim_divisor", 256);
    json widths = json::array();
    for (const json& each : *multipliers)
      widths.push_back(each.is_number() ? json(divisible(std::clamp(each.get<double>(), 0.0, 1e4) *
                                                             static_cast<double>(dim),
                                                         divisor))
                                        : each);
    object["intermediate_size"] = widths;
  }
}

void configure_openelm(ConfigReader& reader, ModelConfig& config) {
  constexpr float kOpenElmNormEps = 1e-6f;  // no config.json states it
  if (!reader.gguf()) config.norm.eps = kOpenElmNormEps;
  const bool normed = reader.flag({"", "normalize_qk_projections"}, true);
  config.attention.qk_norm = normed ? QkNorm::kHead : QkNorm::kNone;
  reader.expect_flag("ffn_with_glu", true);
  reader.expect_text("normalization_layer_name", "rms_norm");
}

void openelm_names(NameTable& names, const ModelConfig&) {
  names.prefixes = {"transformer."};
  names.embedding = "token_embeddings";
  names[tensor::kAttnNorm] = "attn_norm", names[tensor::kFfnNorm] = "ffn_norm";
  names[tensor::kQkv] = "attn.qkv_proj", names[tensor::kO] = "attn.out_proj";
  names[tensor::kQ] = names[tensor::kK] = names[tensor::kV] = "";
  names[tensor::kQNorm] = "attn.q_norm", names[tensor::kKNorm] = "attn.k_norm";
  names[tensor::kGateUp] = "ffn.proj_1", names[tensor::kDown] = "ffn.proj_2";
  names[tensor::kGate] = names[tensor::kUp] = "";
}

void openelm_gguf_names(NameTable& names, const ModelConfig&) {
  names[tensor::kQ] = names[tensor::kK] = names[tensor::kV] = "";
  names[tensor::kGateUp] = "";
}

void describe_openelm(ConfigWriter& writer, const ModelConfig& config) {
  std::vector<int> heads, kv_heads, widths;
  for (int i = 0; i < config.n_layers; ++i) {
    heads.push_back(config.n_heads_of(i));
    kv_heads.push_back(config.n_kv_heads_of(i));
    widths.push_back(config.ffn_dim_of(i));
  }
  writer.set({"attention.head_count", "num_attention_heads"}, heads);
  writer.set({"attention.head_count_kv", "num_key_value_heads"}, kv_heads);
  writer.set({"feed_forward_length", "intermediate_size"}, widths);
}

}  // namespace

extern constinit const Architecture kOpenElm = {
    .name = "openelm",
    .title = "OpenELM",
    .hf_types = {"openelm", "OpenELMForCausalLM"},
    .configure = configure_openelm,
    .hf_names = openelm_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"tie_word_embeddings": true})",
    .hf_aliases = R"({"model_dim": "hidden_size", "num_transformer_layers": "num_hidden_layers",
    "num_query_heads": "num_attention_heads", "num_kv_heads": "num_key_value_heads",
    "max_context_length": "max_position_embeddings", "rope_freq_constant": "rope_theta",
    "activation_fn_name": "hidden_act", "share_input_output_layers": "tie_word_embeddings"})",
    .hf_usual = usual_openelm,
    .describe = describe_openelm,
    .gguf_names = openelm_gguf_names,
    .heads_by_layer = true,
};

}  // namespace penstock
