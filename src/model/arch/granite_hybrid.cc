// Granite 4: scans of Mamba 2 in most layers, attention (rotated or not) in the others; experts
// with a shared one, or the shared one alone. Bamba: the same without Granite's factors.
#include <nlohmann/json.hpp>

#include "model/arch/scans.h"

namespace penstock {

using nlohmann::json;

namespace {

constexpr int kMostScanHeads = 1 << 14, kMostScanStates = 1 << 16, kMostScanTaps = 64;

// Reads [0.0, {"__float__": "Infinity"}], or numbers.
void read_time_steps(ConfigReader& reader, ScanConfig& scan) {
  const json* limit = reader.find({"", "time_step_limit"});
  if (limit == nullptr) return;
  const auto value = [](const json& item) {
    const json number = item.is_object() ? item.value("__float__", json()) : item;
    if (number == "Infinity") return std::numeric_limits<float>::infinity();
    return number.is_number() ? number.get<float>() : std::nanf("");
  };
  const bool two = limit->is_array() && limit->size() == 2;
  scan.min_step = two ? value((*limit)[0]) : std::nanf("");
  scan.max_step = two ? value((*limit)[1]) : std::nanf("");
  if (scan.min_step >= 0.0f && scan.min_step <= scan.max_step) return;
  reader.fail(
      ErrorCode::kCorruptFile,
      fmt::format("time_step_limit: expected two numbers in order, got {}",
                  limit->dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 60)));
  scan.min_step = scan.max_step = 0.0f;
}

// Returns the feed-forward width of one layer from a GGUF file's list.
int ffn_of(ConfigReader& reader, size_t layer) {
  const json* list = reader.find({"feed_forward_length", ""});
  if (list == nullptr || !list->is_array() || layer >= list->size() ||
      !(*list)[layer].is_number_integer())
    return 0;
  return (*list)[layer] > 0 ? 1 : 0;
}

// Converts a string of letters to a list of names.
json kinds_of(const json& pattern) {
  if (!pattern.is_string()) return pattern;
  json kinds = json::array();
  for (const char letter : pattern.get_ref<const std::string&>())
    kinds.push_back(letter == 'M'   ? "mamba"
                    : letter == '*' ? "attention"
                    : letter == '-' ? "mlp"
                    : letter == 'E' ? "moe"
                                    : std::string(1, letter));
  return kinds;
}

}  // namespace

// Reads a list by layer: of KV heads in GGUF, of names in directories.
std::vector<size_t> read_hybrid_layers(ConfigReader& reader, ModelConfig& config) {
  const json* found = reader.find({"attention.head_count_kv", "layer_types"});
  for (const std::string_view key : {"layers_block_type", "hybrid_override_pattern"}) {
    if (found == nullptr) found = reader.find({"", key});
  }
  const json* attending = reader.find({"", "attn_layer_indices"});
  const json kinds = found == nullptr ? json() : kinds_of(*found);
  const size_t n = config.layers.size();
  std::vector<size_t> scanning;
  // GGUF also lists layers that predict further tokens.
  const size_t further = reader.gguf() ? static_cast<size_t>(config.n_next_token_layers) : 0;
  if (kinds.is_array() && kinds.size() != n + further) {
    reader.fail(ErrorCode::kCorruptFile,
                fmt::format("layer_types: expected {} entries, got {}", n + further, kinds.size()));
    return scanning;
  }
  for (size_t i = 0; i < n; ++i) {
    LayerConfig& layer = config.layers[i];
    bool feeds = false;
    layer.attention = false;
    if (kinds.is_array()) {
      const json& kind = kinds[i];
      layer.attention = reader.gguf() ? kind != 0 : kind == "attention" || kind == "full_attention";
      // A GGUF layer with a feed-forward has no other block.
      feeds = config.residual.one_mixer &&
              (reader.gguf() ? ffn_of(reader, i) > 0 : kind == "mlp" || kind == "moe");
      layer.moe =
          feeds && (reader.gguf() ? reader.has_tensor(fmt::format("blk.{}.ffn_gate_inp.weight", i))
                                  : kind == "moe");
      if (!reader.gguf() && !layer.attention && !feeds && kind != "mamba" &&
          kind != "linear_attention") {
        reader.fail(
            ErrorCode::kUnsupported,
            fmt::format("layer_types: {} is not known here",
                        kind.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 60)));
        return scanning;
      }
    } else if (kinds.is_number()) {
      layer.attention = reader.gguf() && kinds != 0;
    } else if (attending != nullptr) {
      layer.attention = std::ranges::find(*attending, json(i)) != attending->end();
    }
    if (!layer.attention && !feeds) scanning.push_back(i);
  }
  return scanning;
}

