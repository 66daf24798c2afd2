// The first GLM-4: adjacent rotated pairs in half of a head. GLM-4: norms before and after each
// sub-layer, too. GLM-4.5 and 4.6: experts chosen by groups and by a bias, after some dense layers.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"
#include "model/arch/rope.h"

namespace penstock {

namespace {

void configure_glm(ConfigReader&, ModelConfig& config) { config.positions.rope_interleaved = true; }

// GGUF files of GLM-4V, which have positions in three dimensions, hold rotated rows as halves.
void configure_glm4(ConfigReader& reader, ModelConfig& config) {
  config.residual.norms = NormPlacement::kBoth;
  config.positions.rope_interleaved = !reader.has({"rope.dimension_sections", ""});
}

void configure_glm4v(ConfigReader& reader, ModelConfig& config) {
  configure_glm4(reader, config);
  read_rope_axes(reader, config, AxisOrder::kSections, {8, 12, 12});
}

void describe_glm4(ConfigWriter& writer, const ModelConfig&) {
  writer.set({"", "attention_bias"}, writer.has_tensor("blk.0.attn_q.bias"));
}

void glm4_names(NameTable& names, const ModelConfig&) {
  names[tensor::kAttnPostNorm] = "post_self_attn_layernorm",
  names[tensor::kFfnNorm] = "post_attention_layernorm";
  names[tensor::kFfnPostNorm] = "post_mlp_layernorm";
}

void configure_glm4_moe(ConfigReader& reader, ModelConfig& config) {
  const bool norms = reader.gguf() ? reader.has_tensor("blk.0.attn_q_norm.weight")
                                   : reader.flag({"", "use_qk_norm"}, false);
  if (norms) config.attention.qk_norm = QkNorm::kHead;
  read_experts(reader, config);
  // converters write it if there are some
  const int n_dense = reader.integer({"leading_dense_block_count", "first_k_dense_replace"}, 0,
                                     1 << 20, reader.gguf() ? 0 : 1);
  for (int i = 0; i < config.n_layers && i < n_dense; ++i)
    config.layers[static_cast<size_t>(i)].moe = false;
  read_sigmoid_routing(reader, config);
  const int n_shared = reader.integer({"expert_shared_count", "n_shared_experts"}, 0, 1024, 1);
  config.experts.shared_dim = std::min(n_shared * config.experts.ffn_dim, 1 << 20);
}

void describe_glm4_moe(ConfigWriter& writer, const ModelConfig& config) {
  describe_sigmoid_routing(writer, config);
  writer.set({"leading_dense_block_count", "first_k_dense_replace"}, leading_dense_layers(config));
  writer.set({"expert_shared_count", "n_shared_experts"},
             config.experts.shared_dim / config.experts.ffn_dim);
  writer.erase({"", "num_experts"});
  writer.set({"", "n_routed_experts"}, config.experts.count);
  writer.set({"", "use_qk_norm"}, config.attention.qk_norm != QkNorm::kNone);
  writer.set({"", "partial_rotary_factor"},
             static_cast<float>(config.ropes[0].rotary_dim) / config.head_dim);
  writer.set({"", "attention_bias"}, writer.has_tensor("blk.0.attn_q.bias"));
}

}  // namespace

void glm4_moe_gguf_names(NameTable& names, const ModelConfig&) {
  names[tensor::kFfnNorm] = "post_attention_norm";
}

namespace {

// Sarvam and Ling 2: GLM-4.5's layers under other names.
void bailing_names(NameTable& names, const ModelConfig&) {
  names.embedding = "word_embeddings";
  names[tensor::kQkv] = "attention.query_key_value";
  names[tensor::kO] = "attention.dense";
  names[tensor::kQNorm] = "attention.query_layernorm";
  names[tensor::kKNorm] = "attention.key_layernorm";
  names[tensor::kSelectionBias] = "mlp.gate.expert_bias";
}

constexpr std::string_view kBailingAliases =
    R"({"num_shared_experts": "n_shared_experts", "use_qkv_bias": "attention_bias"})";

// ChatGLM 2 and 3, and GLM-4 under their type: the first GLM-4's layers under other names.
void usual_chatglm(nlohmann::json& object) {
  const auto ratio = object.find("rope_ratio");
  if (ratio != object.end() && ratio->is_number())
    object["rope_theta"] = 10000.0 * ratio->get<double>();
  if (object.value("multi_query_attention", nlohmann::json()) == false)
    object.erase("num_key_value_heads");
}

void configure_chatglm(ConfigReader& reader, ModelConfig& config) {
  if (reader.flag({"", "position_encoding_2d"}, false))
    reader.fail(ErrorCode::kUnsupported,
                "position_encoding_2d: the first ChatGLM, with positions in two dimensions, is not "
                "supported");
  // The one model with this ratio, ChatGLM 2's of 32,768 tokens, divides positions by it.
  if (reader.number({"", "rope_ratio"}, 0.0f, 1e6f, 1.0f) == 16.0f)
    reader.fail(ErrorCode::kUnsupported,
                "rope_ratio: expected that of ChatGLM 3 or GLM-4, which multiplies the base, got "
                "16, ChatGLM 2's");
  if (reader.integer({"", "quantization_bit"}, 0, 64, 0) != 0)
    reader.fail(ErrorCode::kUnsupported, "quantization_bit: expected 0, plain weights");
  reader.expect_flag("rmsnorm", true);
  reader.expect_flag("post_layer_norm", true);
  reader.expect_flag("original_rope", true);
  reader.expect_flag("apply_residual_connection_post_layernorm", false);
  config.positions.rope_interleaved = true;
}

void chatglm_names(NameTable& names, const ModelConfig&) {
  names.prefixes = {"transformer."};
  names.embedding = "embedding.word_embeddings", names.final_norm = "encoder.final_layernorm";
  names.layer = "encoder.layers.{}.", names.lm_head = "transformer.output_layer";
  names[tensor::kQkv] = "self_attention.query_key_value";
  names[tensor::kO] = "self_attention.dense";
  names[tensor::kGateUp] = "mlp.dense_h_to_4h", names[tensor::kDown] = "mlp.dense_4h_to_h";
}

constexpr std::string_view kChatGlmAliases =
    R"({"num_layers": "num_hidden_layers", "padded_vocab_size": "vocab_size",
    "ffn_hidden_size": "intermediate_size", "kv_channels": "head_dim", "layernorm_epsilon": "rms_norm_eps",
    "multi_query_group_num": "num_key_value_heads", "seq_length": "max_position_embeddings"})";

