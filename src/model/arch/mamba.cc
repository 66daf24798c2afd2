// Models with scans of Mamba 1. Mamba and Falcon Mamba, whose layers are scans only; Jamba, where
// every few layers attention (without rotation) takes the place of the scan, and experts that of
// the feed-forward.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"
#include "model/blocks/channel_scan.h"

namespace penstock {

namespace {

using nlohmann::json;
using Norms = ChannelScanConfig::Norms;

constexpr int kMostMambaStates = 1 << 12, kMostMambaTaps = 64, kMostChannels = 1 << 20;
constexpr int64_t kMostValues = int64_t{1} << 28;
constexpr Key kNormed{"ssm.dt_b_c_rms", ""};

ChannelScanConfig read_channel_scan(ConfigReader& reader, const ModelConfig& config) {
  if (config.ffn.activation.kind != Activation::kSilu)
    reader.fail(ErrorCode::kUnsupported, "hidden_act: scans are known with silu only");
  ChannelScanConfig scan;
  scan.taps = reader.integer({"ssm.conv_kernel", "mamba_d_conv"}, 1, kMostMambaTaps, 4);
  scan.state_dim = reader.integer({"ssm.state_size", "mamba_d_state"}, 1, kMostMambaStates, 16);
  const int expand = reader.integer({"", "mamba_expand"}, 1, 1024, 2);
  scan.channels = reader.integer(
      {"ssm.inner_size", "mamba_d_inner"}, 1, kMostChannels,
      static_cast<int>(std::min<int64_t>(int64_t{expand} * config.model_dim, kMostChannels)));
  if (int64_t{scan.channels} * scan.state_dim > kMostValues)
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("{} channels with states of {}: expected at most {} values in all",
                            scan.channels, scan.state_dim, kMostValues));
  const Key rank{"ssm.time_step_rank", "mamba_dt_rank"};
  const json* given = reader.find(rank);
  const int usual = (config.model_dim + 15) / 16;
  scan.step_rank =
      given != nullptr && *given == "auto" ? usual : reader.integer(rank, 1, kMostChannels, usual);
  scan.eps = config.norm.eps;
  return scan;
}

void describe_channel_scan(ConfigWriter& writer, const ModelConfig& config) {
  const ChannelScanConfig* scan = channel_scan_config(config);
  if (scan == nullptr) return;
  writer.set({"ssm.conv_kernel", "mamba_d_conv"}, scan->taps);
  writer.set({"ssm.state_size", "mamba_d_state"}, scan->state_dim);
  writer.set({"ssm.inner_size", ""}, scan->channels);
  writer.set({"ssm.time_step_rank", "mamba_dt_rank"}, scan->step_rank);
}

void configure_scans_only(ConfigReader& reader, ModelConfig& config) {
  config.residual.one_mixer = true;
  config.ffn_dim = 0;
  ChannelScanConfig scan = read_channel_scan(reader, config);
  if (reader.flag(kNormed, config.arch == "falcon_mamba")) {
    config.arch = "falcon_mamba";  // whose GGUF files are those of Mamba, with this key
    scan.norms = Norms::kPlain;
    if (!reader.gguf()) scan.eps = reader.number({"", "mixer_rms_eps"}, 0.0f, 1.0f, 1e-6f);
  }
  const std::shared_ptr<const Mixer> mixer = channel_scan(scan);
  for (LayerConfig& layer : config.layers) {
    layer = {};
    layer.attention = false;
    layer.rope = -1;
    layer.mixer = mixer;
  }
}

void describe_scans_only(ConfigWriter& writer, const ModelConfig& config) {
  describe_channel_scan(writer, config);
  const ChannelScanConfig& scan = *channel_scan_config(config);
  writer.set({"", "mamba_d_inner"}, scan.channels);
  writer.set(kNormed, scan.norms == Norms::kPlain);
  if (scan.norms == Norms::kPlain) writer.set({"", "mixer_rms_eps"}, scan.eps);
  writer.set({"attention.head_count", ""}, 0);
  writer.erase({"attention.head_count_kv", ""});
  writer.set({"feed_forward_length", ""}, 0);
  for (const std::string_view key :
       {"head_dim", "num_attention_heads", "num_key_value_heads", "intermediate_size"})
    writer.erase({"", key});
}

void mamba_names(NameTable& names, const ModelConfig&) {
  names.prefixes = {"backbone.", "model.", ""};
  names.embedding = "embeddings", names.final_norm = "norm_f", names[tensor::kAttnNorm] = "norm";
  names[tensor::kSsmIn] = "mixer.in_proj", names[tensor::kSsmConv] = "mixer.conv1d",
  names[tensor::kSsmX] = "mixer.x_proj", names[tensor::kSsmStep] = "mixer.dt_proj",
  names[tensor::kSsmRate] = "mixer.A_log", names[tensor::kSsmSkip] = "mixer.D",
  names[tensor::kSsmOut] = "mixer.out_proj";
}

// Every period-th layer, beginning with layer `offset`.
struct Rhythm {
  Key period, offset;
  int usual_period, usual_offset;
};
constexpr Rhythm kAttending{{"", "attn_layer_period"}, {"", "attn_layer_offset"}, 8, 4};
constexpr Rhythm kWithExperts{{"", "expert_layer_period"}, {"", "expert_layer_offset"}, 2, 1};

std::vector<bool> read_rhythm(ConfigReader& reader, const Rhythm& rhythm, int n_layers) {
  const int period = reader.integer(rhythm.period, 1, 1 << 16, rhythm.usual_period),
            offset = reader.integer(rhythm.offset, 0, period - 1,
                                    std::min(rhythm.usual_offset, period - 1));
  std::vector<bool> beats;
  for (int i = 0; i < n_layers; ++i) beats.push_back(i % period == offset);
  return beats;
}

template <class Is>
void describe_rhythm(ConfigWriter& writer, const Rhythm& rhythm, int n_layers, const Is& is) {
  std::vector<int> beats;
  for (int i = 0; i < n_layers; ++i)
    if (is(i)) beats.push_back(i);
  const int offset = beats.empty() ? n_layers : beats[0];
  writer.set(rhythm.offset, offset);
  writer.set(rhythm.period, beats.size() > 1 ? beats[1] - offset : std::max(offset + 1, n_layers));
}

// GGUF files show attention by KV heads and experts by their router.
void configure_jamba(ConfigReader& reader, ModelConfig& config) {
  reader.expect_flag("mamba_inner_layernorms", true);
  ChannelScanConfig scan = read_channel_scan(reader, config);
  scan.norms = Norms::kWeights;
  const std::shared_ptr<const Mixer> mixer = channel_scan(scan);
  const int n = config.n_layers;
  const std::vector<bool> attending = read_rhythm(reader, kAttending, n),
                          with_experts = read_rhythm(reader, kWithExperts, n);
  const std::vector<int> kv_heads = reader.integers({"attention.head_count_kv", ""}, 0, 1 << 16);
  const bool mixture = reader.integer({"expert_count", "num_experts"}, 0, 4096, 0) > 1;
  if (mixture) read_experts(reader, config);
  config.experts.routing.normalize = false;
  for (int i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(i);
    LayerConfig& layer = config.layers[at];
    layer.rope = -1;
    layer.attention = reader.gguf() ? at < kv_heads.size() && kv_heads[at] > 0 : attending[at];
    if (!layer.attention) layer.mixer = mixer;
    layer.moe =
        mixture && (reader.gguf() ? reader.has_tensor(fmt::format("blk.{}.ffn_gate_inp.weight", i))
                                  : with_experts[at]);
  }
}

void describe_jamba(ConfigWriter& writer, const ModelConfig& config) {
  describe_channel_scan(writer, config);
  json kv_heads = json::array();
  for (const LayerConfig& layer : config.layers)
    kv_heads.push_back(layer.attention ? config.n_kv_heads : 0);
  writer.set({"attention.head_count_kv", ""}, kv_heads);
  const auto& layers = config.layers;
  describe_rhythm(writer, kAttending, config.n_layers,
                  [&](int i) { return layers[static_cast<size_t>(i)].attention; });
  describe_rhythm(writer, kWithExperts, config.n_layers,
                  [&](int i) { return layers[static_cast<size_t>(i)].moe; });
  if (const ChannelScanConfig* scan = channel_scan_config(config);
      scan != nullptr && scan->channels % config.model_dim == 0)
    writer.set({"", "mamba_expand"}, scan->channels / config.model_dim);
  writer.set({"", "num_experts"}, std::max(config.experts.count, 1));
}

void jamba_names(NameTable& names, const ModelConfig&) {
  names.final_norm = "final_layernorm", names[tensor::kFfnNorm] = "pre_ff_layernorm";
  names[tensor::kGate] = "feed_forward.gate_proj", names[tensor::kUp] = "feed_forward.up_proj",
  names[tensor::kDown] = "feed_forward.down_proj";
  names[tensor::kRouter] = "feed_forward.router";
  names[tensor::kExpertGate] = "feed_forward.experts.{}.gate_proj",
  names[tensor::kExpertUp] = "feed_forward.experts.{}.up_proj",
  names[tensor::kExpertDown] = "feed_forward.experts.{}.down_proj";
}

constexpr std::string_view kMambaDefaults =
    R"({"num_attention_heads": 1, "intermediate_size": 1, "max_position_embeddings": 1048576,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": true})";
