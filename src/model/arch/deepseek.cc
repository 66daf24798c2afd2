// DeepSeek V2, V3 and V3.2, GLM-4.7-Flash, GLM-5, MiniCPM3, Mistral 4: latent attention, experts chosen by
// groups after some dense layers; Youtu-LLM, which has no experts. GGUF files of all but Mistral 4
// are `deepseek2`, with a key for the score of experts.
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

void configure_deepseek3(ConfigReader&, ModelConfig&);

constexpr int kMaxRank = 8192, kMaxHead = 4096;

}  // namespace

// GGUF files from before llama.cpp knew the absorbed form have as many KV heads as heads, whose
// sizes are key_length and value_length; later ones have one, of the cache's size, and the heads'
// sizes beside it.
void read_latent(ConfigReader& reader, ModelConfig& config, std::optional<int> value_dim) {
  LatentConfig& l = config.latent;
  const bool expanded = reader.gguf() && !reader.has({"attention.key_length_mla", ""});
  const Key key_size{expanded ? "attention.key_length" : "attention.key_length_mla", ""};
  const Key value_size{expanded ? "attention.value_length" : "attention.value_length_mla",
                       "v_head_dim"};
  l.kv_rank = reader.integer({"attention.kv_lora_rank", "kv_lora_rank"}, 1, kMaxRank);
  l.query_rank = reader.integer({"attention.q_lora_rank", "q_lora_rank"}, 0, kMaxRank, 0);
  l.rope_dim = reader.integer({"rope.dimension_count", "qk_rope_head_dim"}, 2, kMaxHead);
  l.value_dim = reader.integer(value_size, 1, kMaxHead, value_dim);
  l.plain_dim = reader.gguf() ? reader.integer(key_size, l.rope_dim + 1, 2 * kMaxHead) - l.rope_dim
                              : reader.integer({"", "qk_nope_head_dim"}, 1, kMaxHead);
  config.n_kv_heads = 1;
  for (LayerConfig& layer : config.layers) layer.n_kv_heads = 0;
  config.head_dim = l.kv_rank + l.rope_dim;
  RopeConfig& rope = config.ropes[0];
  const bool of_other_heads =
      rope.scaling == RopeScaling::kLongRope && rope.rotary_dim != l.rope_dim;
  if (of_other_heads || rope.scaling == RopeScaling::kProportional) {
    return reader.fail(ErrorCode::kUnsupported,
                       "rope scaling: longrope and proportional are not known beside latents");
  }
  rope.rotary_dim = l.rope_dim;
  config.positions.rope_interleaved = reader.flag({"", "rope_interleave"}, true);
  // The share of a head's keys (Mistral 4), or of the rotated part (the others, whose heads are
  // that large for transformers).
  const int keys = reader.integer({"", "head_dim"}, 1, 2 * kMaxHead, l.rope_dim);
  const float share = reader.number({"", "partial_rotary_factor"}, 0.0f, 1.0f, 1.0f);
  if (share != 1.0f && std::lround(share * static_cast<float>(keys)) != l.rope_dim)
    reader.fail(ErrorCode::kUnsupported,
                "partial_rotary_factor: expected 1, qk_rope_head_dim is rotated whole");
  // llama.cpp's converter writes a tenth of mscale_all_dim here, and mscale is the same.
  if (reader.gguf()) rope.mscale = rope.mscale_all_dim = 10.0f * rope.mscale_all_dim;
  const bool grows =
      rope.scaling != RopeScaling::kNone && rope.mscale_all_dim > 0 && rope.factor > 1;
  const float magnitude = grows ? 1.0f + 0.1f * rope.mscale_all_dim * std::log(rope.factor) : 1.0f;
  config.attention.scale =
      magnitude * magnitude / std::sqrt(static_cast<float>(l.plain_dim + l.rope_dim));
}

