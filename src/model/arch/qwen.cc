// Qwen2 and 2.5 (biases on q, k and v, detected by their tensors), Qwen3 (a norm on every head of q
// and k), Qwen3-MoE; and the text parts of vision models, whose rope rotates parts of a head by the
// positions in an image: for text, all three positions are that of the token.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"
#include "model/arch/rope.h"

namespace penstock {

namespace {

// Sets windows for files that enable them without listing layers; false: they are listed or
// disabled.
bool read_unlisted_windows(ConfigReader& reader, ModelConfig& config) {
  if (reader.gguf() || !reader.flag({"", "use_sliding_window"}, false)) return false;
  read_windows(reader, config, 0);
  return !reader.has({"", "layer_types"});
}

void configure_qwen2(ConfigReader& reader, ModelConfig& config) {
  if (!read_unlisted_windows(reader, config)) return;
  const int first = reader.integer({"", "max_window_layers"}, 0, 1 << 20, 28);
  for (int i = 0; i < config.n_layers && i < first; ++i) config.layers[i].window = 0;
}

void configure_qwen3(ConfigReader& reader, ModelConfig& config) {
  configure_qwen2(reader, config);
  config.attention.qk_norm = QkNorm::kHead;
}

}  // namespace

void read_sparse_layers(ConfigReader& reader, ModelConfig& config) {
  const int step = reader.integer({"", "decoder_sparse_step"}, 1, 1 << 20, 1);
  const std::vector<float> dense = reader.numbers({"", "mlp_only_layers"}, 1024);
  for (int i = 0; i < config.n_layers; ++i) {
    config.layers[i].moe = (i + 1) % step == 0;
    for (const float layer : dense) config.layers[i].moe &= layer != static_cast<float>(i);
  }
}

namespace {

void configure_experts(ConfigReader& reader, ModelConfig& config) {
  read_experts(reader, config);
  if (reader.gguf()) return;
  config.experts.routing.normalize = reader.flag({"", "norm_topk_prob"}, false);
  read_sparse_layers(reader, config);
}

// All layers have the window.
void configure_qwen3_moe(ConfigReader& reader, ModelConfig& config) {
  read_unlisted_windows(reader, config);
  config.attention.qk_norm = QkNorm::kHead;
  configure_experts(reader, config);
}

void configure_qwen2_vl(ConfigReader& reader, ModelConfig& config) {
  configure_qwen2(reader, config);
  read_rope_axes(reader, config, AxisOrder::kSections, {16, 24, 24});
}

void configure_qwen3_vl(ConfigReader& reader, ModelConfig& config) {
  configure_qwen3(reader, config);
  read_rope_axes(reader, config, AxisOrder::kInterleaved, {24, 20, 20});
}

// Expert weights are always normalized.
void configure_qwen3_vl_moe(ConfigReader& reader, ModelConfig& config) {
  configure_qwen3_moe(reader, config);
  read_rope_axes(reader, config, AxisOrder::kInterleaved, {24, 20, 20});
  if (!reader.flag({"expert_weights_norm", "norm_topk_prob"}, true))
    reader.fail(ErrorCode::kUnsupported, "norm_topk_prob: expected true");
  config.experts.routing.normalize = true;
  reader.expect_flag("use_qk_norm", true);
}

// What transformers assumes of text models of Omni, and not of those that only see.
void usual_omni_text(nlohmann::json& object) {
  const auto found = object.find("model_type");
  if (found == object.end() || !found->is_string()) return;
  const auto type = found->get<std::string>();
  const auto usual = [&](const char* key, double value) {
    if (!object.contains(key)) object[key] = value;
  };
  if (type.starts_with("qwen2_5_omni")) usual("rms_norm_eps", 1e-6);
  if (type.starts_with("qwen2_5_omni") || type.starts_with("qwen3_omni")) usual("rope_theta", 1e6);
}

// Experts are published [in, out].
void qwen3_vl_moe_names(NameTable& names, const ModelConfig&) {
  names[tensor::kExpertGateUp] = "mlp.experts.gate_up_proj",
  names[tensor::kExpertDown] = "mlp.experts.down_proj";
  names.experts_transposed = true;
}

}  // namespace

// llama.cpp requires the sections of rotated pairs for time, height and width. They only matter for
// images, but pairs outside all sections would have position 0.
void describe_image_sections(ConfigWriter& writer, const ModelConfig& config,
                             std::array<unsigned, 3> published) {
  const auto pairs = static_cast<unsigned>(config.ropes[0].rotary_dim) / 2;
  if (published[0] + published[1] + published[2] != pairs)
    published = {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3};
  writer.set({"rope.dimension_sections", ""},
             nlohmann::json{published[0], published[1], published[2], 0U});
  if (config.embedding.deep_levels > 0)
    writer.set({"n_deepstack_layers", ""}, config.embedding.deep_levels);
}

void describe_qwen_vl(ConfigWriter& writer, const ModelConfig& config) {
  const bool second = config.arch == "qwen2vl";
  describe_image_sections(writer, config,
                          second ? std::array{16U, 24U, 24U} : std::array{24U, 20U, 20U});
}

namespace {

void configure_qwen2_moe(ConfigReader& reader, ModelConfig& config) {
  if (read_unlisted_windows(reader, config)) {
    const int end = reader.integer({"", "max_window_layers"}, 0, 1 << 20, 28);
    for (int i = 0; i < config.n_layers; ++i) {
      if (i % 2 != 0 || i >= end) config.layers[static_cast<size_t>(i)].window = 0;
    }
  }
  configure_experts(reader, config);
  if (reader.gguf())
    config.experts.routing.normalize = reader.flag({"expert_weights_norm", ""}, false);
  config.experts.shared_dim =
      reader.integer({"expert_shared_feed_forward_length", "shared_expert_intermediate_size"}, 1,
                     1 << 20, reader.gguf() ? std::optional<int>(config.ffn_dim) : std::nullopt);
  config.experts.shared_gate = true;
}

void describe_qwen2_moe(ConfigWriter& writer, const ModelConfig& config) {
  writer.set({"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
             config.experts.shared_dim);
  if (config.experts.routing.normalize) writer.set({"expert_weights_norm", ""}, true);
}

void qwen2_moe_names(NameTable& names, const ModelConfig&) {
  names[tensor::kSharedGate] = "mlp.shared_expert.gate_proj",
  names[tensor::kSharedUp] = "mlp.shared_expert.up_proj";
  names[tensor::kSharedDown] = "mlp.shared_expert.down_proj",
  names[tensor::kSharedRouter] = "mlp.shared_expert_gate";
}

}  // namespace

extern constinit const Architecture kQwen2 = {
    .name = "qwen2",
    .title = "Qwen 2, 2.5",
    .hf_types = {"qwen2", "Qwen2ForCausalLM"},
    .configure = configure_qwen2,
    .forward = decoder_forward,
};

extern constinit const Architecture kQwen3 = {
    .name = "qwen3",
    .title = "Qwen3",
    .hf_types = {"qwen3", "Qwen3ForCausalLM"},
    .configure = configure_qwen3,
    .forward = decoder_forward,
    .hf_defaults = R"({"head_dim": 128})",
};

extern constinit const Architecture kQwen2Vl = {
    .name = "qwen2vl",
    .title =
        "Qwen2-VL, Qwen2.5-VL, Qwen2.5-Omni (text, also of `qwen2_vl`, `qwen2_5_vl`, "
        "`qwen2_5_omni`)",
    .hf_types = {"qwen2_vl_text", "Qwen2VLForConditionalGeneration", "qwen2_vl", "qwen2_5_vl_text",
                 "qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", "qwen2_5_omni_text",
                 "qwen2_5_omni_thinker", "qwen2_5_omni"},
    .configure = configure_qwen2_vl,
    .forward = decoder_forward,
    .hf_defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6})",
    .hf_usual = usual_omni_text,
    .describe = describe_qwen_vl,
};