constexpr std::string_view kMambaAliases =
    R"({"state_size": "mamba_d_state", "conv_kernel": "mamba_d_conv", "expand": "mamba_expand",
    "intermediate_size": "mamba_d_inner", "time_step_rank": "mamba_dt_rank", "layer_norm_epsilon": "rms_norm_eps"})";
constexpr MeaningfulKey kJambaKeys[] = {{{"", "attn_layer_period"}, 0}};

}  // namespace

extern constinit const Architecture kMamba = {
    .name = "mamba",
    .title = "Mamba",
    .hf_types = {"mamba", "MambaForCausalLM"},
    .configure = configure_scans_only,
    .hf_names = mamba_names,
    .forward = one_mixer_forward,
    .hf_defaults = kMambaDefaults,
    .hf_aliases = kMambaAliases,
    .describe = describe_scans_only,
    .zero_sizes = true,
};

extern constinit const Architecture kFalconMamba = {
    .name = "falcon_mamba",
    .title = "Falcon Mamba",
    .hf_types = {"falcon_mamba", "FalconMambaForCausalLM"},
    .gguf_name = "mamba",
    .configure = configure_scans_only,
    .hf_names = mamba_names,
    .forward = one_mixer_forward,
    .hf_defaults = kMambaDefaults,
    .hf_aliases = kMambaAliases,
    .describe = describe_scans_only,
    .zero_sizes = true,
};

extern constinit const Architecture kJamba = {
    .name = "jamba",
    .title = "Jamba",
    .hf_types = {"jamba", "JambaForCausalLM"},
    .configure = configure_jamba,
    .hf_names = jamba_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"max_position_embeddings": 262144, "num_key_value_heads": 8,
    "num_experts": 16, "num_experts_per_tok": 2})",
    .describe = describe_jamba,
    .zero_sizes = true,
    .own_keys = kJambaKeys,
};

}  // namespace penstock