void read_dense_layers(ConfigReader& reader, ModelConfig& config) {
  if (reader.integer({"", "moe_layer_freq"}, 1, 1 << 20, 1) != 1)
    reader.fail(ErrorCode::kUnsupported, "moe_layer_freq: expected 1");
  const int n_dense =
      reader.integer({"leading_dense_block_count", "first_k_dense_replace"}, 0, 1 << 20, 0);
  for (int i = 0; i < config.n_layers && i < n_dense; ++i)
    config.layers[static_cast<size_t>(i)].moe = false;
}

void read_shared_experts(ConfigReader& reader, ModelConfig& config) {
  const int n_shared = reader.integer({"expert_shared_count", "n_shared_experts"}, 0, 1024, 0);
  config.experts.shared_dim = std::min(n_shared * config.experts.ffn_dim, 1 << 20);
}

void read_softmax_groups(ConfigReader& reader, ModelConfig& config) {
  read_experts(reader, config);
  read_dense_layers(reader, config);
  ExpertRouting& routing = config.experts.routing;
  routing.normalize = reader.flag({"expert_weights_norm", "norm_topk_prob"}, true);
  routing.sum_eps = 1e-20f;
  routing.scale =
      reader.number({"expert_weights_scale", "routed_scaling_factor"}, -1e6f, 1e6f, 1.0f);
  routing.n_groups = reader.integer({"expert_group_count", "n_group"}, 1, kMaxExpertGroups, 1);
  routing.n_active_groups =
      reader.integer({"expert_group_used_count", "topk_group"}, 1, routing.n_groups, 1);
  routing.group_top = 2;
  check_expert_groups(reader, config);
  read_shared_experts(reader, config);
}

void check_sparse_layer_types(ConfigReader& reader) {
  const nlohmann::json* types = reader.find({"", "layer_types"});
  if (types == nullptr) return;
  const auto is_known = [](const nlohmann::json& type) {
    return type == "indexed_attention" || type == "deepseek_sparse_attention" ||
           type == "full_attention";
  };
  if (!types->is_array() || !std::ranges::all_of(*types, is_known))
    reader.fail(ErrorCode::kUnsupported,
                "layer_types: expected indexed_attention, deepseek_sparse_attention or "
                "full_attention in every layer");
}

namespace {

// Groups are scored by their best expert; weights are not normalized.
void read_softmax_routing(ConfigReader& reader, ModelConfig& config) {
  reader.expect_text("scoring_func", "softmax");
  // Implementations of DeepSeek V2 differ in its effect.
  if (reader.flag({"", "norm_topk_prob"}, false))
    return reader.fail(ErrorCode::kUnsupported, "norm_topk_prob: expected false");
  ExpertRouting& routing = config.experts.routing;
  const std::string method = reader.text({"", "topk_method"}, "group_limited_greedy");
  if (method != "greedy" && method != "group_limited_greedy") {
    return reader.fail(
        ErrorCode::kUnsupported,
        fmt::format("topk_method: expected greedy or group_limited_greedy, got '{}'", method));
  }
  routing.normalize = reader.flag({"expert_weights_norm", ""}, false);
  routing.scale =
      reader.number({"expert_weights_scale", "routed_scaling_factor"}, -1e6f, 1e6f, 1.0f);
  if (method == "greedy") return;
  routing.n_groups = reader.integer({"expert_group_count", "n_group"}, 1, kMaxExpertGroups, 1);
  routing.n_active_groups =
      reader.integer({"expert_group_used_count", "topk_group"}, 1, routing.n_groups, 1);
  check_expert_groups(reader, config);
}

}  // namespace

// Writes the keys of llama.cpp's converter.
void describe_latent(ConfigWriter& writer, const ModelConfig& config) {
  const LatentConfig& l = config.latent;
  writer.set({"attention.kv_lora_rank", ""}, l.kv_rank);
  if (l.query_rank > 0) writer.set({"attention.q_lora_rank", ""}, l.query_rank);
  writer.set({"attention.value_length", ""}, l.kv_rank);
  writer.set({"attention.key_length_mla", ""}, l.plain_dim + l.rope_dim);
  writer.set({"attention.value_length_mla", ""}, l.value_dim);
  const RopeConfig& rope = config.ropes[0];
  if (rope.scaling != RopeScaling::kYarn || rope.mscale_all_dim <= 0) return;
  writer.set({"rope.scaling.yarn_log_multiplier", ""}, 0.1f * rope.mscale_all_dim);
  writer.erase({"rope.scaling.attn_factor", ""});
}