constexpr std::string_view kGlm4Defaults =
    R"({"head_dim": 128, "num_key_value_heads": 2, "rms_norm_eps": 1.5625e-7,
    "partial_rotary_factor": 0.5})";

}  // namespace

extern constinit const Architecture kGlm = {
    .name = "chatglm",
    .title = "GLM-4 (9B, first)",
    .hf_types = {"glm", "GlmForCausalLM"},
    .configure = configure_glm,
    .forward = decoder_forward,
    .hf_defaults = kGlm4Defaults,
    .describe = describe_glm4,
    .partial_rope = true,
};

extern constinit const Architecture kChatGlm = {
    .name = "chatglm2",
    .title = "ChatGLM 2, 3, GLM-4 (as published)",
    .hf_types = {"chatglm", "ChatGLMModel", "ChatGLMForConditionalGeneration"},
    .gguf_name = "chatglm",
    .configure = configure_chatglm,
    .hf_names = chatglm_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"partial_rotary_factor": 0.5, "tie_word_embeddings": false,
    "rms_norm_eps": 1e-5})",
    .hf_aliases = kChatGlmAliases,
    .hf_usual = usual_chatglm,
    .partial_rope = true,
};

extern constinit const Architecture kGlm4 = {
    .name = "glm4",
    .title = "GLM-4",
    .hf_types = {"glm4", "Glm4ForCausalLM"},
    .configure = configure_glm4,
    .hf_names = glm4_names,
    .forward = decoder_forward,
    .hf_defaults = kGlm4Defaults,
    .describe = describe_glm4,
    .partial_rope = true,
};

extern constinit const Architecture kGlm4v = {
    .name = "glm4",
    .title = "GLM-4V (text, also of `glm4v`)",
    .hf_types = {"glm4v_text", "Glm4vForConditionalGeneration", "glm4v"},
    .configure = configure_glm4v,
    .hf_names = glm4_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"num_key_value_heads": 2, "rms_norm_eps": 1e-5})",
    .describe = describe_glm4,
    .partial_rope = true,
};

extern constinit const Architecture kGlm4Moe = {
    .name = "glm4moe",
    .title = "GLM-4.5, 4.6",
    .hf_types = {"glm4_moe", "Glm4MoeForCausalLM"},
    .configure = configure_glm4_moe,
    .forward = decoder_forward,
    .hf_defaults = R"({"rms_norm_eps": 1e-5, "partial_rotary_factor": 0.5,
    "n_routed_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1408, "num_key_value_heads": 8})",
    .describe = describe_glm4_moe,
    .gguf_names = glm4_moe_gguf_names,
    .partial_rope = true,
};

extern constinit const Architecture kSarvamMoe = {
    .name = "sarvam-moe",
    .title = "Sarvam 30B",
    .hf_types = {"sarvam_moe", "SarvamMoEForCausalLM"},
    .gguf_name = "bailingmoe2",
    .configure = configure_glm4_moe,
    .hf_names = bailing_names,
    .forward = decoder_forward,
    .hf_defaults =
        R"({"head_dim": 64, "num_key_value_heads": 4, "rope_theta": 8e6, "use_qk_norm": true,
    "num_experts_per_tok": 6, "moe_intermediate_size": 1024,
    "routed_scaling_factor": 2.5})",
    .hf_aliases = kBailingAliases,
    .describe = describe_glm4_moe,
    .partial_rope = true,
};

extern constinit const Architecture kBailing2 = {
    .name = "bailingmoe2",
    .title = "Ling 2, Ring 2",
    .hf_types = {"bailing_moe_v2", "BailingMoeV2ForCausalLM"},
    .configure = configure_glm4_moe,
    .hf_names = bailing_names,
    .forward = decoder_forward,
    .hf_defaults =
        R"({"head_dim": 128, "num_key_value_heads": 4, "rope_theta": 6e5, "use_qk_norm": true,
    "num_experts_per_tok": 8, "moe_intermediate_size": 512,
    "routed_scaling_factor": 2.5})",
    .hf_aliases = kBailingAliases,
    .describe = describe_glm4_moe,
    .partial_rope = true,
};

}  // namespace penstock
