// Qwen3-Next, Qwen3.5 and Qwen3.5-MoE: gated delta networks in most layers, attention with gated
// outputs in the others, experts or dense feed-forwards. Hugging Face stores norm weights less one,
// GGUF as they are applied.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"
#include "model/arch/rope.h"
#include "model/blocks/delta_net.h"

namespace penstock {

namespace {

constexpr int kMaxDeltaTaps = 64, kMaxDeltaHeads = 1024, kMaxDeltaDim = 4096;

using nlohmann::json;

}  // namespace

DeltaConfig read_qwen_delta(ConfigReader& reader) {
  DeltaConfig delta;
  // transformers' default; GGUF files have all keys
  const auto usual = [&](int value) {
    return reader.gguf() ? std::nullopt : std::optional<int>(value);
  };
  delta.taps =
      reader.integer({"ssm.conv_kernel", "linear_conv_kernel_dim"}, 1, kMaxDeltaTaps, usual(4));
  delta.n_key_heads =
      reader.integer({"ssm.group_count", "linear_num_key_heads"}, 1, kMaxDeltaHeads, usual(16));
  delta.n_value_heads = reader.integer({"ssm.time_step_rank", "linear_num_value_heads"}, 1,
                                       kMaxDeltaHeads, usual(32));
  delta.key_dim =
      reader.integer({"ssm.state_size", "linear_key_head_dim"}, 1, kMaxDeltaDim, usual(128));
  if (reader.gguf()) {
    const int inner = reader.integer({"ssm.inner_size", ""}, 1, kMaxDeltaHeads * kMaxDeltaDim);
    delta.value_dim = inner / std::max(delta.n_value_heads, 1);
    if (delta.value_dim < 1 || delta.value_dim > kMaxDeltaDim ||
        inner != delta.value_dim * delta.n_value_heads)
      reader.fail(ErrorCode::kCorruptFile,
                  fmt::format("ssm.inner_size: expected a multiple of the {} value heads, got {}",
                              delta.n_value_heads, inner));
  } else {
    delta.value_dim = reader.integer({"", "linear_value_head_dim"}, 1, kMaxDeltaDim, usual(128));
  }
  if (delta.n_value_heads % std::max(delta.n_key_heads, 1) != 0)
    reader.fail(
        ErrorCode::kCorruptFile,
        fmt::format(
            "expected a number of value heads that is a multiple of the {} key heads, got {}",
            delta.n_key_heads, delta.n_value_heads));
  return delta;
}

namespace {

// Whether an entry of a list by layer denotes a delta network; nullopt: unknown entry.
std::optional<bool> is_recurrent(const json& kind) {
  if (kind.is_boolean()) return kind.get<bool>();
  if (kind.is_number_integer()) return kind != 0;
  if (kind == "linear_attention") return true;
  if (kind == "full_attention") return false;
  return std::nullopt;
}

// Reads which layers have attention: a list by layer (in GGUF including the layers after the last
// one), or an interval.
void read_delta_layers(ConfigReader& reader, const DeltaConfig& delta, ModelConfig& config) {
  const std::shared_ptr<const Mixer> mixer = delta_net(delta);
  const Key key{"attention.recurrent_layers", "layer_types"};
  const std::string_view name = reader.gguf() ? key.gguf : key.hf;
  const json* list = reader.find(key);
  const int interval =
      reader.integer({"full_attention_interval", "full_attention_interval"}, 1, 1 << 20, 4);
  const size_t n = config.layers.size();
  const auto further = reader.gguf() ? static_cast<size_t>(config.n_next_token_layers) : 0;
  if (list != nullptr &&
      (!list->is_array() || (list->size() != n && list->size() != n + further))) {
    return reader.fail(ErrorCode::kCorruptFile,
                       fmt::format("{}: expected a list of {} layers", name, n));
  }
  for (size_t i = 0; i < n; ++i) {
    bool recurrent = (i + 1) % static_cast<size_t>(interval) != 0;
    if (list != nullptr) {
      const std::optional<bool> kind = is_recurrent((*list)[i]);
      if (!kind)
        reader.fail(
            ErrorCode::kUnsupported,
            fmt::format(
                "{}: expected linear_attention or full_attention, got {}", name,
                (*list)[i].dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 60)));
      recurrent = kind.value_or(false);
    }
    config.layers[i].attention = !recurrent;
    if (recurrent) config.layers[i].mixer = mixer;
  }
}

void configure_delta_common(ConfigReader& reader, bool key_heads_in_turn, ModelConfig& config) {
  config.norm.offset = reader.gguf() ? 0.0f : 1.0f;
  config.attention.qk_norm = QkNorm::kHead;
  config.attention.gated = true;
  DeltaConfig delta = read_qwen_delta(reader);
  delta.key_heads_in_turn = key_heads_in_turn;
  read_delta_layers(reader, delta, config);
}

void read_shared_expert(ConfigReader& reader, ModelConfig& config) {
  config.experts.shared_dim = reader.integer(
      {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"}, 1, 1 << 20,
      reader.gguf() ? std::optional<int>(std::max(config.ffn_dim, 1)) : std::nullopt);
  config.experts.shared_gate = true;
}

// Finds layers without experts by their tensors, since GGUF has no key for them.
void find_dense_layers(const ConfigReader& reader, ModelConfig& config) {
  if (!reader.has_tensor("token_embd.weight")) return;  // the source lists no tensors
  int i = 0;
  for (LayerConfig& layer : config.layers)
    layer.moe = !reader.has_tensor(fmt::format("blk.{}.ffn_gate.weight", i++));
}

void configure_qwen3_next(ConfigReader& reader, ModelConfig& config) {
  configure_delta_common(reader, false, config);
  read_experts(reader, config);
  read_shared_expert(reader, config);
  if (reader.gguf()) return find_dense_layers(reader, config);
  config.experts.routing.normalize = reader.flag({"", "norm_topk_prob"}, true);
  read_sparse_layers(reader, config);
}

void configure_qwen35(ConfigReader& reader, ModelConfig& config) {
  configure_delta_common(reader, reader.gguf(), config);
  read_rope_axes(reader, config, AxisOrder::kInterleaved, {11, 11, 10});
}

}  // namespace

void configure_qwen35_moe(ConfigReader& reader, ModelConfig& config) {
  configure_qwen35(reader, config);
  read_experts(reader, config);
  read_shared_expert(reader, config);
}

namespace {

// Published Qwen3.5 checkpoints fuse the experts of a layer into two tensors; others have one
// tensor per expert.
void qwen3_next_names(NameTable& names, const ModelConfig&) {
  names[tensor::kSharedGate] = "mlp.shared_expert.gate_proj",
  names[tensor::kSharedUp] = "mlp.shared_expert.up_proj";
  names[tensor::kSharedDown] = "mlp.shared_expert.down_proj",
  names[tensor::kSharedRouter] = "mlp.shared_expert_gate";
  names[tensor::kExpertGateUp] = "mlp.experts.gate_up_proj",
  names[tensor::kFusedExpertDown] = "mlp.experts.down_proj";
  names[tensor::kDeltaQkv] = names[tensor::kDeltaZ] = names[tensor::kDeltaA] =
      names[tensor::kDeltaB] = "";
  names.next_token = "mtp.";
}

}  // namespace

void qwen35_names(NameTable& names, const ModelConfig& config) {
  const NameTable usual = names;
  qwen3_next_names(names, config);
  names[tensor::kDeltaQkv] = usual[tensor::kDeltaQkv],
  names[tensor::kDeltaZ] = usual[tensor::kDeltaZ];
  names[tensor::kDeltaA] = usual[tensor::kDeltaA], names[tensor::kDeltaB] = usual[tensor::kDeltaB];
  names[tensor::kDeltaQkvz] = names[tensor::kDeltaBa] = "";
}

namespace {

void qwen3_next_gguf_names(NameTable& names, const ModelConfig&) {
  names[tensor::kFfnNorm] = "post_attention_norm";
  names[tensor::kDeltaA] = names[tensor::kDeltaB] = "";
}

}  // namespace

void qwen35_gguf_names(NameTable& names, const ModelConfig&) {
  names[tensor::kFfnNorm] = "post_attention_norm";
  names[tensor::kDeltaQkvz] = names[tensor::kDeltaBa] = "";
  names.groups_in_turn = true;
}

namespace {

// Returns the interval of layers with attention; 0: irregular.
int attention_interval(const ModelConfig& config) {
  const auto first = std::ranges::find(config.layers, true, &LayerConfig::attention);
  const auto interval = static_cast<int>(first - config.layers.begin()) + 1;
  for (int i = 0; i < config.n_layers; ++i) {
    if (config.layers[static_cast<size_t>(i)].attention != ((i + 1) % interval == 0)) return 0;
  }
  return interval;
}

void describe_delta(ConfigWriter& writer, const ModelConfig& config) {
  const DeltaConfig* const found = delta_config(config);
  const DeltaConfig delta = found != nullptr ? *found : DeltaConfig();
  writer.set({"ssm.conv_kernel", "linear_conv_kernel_dim"}, delta.taps);
  writer.set({"ssm.group_count", "linear_num_key_heads"}, delta.n_key_heads);
  writer.set({"ssm.time_step_rank", "linear_num_value_heads"}, delta.n_value_heads);
  writer.set({"ssm.state_size", "linear_key_head_dim"}, delta.key_dim);
  writer.set({"ssm.inner_size", ""}, delta.values());
  writer.set({"", "linear_value_head_dim"}, delta.value_dim);
}

}  // namespace

void describe_qwen_delta(ConfigWriter& writer, const ModelConfig& config) {
  json recurrent = json::array(), kinds = json::array(), dense = json::array();
  int i = 0;
  for (const LayerConfig& layer : config.layers) {
    recurrent.push_back(!layer.attention);
    kinds.push_back(layer.attention ? "full_attention" : "linear_attention");
    if (config.experts.count > 0 && !layer.moe) dense.push_back(i);
    ++i;
  }
  writer.set({"attention.recurrent_layers", "layer_types"}, writer.gguf() ? recurrent : kinds);
  const int interval = attention_interval(config);
  if (interval > 0) writer.set({"full_attention_interval", ""}, interval);
  describe_delta(writer, config);
  if (config.arch != "qwen3next") describe_image_sections(writer, config, {11, 11, 10});
  if (config.experts.count == 0) return;
  writer.set({"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
             config.experts.shared_dim);
  if (!config.experts.routing.normalize)
    writer.set({"expert_weights_norm", "norm_topk_prob"}, false);
  if (!dense.empty()) writer.set({"", "mlp_only_layers"}, dense);
}

extern constinit const Architecture kQwen3Next = {
    .name = "qwen3next",
    .title = "Qwen3-Next",
    .hf_types = {"qwen3_next", "Qwen3NextForCausalLM"},
    .configure = configure_qwen3_next,
    .hf_names = qwen3_next_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"head_dim": 256, "num_key_value_heads": 2,
    "partial_rotary_factor": 0.25, "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512})",
    .describe = describe_qwen_delta,
    .gguf_names = qwen3_next_gguf_names,
    .partial_rope = true,
    .hf_norms_less_one = true,
};

extern constinit const Architecture kQwen35 = {
    .name = "qwen35",
    .title = "Qwen3.5 (text, also of `qwen3_5`)",
    .hf_types = {"qwen3_5_text", "Qwen3_5ForCausalLM", "qwen3_5",
                 "Qwen3_5ForConditionalGeneration"},
    .configure = configure_qwen35,
    .hf_names = qwen35_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"head_dim": 256, "num_key_value_heads": 4, "partial_rotary_factor": 0.25})",
    .describe = describe_qwen_delta,
    .gguf_names = qwen35_gguf_names,
    .partial_rope = true,
    .hf_norms_less_one = true,
};

extern constinit const Architecture kQwen35Moe = {
    .name = "qwen35moe",
    .title = "Qwen3.5 with experts (text, also of `qwen3_5_moe`)",
    .hf_types = {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", "qwen3_5_moe",
                 "Qwen3_5MoeForConditionalGeneration"},
    .configure = configure_qwen35_moe,
    .hf_names = qwen35_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"head_dim": 256, "num_key_value_heads": 2,
    "partial_rotary_factor": 0.25, "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512})",
    .describe = describe_qwen_delta,
    .gguf_names = qwen35_gguf_names,
    .partial_rope = true,
    .hf_norms_less_one = true,
};

}  // namespace penstock