namespace {

// GLM-4.7-Flash files may omit the scoring function: a selection bias implies sigmoid.
bool scores_by_sigmoid(ConfigReader& reader, const ModelConfig& config) {
  const Key key{"expert_gating_func", ""};
  if (reader.has(key)) return reader.integer(key, 1, 2) == 2;
  return reader.has_tensor(fmt::format("blk.{}.exp_probs_b.bias", config.n_layers - 1));
}

void describe_deepseek(ConfigWriter& writer, const ModelConfig& config) {
  describe_latent(writer, config);
  describe_sigmoid_routing(writer, config);
  if (config.experts.routing.score == RouterScore::kSoftmax)
    writer.set({"expert_gating_func", ""}, 1);
  writer.set({"leading_dense_block_count", ""}, leading_dense_layers(config));
  writer.set({"expert_shared_count", ""}, config.experts.shared_dim / config.experts.ffn_dim);
}

void configure_youtu(ConfigReader& reader, ModelConfig& config) { read_latent(reader, config); }

void describe_youtu(ConfigWriter& writer, const ModelConfig& config) {
  describe_latent(writer, config);
  writer.set({"leading_dense_block_count", ""}, config.n_layers);
  writer.set({"expert_feed_forward_length", ""}, config.ffn_dim);  // llama.cpp requires these keys
  writer.set({"expert_shared_count", ""}, 0);
}

void configure_minicpm3(ConfigReader& reader, ModelConfig& config) {
  read_latent(reader, config, std::clamp(config.model_dim / config.n_heads, 1, kMaxHead));
  config.positions.rope_interleaved = false;
  read_minicpm_factors(reader, config);
}

void describe_minicpm3(ConfigWriter& writer, const ModelConfig& config) {
  const LatentConfig& l = config.latent;
  writer.set({"attention.kv_lora_rank", "kv_lora_rank"}, l.kv_rank);
  if (l.query_rank > 0) writer.set({"attention.q_lora_rank", ""}, l.query_rank);
  writer.set({"", "q_lora_rank"},
             l.query_rank > 0 ? nlohmann::json(l.query_rank) : nlohmann::json());
  writer.set({"", "qk_rope_head_dim"}, l.rope_dim);
  writer.set({"", "qk_nope_head_dim"}, l.plain_dim);
  writer.set({"attention.head_count_kv", "num_key_value_heads"}, config.n_heads);
  writer.set({"attention.key_length", ""}, l.plain_dim + l.rope_dim);
  writer.set({"attention.value_length", "v_head_dim"}, l.value_dim);
  writer.set({"", "head_dim"}, l.rope_dim);
  writer.erase({"", "partial_rotary_factor"});
  describe_minicpm_factors(writer, config);
  writer.set({"", "attention_bias"}, writer.has_tensor("blk.0.attn_output.bias"));
}

// GGUF files also have one matrix for keys and values.
void minicpm3_gguf_names(NameTable& names, const ModelConfig&) {
  names[tensor::kLatentKeys] = names[tensor::kLatentValues] = "";
}

void configure_deepseek2(ConfigReader& reader, ModelConfig& config) {
  if (reader.gguf() && reader.integer({"expert_count", ""}, 0, 4096, 0) == 0)
    return configure_youtu(reader, config);
  if (reader.gguf() && scores_by_sigmoid(reader, config))
    return configure_deepseek3(reader, config);
  read_latent(reader, config);
  read_experts(reader, config);
  read_dense_layers(reader, config);
  read_softmax_routing(reader, config);
  read_shared_experts(reader, config);
}

void configure_deepseek3(ConfigReader& reader, ModelConfig& config) {
  reader.expect_text("scoring_func", "sigmoid");
  reader.expect_text("topk_method", "noaux_tc");
  read_latent(reader, config);
  read_experts(reader, config);
  read_dense_layers(reader, config);
  read_sigmoid_routing(reader, config);
  if (reader.gguf())
    config.experts.routing.normalize = reader.flag({"expert_weights_norm", ""}, false);
  read_shared_experts(reader, config);
}

// Queries grow with the position.
void configure_mistral4(ConfigReader& reader, ModelConfig& config) {
  read_latent(reader, config);
  read_softmax_groups(reader, config);
  read_query_scale(reader, config);
}

void describe_mistral4(ConfigWriter& writer, const ModelConfig& config) {
  describe_deepseek(writer, config);
  describe_query_scale(writer, config);
}

// Fused experts as published, or one tensor each.
void mistral4_names(NameTable& names, const ModelConfig&) {
  names[tensor::kExpertGateUp] = "mlp.experts.gate_up_proj",
  names[tensor::kFusedExpertDown] = "mlp.experts.down_proj";
}

void mistral4_gguf_names(NameTable& names, const ModelConfig&) {
  names[tensor::kExpertGateUp] = "ffn_gate_up_exps.weight";
}

}  // namespace

