// RWKV 6 (Finch) and 7 (Goose), which no class of transformers computes: directories with the published
// code beside them, and llama.cpp's GGUF files.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "model/arch/archs.h"
#include "model/blocks/rwkv.h"

namespace penstock {

namespace {

using nlohmann::json;

constexpr int kMostRwkvHead = 1024, kMostRwkvRank = 1 << 16;
constexpr int kWideRwkv = 4096;  // whose matrices of low rank are wider in 6

// A positive number of config.json, or 0.
int64_t number_of(const json& object, std::string_view key) {
  const auto found = object.find(key);
  const bool fits =
      found != object.end() && found->is_number_integer() && *found > 0 && *found < 1 << 24;
  return fits ? found->get<int64_t>() : 0;
}

void set_heads(json& object, int64_t size) {
  const int64_t dim = number_of(object, "hidden_size");
  object["head_dim"] = size;
  object["num_attention_heads"] = std::max<int64_t>(1, dim / size);
  object.erase("num_key_value_heads");
}

// num_attention_heads of published files is not their number.
void usual_rwkv6(json& object) {
  const int64_t dim = number_of(object, "hidden_size"), size = number_of(object, "head_size");
  set_heads(object, size > 0 ? size : 64);
  if (number_of(object, "intermediate_size") == 0)
    object["intermediate_size"] = dim * 7 / 2 / 32 * 32;
}

void usual_rwkv7(json& object) {
  if (object.value("hidden_act", json()) == "sqrelu") object["hidden_act"] = "relu2";
  const int64_t dim = number_of(object, "hidden_size"), heads = number_of(object, "num_heads");
  const int64_t size = number_of(object, "head_dim");
  set_heads(object, size > 0 ? size : heads > 0 ? std::max<int64_t>(1, dim / heads) : 64);
  if (number_of(object, "intermediate_size") > 0) return;
  const auto ratio = object.find("hidden_ratio");
  const double times = ratio != object.end() && ratio->is_number() ? ratio->get<double>() : 4.0;
  if (times > 0 && times < 1024)
    object["intermediate_size"] =
        (static_cast<int64_t>(static_cast<double>(dim) * times) + 31) / 32 * 32;
}

// Sizes that both versions have.
RwkvConfig read_rwkv(ConfigReader& reader, ModelConfig& config, int version) {
  RwkvConfig rwkv;
  rwkv.version = version;
  rwkv.head_dim = reader.integer({"wkv.head_size", "head_dim"}, 1, kMostRwkvHead, 64);
  rwkv.n_heads = config.model_dim / rwkv.head_dim;
  if (rwkv.n_heads * rwkv.head_dim != config.model_dim || rwkv.n_heads == 0)
    reader.fail(
        ErrorCode::kCorruptFile,
        fmt::format("{}: expected a divisor of {} features, got {}",
                    reader.name({"wkv.head_size", "head_dim"}), config.model_dim, rwkv.head_dim));
  rwkv.ffn_dim = config.ffn_dim;
  config.n_heads = config.n_kv_heads = std::max(1, rwkv.n_heads);
  config.head_dim = rwkv.head_dim;
  config.embedding.norm = true;
  drop_ropes(config);
  for (LayerConfig& layer : config.layers)
    layer.attention = layer.feed_forward = false, layer.n_kv_heads = layer.n_heads = 0;
  return rwkv;
}

void set_mixer(ModelConfig& config, const RwkvConfig& read) {
  const std::shared_ptr<const Mixer> mixer = rwkv(read);
  for (LayerConfig& layer : config.layers) layer.mixer = mixer;
  config.ffn_dim = 0;
}

void configure_rwkv6(ConfigReader& reader, ModelConfig& config) {
  const bool wide = config.model_dim == kWideRwkv;
  RwkvConfig rwkv = read_rwkv(reader, config, 6);
  read_layer_norm(reader, config);
  const int attended = reader.integer({"", "attention_hidden_size"}, 1, 1 << 24, config.model_dim);
  if (attended != config.model_dim)
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("attention_hidden_size: expected hidden_size, {}, got {}",
                            config.model_dim, attended));
  rwkv.share_rank = reader.integer({"time_mix_extra_dim", ""}, 1, kMostRwkvRank, wide ? 64 : 32);
  rwkv.decay_rank = reader.integer({"time_decay_extra_dim", ""}, 1, kMostRwkvRank, wide ? 128 : 64);
  const float divisor = reader.number({"", "head_size_divisor"}, 1e-3f, 1e3f, 8.0f);
  rwkv.head_eps = 1e-5f * divisor * divisor;
  rwkv.halve_every = reader.integer({"rescale_every_n_layers", ""}, 0, 1 << 20, 0);
  if (reader.gguf() && reader.integer({"token_shift_count", ""}, 1, 2, 2) != 2)
    reader.fail(ErrorCode::kUnsupported, "token_shift_count: expected 2");
  set_mixer(config, rwkv);
}

// Ranks that config.json leaves unsaid are those of the tensors.
int read_rank(ConfigReader& reader, const Key& key, std::string_view part) {
  const int rows =
      reader.gguf() ? 0 : reader.rows_of(fmt::format("model.layers.1.attn.{}.lora.0.weight", part));
  return reader.integer(key, 1, kMostRwkvRank, rows > 0 ? std::optional(rows) : std::nullopt);
}

void configure_rwkv7(ConfigReader& reader, ModelConfig& config) {
  RwkvConfig rwkv = read_rwkv(reader, config, 7);
  config.norm.layer_norm = true;
  config.norm.eps = reader.number({"attention.layer_norm_epsilon", "norm_eps"}, 0.0f, 1.0f, 1e-5f);
  if (!reader.gguf()) rwkv.head_eps = config.norm.eps * static_cast<float>(rwkv.head_dim);
  reader.expect_flag("norm_first", true);
  reader.expect_flag("norm_bias", true);
  reader.expect_text("hidden_act", "relu2");
  if (reader.has({"", "attn"}))
    reader.fail(ErrorCode::kUnsupported, "attn: expected no layers with attention");
  for (const int width : reader.integers({"", "value_dim"}, 1, 1 << 24))
    if (width != config.model_dim)
      reader.fail(
          ErrorCode::kUnsupported,
          fmt::format("value_dim: expected hidden_size, {}, got {}", config.model_dim, width));
  rwkv.decay_rank =
      read_rank(reader, {"attention.decay_lora_rank", "decay_low_rank_dim"}, "w_lora");
  rwkv.rate_rank = read_rank(reader, {"attention.iclr_lora_rank", "a_low_rank_dim"}, "a_lora");
  rwkv.first_rank =
      read_rank(reader, {"attention.value_residual_mix_lora_rank", "v_low_rank_dim"}, "v_lora");
  rwkv.gate_rank = read_rank(reader, {"attention.gate_lora_rank", "gate_low_rank_dim"}, "g_lora");
  config.carried_dim = config.model_dim;
  set_mixer(config, rwkv);
}

void rwkv7_names(NameTable& names, const ModelConfig&) {
  names.embedding = "embeddings", names.embedding_norm = "layers.0.pre_norm";
  names[tensor::kAttnNorm] = "attn_norm";
}

void rwkv6_names(NameTable& names, const ModelConfig&) {
  names.prefixes = {"rwkv."};
  names.embedding = "embeddings", names.embedding_norm = "blocks.0.pre_ln";
  names.layer = "blocks.{}.", names.final_norm = "ln_out", names.lm_head = "head";
  names[tensor::kAttnNorm] = "ln1", names[tensor::kRwkvFfnNorm] = "ln2";
  names[tensor::kRwkvShares] = "";
  names[tensor::kRwkvShareW] = "attention.time_maa_w";
  names[tensor::kRwkvShareK] = "attention.time_maa_k";
  names[tensor::kRwkvShareV] = "attention.time_maa_v";
  names[tensor::kRwkvShareR] = "attention.time_maa_r";
  names[tensor::kRwkvShareG] = "attention.time_maa_g";
  names[tensor::kRwkvDecay] = "attention.time_decay";
  names[tensor::kRwkvDecayDown] = "attention.time_decay_w1";
  names[tensor::kRwkvDecayUp] = "attention.time_decay_w2";
  names[tensor::kRwkvBonus] = "attention.time_faaaa";
  names[tensor::kRwkvR] = "attention.receptance", names[tensor::kRwkvK] = "attention.key";
  names[tensor::kRwkvV] = "attention.value", names[tensor::kRwkvOut] = "attention.output";
  names[tensor::kRwkvHeadNorm] = "attention.ln_x";
  names[tensor::kRwkvFfnShareK] = "feed_forward.time_maa_k";
  names[tensor::kRwkvFfnK] = "feed_forward.key", names[tensor::kRwkvFfnV] = "feed_forward.value";
}

void rwkv6_gguf_names(NameTable& names, const ModelConfig&) {
  names[tensor::kRwkvDecay] = "time_mix_decay.weight";
  names[tensor::kRwkvDecayDown] = "time_mix_decay_w1";
  names[tensor::kRwkvDecayUp] = "time_mix_decay_w2";
  names[tensor::kRwkvBonus] = "time_mix_first.weight";
}

}  // namespace