ScanConfig read_scan(ConfigReader& reader, const ModelConfig& config) {
  ScanConfig scan;
  scan.taps = reader.integer({"ssm.conv_kernel", "mamba_d_conv"}, 1, kMostScanTaps, 4);
  scan.state_dim = reader.integer({"ssm.state_size", "mamba_d_state"}, 1, kMostScanStates, 256);
  scan.n_groups = reader.integer({"ssm.group_count", "mamba_n_groups"}, 1, kMostScanHeads, 1);
  scan.n_heads = reader.integer({"ssm.time_step_rank", "mamba_n_heads"}, 1, kMostScanHeads, 128);
  const int expand = reader.integer({"", "mamba_expand"}, 1, 1024, 2);
  const Key inner{"ssm.inner_size", "mamba_d_ssm"};
  int64_t wide = reader.gguf() || reader.has(inner) ? reader.integer(inner, 1, 1 << 24)
                                                    : int64_t{expand} * config.model_dim;
  const auto head = static_cast<int>(std::clamp<int64_t>(wide / scan.n_heads, 1, 1 << 16));
  const json* given = reader.find({"", "mamba_d_head"});
  scan.head_dim = given != nullptr && given->is_string()
                      ? head
                      : reader.integer({"", "mamba_d_head"}, 1, 1 << 16, head);
  if (!reader.gguf() && config.residual.one_mixer) wide = int64_t{scan.head_dim} * scan.n_heads;
  const bool fits =
      int64_t{scan.head_dim} * scan.n_heads == wide && scan.n_heads % scan.n_groups == 0;
  if (!fits) {
    reader.fail(ErrorCode::kCorruptFile,
                fmt::format("{} heads of {} features in {} groups: expected {} features in all, "
                            "and as many heads in every group",
                            scan.n_heads, scan.head_dim, scan.n_groups, wide));
    scan.n_groups = scan.n_heads = 1;
  }
  read_time_steps(reader, scan);
  return scan;
}

void read_scanning_layers(ConfigReader& reader, ModelConfig& config) {
  // unused if no layer has a scan (Granite 4 micro)
  reader.find({"ssm.state_size", "mamba_d_state"});
  const std::vector<size_t> scanning = read_hybrid_layers(reader, config);
  if (scanning.empty()) return;
  const std::shared_ptr<const Mixer> mixer = scan(read_scan(reader, config));
  for (const size_t layer : scanning) config.layers[layer].mixer = mixer;
}

void describe_scans(ConfigWriter& writer, const ModelConfig& config) {
  json kv_heads = json::array();
  for (const LayerConfig& layer : config.layers)
    kv_heads.push_back(layer.attention ? static_cast<uint64_t>(config.n_kv_heads) : uint64_t{0});
  writer.set({"attention.head_count_kv", ""}, kv_heads);
  const ScanConfig* found = scan_config(config);
  if (found == nullptr) return;
  const ScanConfig& scan = *found;
  writer.set({"ssm.conv_kernel", "mamba_d_conv"}, scan.taps);
  writer.set({"ssm.state_size", "mamba_d_state"}, scan.state_dim);
  writer.set({"ssm.group_count", "mamba_n_groups"}, scan.n_groups);
  writer.set({"ssm.time_step_rank", "mamba_n_heads"}, scan.n_heads);
  writer.set({"", "mamba_d_head"}, scan.head_dim);
  writer.set({"ssm.inner_size", ""}, scan.values());
}