// An indexer in every layer.
void read_indexers_of_all(ConfigReader& reader, ModelConfig& config, bool interleaved) {
  constexpr int kMostSelected = 1 << 16;
  const LatentConfig& latent = config.latent;
  IndexerConfig& indexer = config.latent.indexer;
  indexer.top_k = reader.integer({"attention.indexer.top_k", "index_topk"}, 1, kMostSelected);
  indexer.n_heads = reader.integer({"attention.indexer.head_count", "index_n_heads"}, 1, 1024);
  const Key key_size{"attention.indexer.key_length", "index_head_dim"};
  indexer.head_dim = reader.integer(key_size, latent.rope_dim, kMaxHead);
  indexer.interleaved = reader.flag({"", "indexer_rope_interleave"}, interleaved);
  if (indexer.head_dim % 2 != 0)
    reader.fail(ErrorCode::kUnsupported, fmt::format("{}: expected an even number, got {}",
                                                     reader.name(key_size), indexer.head_dim));
  if (latent.query_rank == 0)
    reader.fail(ErrorCode::kUnsupported,
                "q_lora_rank: expected a latent of queries, from which an indexer's are projected");
  check_sparse_layer_types(reader);
  for (size_t i = 0; i < config.layers.size(); ++i)
    config.layers[i].selecting_layer = static_cast<int>(i);
}

namespace {

void describe_indexer(ConfigWriter& writer, const ModelConfig& config) {
  describe_deepseek(writer, config);
  const IndexerConfig& indexer = config.latent.indexer;
  writer.set({"attention.indexer.top_k", "index_topk"}, indexer.top_k);
  writer.set({"attention.indexer.head_count", "index_n_heads"}, indexer.n_heads);
  writer.set({"attention.indexer.key_length", "index_head_dim"}, indexer.head_dim);
}

void configure_deepseek32(ConfigReader& reader, ModelConfig& config) {
  configure_glm4_moe_lite(reader, config);
  read_indexers_of_all(reader, config, false);
}

}  // namespace