extern constinit const Architecture kQwen3Vl = {
    .name = "qwen3vl",
    .title = "Qwen3-VL (text, also of `qwen3_vl`)",
    .hf_types = {"qwen3_vl_text", "Qwen3VLForConditionalGeneration", "qwen3_vl"},
    .configure = configure_qwen3_vl,
    .forward = decoder_forward,
    .hf_defaults = R"({"head_dim": 128, "rope_theta": 5e5})",
    .describe = describe_qwen_vl,
};

extern constinit const Architecture kQwen3Moe = {
    .name = "qwen3moe",
    .title = "Qwen3-MoE",
    .hf_types = {"qwen3_moe", "Qwen3MoeForCausalLM"},
    .configure = configure_qwen3_moe,
    .forward = decoder_forward,
};

extern constinit const Architecture kQwen3VlMoe = {
    .name = "qwen3vlmoe",
    .title = "Qwen3-VL with experts, Qwen3-Omni (text, also of `qwen3_vl_moe`, `qwen3_omni_moe`)",
    .hf_types = {"qwen3_vl_moe_text", "Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe",
                 "qwen3_omni_moe_text", "qwen3_omni_moe_thinker", "qwen3_omni_moe"},
    .configure = configure_qwen3_vl_moe,
    .hf_names = qwen3_vl_moe_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"rope_theta": 5e5})",
    .hf_usual = usual_omni_text,
    .describe = describe_qwen_vl,
};

extern constinit const Architecture kQwen2Moe = {
    .name = "qwen2moe",
    .title = "Qwen2-MoE",
    .hf_types = {"qwen2_moe", "Qwen2MoeForCausalLM"},
    .configure = configure_qwen2_moe,
    .hf_names = qwen2_moe_names,
    .forward = decoder_forward,
    .describe = describe_qwen2_moe,
};

}  // namespace penstock