namespace {

void configure_granite_hybrid(ConfigReader& reader, ModelConfig& config) {
  configure_granite(reader, config);
  if (config.ffn.activation.kind != Activation::kSilu)
    reader.fail(ErrorCode::kUnsupported, "hidden_act: scans are known with silu only");
  read_scanning_layers(reader, config);
  const bool rotated = reader.gguf() ? reader.flag({"rope.scaling.finetuned", ""}, true)
                                     : reader.text({"", "position_embedding_type"}, "") == "rope";
  for (LayerConfig& layer : config.layers) layer.rope = rotated ? 0 : -1;
  const Key count{"expert_count", "num_local_experts"};
  const int n_experts = reader.integer(count, 0, 4096, reader.gguf() ? 0 : 8);
  const int shared =
      reader.integer({"expert_shared_feed_forward_length", "shared_intermediate_size"}, 0, 1 << 20,
                     reader.gguf() ? 0 : 1024);
  if (n_experts > 0) {
    read_experts(reader, config);
    config.experts.shared_dim = shared;
  } else if (shared > 0) {
    config.ffn_dim = shared;
  }
}

void granite_hybrid_names(NameTable& names, const ModelConfig& config) {
  granite_moe_names(names, config);
  if (config.experts.count > 0) return;
  names[tensor::kGateUp] = "shared_mlp.input_linear",
  names[tensor::kDown] = "shared_mlp.output_linear";
}

// Always rotated, without Granite's factors.
void configure_bamba(ConfigReader& reader, ModelConfig& config) {
  if (config.ffn.activation.kind != Activation::kSilu)
    reader.fail(ErrorCode::kUnsupported, "hidden_act: scans are known with silu only");
  read_scanning_layers(reader, config);
}

}  // namespace

void bamba_names(NameTable& names, const ModelConfig&) {
  names.final_norm = "final_layernorm", names[tensor::kFfnNorm] = "pre_ff_layernorm";
  names[tensor::kGate] = "feed_forward.gate_proj", names[tensor::kUp] = "feed_forward.up_proj",
  names[tensor::kDown] = "feed_forward.down_proj";
}

namespace {

void describe_granite_hybrid(ConfigWriter& writer, const ModelConfig& config) {
  describe_granite(writer, config);
  if (config.has_states()) describe_scans(writer, config);
  const bool rotated =
      std::ranges::any_of(config.layers, [](const LayerConfig& layer) { return layer.rope >= 0; });
  writer.set({"rope.scaling.finetuned", ""}, rotated);
  if (config.experts.count == 0) writer.set({"feed_forward_length", ""}, config.ffn_dim);
  if (config.experts.shared_dim > 0)
    writer.set({"expert_shared_feed_forward_length", ""}, config.experts.shared_dim);
}

constexpr MeaningfulKey kScanKeys[] = {{{"ssm.state_size", "mamba_d_state"}, 0}};

}  // namespace

extern constinit const Architecture kGraniteHybrid = {
    .name = "granitehybrid",
    .title = "Granite 4",
    .hf_types = {"granitemoehybrid", "GraniteMoeHybridForCausalLM"},
    .configure = configure_granite_hybrid,
    .hf_names = granite_hybrid_names,
    .forward = decoder_forward,
    .describe = describe_granite_hybrid,
    .gguf_names = granite_gguf_names,
    .gguf_pairs = true,
    .zero_sizes = true,
    .own_keys = kScanKeys,
};

extern constinit const Architecture kBamba = {
    .name = "bamba",
    .title = "Bamba",
    .hf_types = {"bamba", "BambaForCausalLM"},
    .gguf_name = "granitehybrid",
    .configure = configure_bamba,
    .hf_names = bamba_names,
    .forward = decoder_forward,
    .hf_defaults =
        R"({"rms_norm_eps": 1e-5, "num_key_value_heads": 8, "partial_rotary_factor": 0.5})",
    .describe = describe_granite_hybrid,
    .partial_rope = true,
    .gguf_pairs = true,
};

}  // namespace penstock