std::vector<bool> read_indexer_types(ConfigReader& reader, const ModelConfig& config) {
  const auto n = static_cast<size_t>(config.n_layers);
  const Key types_key{"attention.indexer.types", "indexer_types"},
      pattern_key{"", "index_topk_pattern"};
  const bool by_pattern = !reader.has(types_key) && reader.has(pattern_key);
  const Key key = by_pattern ? pattern_key : types_key;
  std::vector<bool> full;
  if (const nlohmann::json* found = reader.find(key)) {
    nlohmann::json types = *found;
    if (types.is_string()) {
      types = nlohmann::json::array();
      for (const char kind : found->get_ref<const std::string&>())
        types.push_back(std::string(1, kind));
    }
    for (const nlohmann::json& type : types.is_array() ? types : nlohmann::json::array()) {
      const bool is_full = type == "full" || type == "F" || type == true || type == 1;
      if (!is_full && type != "shared" && type != "S" && type != false && type != 0) {
        reader.fail(
            ErrorCode::kUnsupported,
            fmt::format("{}: expected full or shared, got {}", reader.name(key),
                        type.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)));
        return std::vector<bool>(n, true);
      }
      full.push_back(is_full);
    }
    if (full.size() < n || !full[0]) {
      reader.fail(ErrorCode::kCorruptFile,
                  fmt::format("{}: expected {} layers, full in the first, got {}", reader.name(key),
                              n, full.size()));
      return std::vector<bool>(n, true);
    }
    full.resize(n);
    return full;
  }
  // GGUF files of GLM-5.2, whose context tells them from GLM-5's, may leave the list out.
  const bool of_5_2 = reader.gguf() && config.max_seq_len >= 1 << 20;
  const int every = reader.integer({"", "index_topk_freq"}, 0, 1 << 20, of_5_2 ? 4 : 1),
            offset = reader.integer({"", "index_skip_topk_offset"}, 1, 1 << 20, of_5_2 ? 3 : 2);
  for (int i = 0; i < config.n_layers; ++i)
    full.push_back(std::max(i - offset + 1, 0) % std::max(every, 1) == 0);
  return full;
}

void read_indexers(ConfigReader& reader, ModelConfig& config) {
  read_indexers_of_all(reader, config, true);
  const std::vector<bool> full = read_indexer_types(reader, config);
  for (size_t i = 1; i < config.layers.size(); ++i)
    if (!full[i]) config.layers[i].selecting_layer = config.layers[i - 1].selecting_layer;
}

namespace {

void configure_glm_dsa(ConfigReader& reader, ModelConfig& config) {
  configure_glm4_moe_lite(reader, config);
  read_indexers(reader, config);
}

}  // namespace

void describe_glm_dsa(ConfigWriter& writer, const ModelConfig& config) {
  describe_indexer(writer, config);
  nlohmann::json types = nlohmann::json::array();
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const bool full = config.layers[i].selecting_layer == static_cast<int>(i);
    types.push_back(writer.gguf() ? nlohmann::json(full) : full ? "full" : "shared");
  }
  writer.set({"attention.indexer.types", "indexer_types"}, types);
}

void configure_glm4_moe_lite(ConfigReader& reader, ModelConfig& config) {
  configure_deepseek3(reader, config);
  read_mlp_layer_types(reader, config);
}

extern constinit const Architecture kYoutu = {
    .name = "youtu",
    .title = "Youtu-LLM",
    .hf_types = {"youtu", "YoutuForCausalLM"},
    .gguf_name = "deepseek2",
    .configure = configure_youtu,
    .forward = decoder_forward,
    .hf_defaults = R"({"tie_word_embeddings": true, "q_lora_rank": 1536,
    "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128})",
    .describe = describe_youtu,
    .partial_rope = true,
};

extern constinit const Architecture kMiniCpm3 = {
    .name = "minicpm3",
    .title = "MiniCPM3",
    .hf_types = {"minicpm3", "MiniCPM3ForCausalLM"},
    .configure = configure_minicpm3,
    .forward = decoder_forward,
    .hf_defaults = R"({"tie_word_embeddings": true, "rms_norm_eps": 1e-5,
    "q_lora_rank": 768, "kv_lora_rank": 256, "qk_rope_head_dim": 32, "head_dim": 32, "qk_nope_head_dim": 64,
    "scale_depth": 1.4, "dim_model_base": 256})",
    // Head size for the rotation.
    .hf_aliases = R"({"qk_rope_head_dim": "head_dim"})",
    .describe = describe_minicpm3,
    .gguf_names = minicpm3_gguf_names,
};

namespace {

constexpr MeaningfulKey kDeepSeekKeys[] = {{{"attention.kv_lora_rank", "kv_lora_rank"}, 0},
                                           {{"attention.indexer.top_k", "index_topk"}, 0}};

}  // namespace