StepOutputs rwkv_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                         KvCache& cache, Ops& ops, const ForwardOptions& options) {
  PENSTOCK_CHECK(options.stream == nullptr);  // LayerRunner refuses states
  const auto [first_layer, end_layer] = layers_of(config, weights, options);
  const Tensor x = ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream),
               normed = ops.new_tensor(shape.tokens, config.model_dim);
  DecoderParts decoder(config, weights, shape, cache, ops);
  decoder.begin(x, options);
  for (int i = first_layer; i < end_layer; ++i) {
    const NormedInput h{x, norm_params(config, weights.layers[static_cast<size_t>(i)].attn_norm),
                        normed};
    ops.prepare(h);
    decoder.attention(i, h, x, nullptr);
  }
  return decoder.end(x, options);
}

extern constinit const Architecture kRwkv6 = {
    .name = "rwkv6",
    .title = "RWKV 6 (Finch; CPU)",
    .hf_types = {"rwkv6", "Rwkv6ForCausalLM"},
    .configure = configure_rwkv6,
    .hf_names = rwkv6_names,
    .forward = rwkv_forward,
    .hf_aliases = R"({"context_length": "max_position_embeddings"})",
    .hf_usual = usual_rwkv6,
    .gguf_names = rwkv6_gguf_names,
    .zero_sizes = true,
};

extern constinit const Architecture kRwkv7 = {
    .name = "rwkv7",
    .title = "RWKV 7 (Goose; CPU)",
    .hf_types = {"rwkv7", "RWKV7ForCausalLM", "Rwkv7ForCausalLM"},
    .configure = configure_rwkv7,
    .hf_names = rwkv7_names,
    .forward = rwkv_forward,
    .hf_usual = usual_rwkv7,
    .zero_sizes = true,
};

}  // namespace penstock