extern constinit const Architecture kDeepSeek2 = {
    .name = "deepseek2",
    .title = "DeepSeek V2",
    .hf_types = {"deepseek_v2", "DeepseekV2ForCausalLM"},
    .configure = configure_deepseek2,
    .forward = decoder_forward,
    .hf_defaults = R"({"q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "n_routed_experts": 64, "n_shared_experts": 2,
    "moe_intermediate_size": 1407, "topk_method": "greedy"})",
    .describe = describe_deepseek,
    .partial_rope = true,
    .own_keys = kDeepSeekKeys,
};

extern constinit const Architecture kDeepSeek3 = {
    .name = "deepseek3",
    .title = "DeepSeek V3, R1, Kimi K2",
    .hf_types = {"deepseek_v3", "DeepseekV3ForCausalLM", "kimi_k2"},
    .gguf_name = "deepseek2",
    .configure = configure_deepseek3,
    .forward = decoder_forward,
    .hf_defaults = R"({"q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "routed_scaling_factor": 2.5, "n_group": 8,
    "topk_group": 4, "first_k_dense_replace": 3})",
    .describe = describe_deepseek,
    .partial_rope = true,
};

extern constinit const Architecture kGlm4MoeLite = {
    .name = "glm4moelite",
    .title = "GLM-4.7-Flash",
    .hf_types = {"glm4_moe_lite", "Glm4MoeLiteForCausalLM"},
    .gguf_name = "deepseek2",
    .configure = configure_glm4_moe_lite,
    .forward = decoder_forward,
    .hf_defaults = R"({"q_lora_rank": 768, "kv_lora_rank": 512, "rms_norm_eps": 1e-5,
    "qk_rope_head_dim": 64, "qk_nope_head_dim": 192, "v_head_dim": 256, "n_routed_experts": 64, "n_shared_experts": 1,
    "num_experts_per_tok": 4, "moe_intermediate_size": 1536, "routed_scaling_factor": 1.8,
    "first_k_dense_replace": 1})",
    .describe = describe_deepseek,
    .partial_rope = true,
};

extern constinit const Architecture kDeepSeek32 = {
    .name = "deepseek32",
    .title = "DeepSeek V3.2 (sparse attention)",
    .hf_types = {"deepseek_v32", "DeepseekV32ForCausalLM"},
    .configure = configure_deepseek32,
    .forward = decoder_forward,
    .hf_defaults = R"({"q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "routed_scaling_factor": 2.5, "n_group": 8,
    "topk_group": 4, "first_k_dense_replace": 3, "index_topk": 2048, "index_n_heads": 64, "index_head_dim": 128})",
    .describe = describe_indexer,
    .partial_rope = true,
};

extern constinit const Architecture kGlmDsa = {
    .name = "glm-dsa",
    .title = "GLM-5, 5.2 (sparse attention)",
    .hf_types = {"glm_moe_dsa", "GlmMoeDsaForCausalLM"},
    .configure = configure_glm_dsa,
    .forward = decoder_forward,
    .hf_defaults = R"({"q_lora_rank": 2048, "kv_lora_rank": 512, "rms_norm_eps": 1e-5,
    "qk_rope_head_dim": 64, "qk_nope_head_dim": 192, "v_head_dim": 256, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "routed_scaling_factor": 2.5,
    "first_k_dense_replace": 3, "index_topk": 2048, "index_n_heads": 32, "index_head_dim": 128})",
    .describe = describe_glm_dsa,
    .partial_rope = true,
};

extern constinit const Architecture kMistral4 = {
    .name = "mistral4",
    .title = "Mistral 4",
    .hf_types = {"mistral4", "Mistral4ForCausalLM"},
    .configure = configure_mistral4,
    .hf_names = mistral4_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"q_lora_rank": 1024, "kv_lora_rank": 256,
    "qk_rope_head_dim": 64, "qk_nope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 128, "n_shared_experts": 1,
    "num_experts_per_tok": 4, "moe_intermediate_size": 2048, "first_k_dense_replace": 0})",
    .describe = describe_mistral4,
    .gguf_names = mistral4_gguf_names,
    .partial_rope = true,
};

}  // namespace penstock
