// PLaMo 1 (attention and feed-forward read one norm; query heads take KV heads in turn), PLaMo 2 (scans in
// most layers, attention with a window in the others) and PLaMo 3 (a window in most layers), both with
// norms around sub-layers; as Preferred Networks' published code computes them.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"
#include "model/blocks/channel_scan.h"

namespace penstock {

namespace {

using nlohmann::json;

constexpr int kUsualSharedHeads = 8, kMostPlamoHeads = 1024;

// The number of KV heads follows from the number of queries that share one; the file's own says
// something else.
void usual_plamo(json& object) {
  const auto count = [&](const char* key, int usual) {
    const auto found = object.find(key);
    const bool fits = found != object.end() && found->is_number_unsigned() && *found > 0U &&
                      *found <= unsigned{kMostPlamoHeads};
    return fits ? found->get<int>() : usual;
  };
  const int heads = count("num_attention_heads", 32),
            shared = count("n_shared_head", kUsualSharedHeads);
  object["num_key_value_heads"] = (heads + shared - 1) / shared;
}

void configure_plamo(ConfigReader& reader, ModelConfig& config) {
  (void)reader.integer({"", "n_shared_head"}, 1, kMostPlamoHeads, kUsualSharedHeads);
  config.residual.parallel = true;
  config.attention.heads_in_turn = true;
}

void describe_plamo(ConfigWriter& writer, const ModelConfig& config) {
  writer.set({"", "n_shared_head"}, config.n_heads / config.n_kv_heads);
}

void plamo_names(NameTable& names, const ModelConfig&) {
  names.layer = "layers.layers.{}.";
  names.groups_in_turn = true;
  names[tensor::kAttnNorm] = "norm";
}

constexpr Key kLocalTheta{"rope.freq_base_swa", "rope_local_theta"},
    kPlamoFactor{"", "rope_scaling_factor"}, kPlamoContext{"", "initial_context_length"};

// Directories that say no factor count only the tokens before a query in its window.
void read_plamo3_windows(ConfigReader& reader, ModelConfig& config) {
  read_windows(reader, config, reader.integer({"", "sliding_window_pattern"}, 1, 1024, 8));
  const int more = reader.gguf() || reader.has(kPlamoFactor) ? 0 : 1;
  for (LayerConfig& layer : config.layers) {
    if (layer.window > 0) layer.window += more;
    layer.rope = layer.window > 0 ? 1 : 0;
  }
}

void configure_plamo3(ConfigReader& reader, ModelConfig& config) {
  config.norm.offset = reader.gguf() ? 0.0f : 1.0f;
  config.residual.norms = NormPlacement::kBoth;
  config.attention.qk_norm = QkNorm::kHead;
  RopeConfig local;
  local.rotary_dim = config.ropes[0].rotary_dim;
  local.theta =
      reader.number(kLocalTheta, 1.0f, 1e12f, reader.gguf() ? config.ropes[0].theta : 10000.0f);
  const float factor = reader.number(kPlamoFactor, 1e-3f, 1e6f, 1.0f);
  if (factor != 1.0f) {
    RopeConfig& rope = config.ropes[0];
    rope.scaling = RopeScaling::kYarn, rope.factor = factor;
    rope.original_max_seq_len = reader.integer(kPlamoContext, 1, kMaxContextLength);
    rope.attention_factor = 0.0f;
  }
  config.ropes[0].truncate = false;
  config.ropes.push_back(local);
  read_plamo3_windows(reader, config);
  reader.expect_flag("attention_bias", false);
  reader.expect_flag("scale_embedding", false);
  reader.expect_text("linear_type", "normal");
}

void describe_plamo3(ConfigWriter& writer, const ModelConfig& config) {
  const RopeConfig& rope = config.ropes[0];
  const bool scaled = rope.scaling == RopeScaling::kYarn;
  writer.set(kLocalTheta, config.ropes[1].theta);
  writer.set(kPlamoFactor, scaled ? rope.factor : 1.0f);
  if (scaled) writer.set(kPlamoContext, rope.original_max_seq_len);
  writer.erase({"", "rope_parameters"});
  writer.erase({"", "rope_scaling"});
}

void plamo3_names(NameTable& names, const ModelConfig&) {
  names.layer = "layers.layers.{}.";
  names[tensor::kAttnNorm] = "pre_mixer_norm", names[tensor::kAttnPostNorm] = "post_mixer_norm";
  names[tensor::kFfnNorm] = "pre_mlp_norm", names[tensor::kFfnPostNorm] = "post_mlp_norm";
  names[tensor::kQkv] = "mixer.qkv_proj", names[tensor::kO] = "mixer.o_proj";
  names[tensor::kQNorm] = "mixer.q_norm", names[tensor::kKNorm] = "mixer.k_norm";
}

void plamo3_gguf_names(NameTable& names, const ModelConfig&) {
  names.bare_norms = {&tensor::kAttnPostNorm, &tensor::kFfnPostNorm};
}

constexpr int kMostPlamoStates = 1 << 12, kMostPlamoTaps = 64, kMostPlamoChannels = 1 << 20;
constexpr int64_t kMostPlamoValues = int64_t{1} << 28;
constexpr Key kScanHeads{"ssm.time_step_rank", "mamba_num_heads"},
    kPlamoWindow{"", "attention_window_size"}, kFullLayers{"", "full_attention_idx"};

// In the published code time steps have so many low-rank features.
int plamo_step_rank(const ModelConfig& config) { return std::max(64, config.model_dim / 16); }

std::shared_ptr<const Mixer> read_plamo_scan(ConfigReader& reader, const ModelConfig& config) {
  ChannelScanConfig scan;
  scan.taps = reader.integer({"ssm.conv_kernel", "mamba_d_conv"}, 1, kMostPlamoTaps, 4);
  scan.state_dim = reader.integer({"ssm.state_size", "mamba_d_state"}, 1, kMostPlamoStates, 64);
  scan.n_heads = reader.integer(kScanHeads, 1, 1 << 12, 64);
  const int usual = std::min(scan.n_heads * config.head_dim, kMostPlamoChannels);
  scan.channels = reader.integer({"ssm.inner_size", ""}, 1, kMostPlamoChannels, usual);
  if (scan.channels % scan.n_heads != 0 || scan.channels < scan.n_heads)
    reader.fail(ErrorCode::kCorruptFile,
                fmt::format("{}: expected a number that divides the {} channels, got {}",
                            reader.name(kScanHeads), scan.channels, scan.n_heads));
  if (int64_t{scan.channels} * scan.state_dim > kMostPlamoValues)
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("{} channels with states of {}: expected at most {} values in all",
                            scan.channels, scan.state_dim, kMostPlamoValues));
  scan.step_rank = plamo_step_rank(config);
  scan.norms = ChannelScanConfig::Norms::kWeights;
  scan.eps = config.norm.eps;
  return channel_scan(scan);
}

// Whether layer i of n attends, where every step-th does.
bool attends_in_turn(int i, int n, int step) {
  return n <= step / 2 ? i == n - 1 : i % step == step / 2;
}

std::vector<bool> attending_layers(ConfigReader& reader, const ModelConfig& config) {
  const int n = config.n_layers, step = reader.integer({"", "mamba_step"}, 2, 1 << 16, 2);
  const bool scans = reader.flag({"", "mamba_enabled"}, true);
  const std::vector<int> kv_heads = reader.integers({"attention.head_count_kv", ""}, 0, 1 << 16);
  std::vector<bool> attends;
  for (int i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(i);
    attends.push_back(reader.gguf() ? kv_heads.size() < static_cast<size_t>(n) || kv_heads[at] > 0
                                    : !scans || attends_in_turn(i, n, step));
  }
  return attends;
}

// Windows count the tokens before a query. llama.cpp's files say no window, and have none.
void read_plamo2_windows(ConfigReader& reader, ModelConfig& config) {
  if (reader.gguf()) return read_windows(reader, config, 0);
  const int window = reader.integer(kPlamoWindow, 0, 1 << 30, 2048) + 1;
  const std::vector<int> full = reader.integers(kFullLayers, 0, 1 << 16);
  for (int i = 0; i < config.n_layers; ++i)
    config.layers[static_cast<size_t>(i)].window = std::ranges::count(full, i) > 0 ? 0 : window;
}

void configure_plamo2(ConfigReader& reader, ModelConfig& config) {
  config.norm.offset = reader.gguf() ? 0.0f : 1.0f;
  config.residual.norms = NormPlacement::kBoth;
  config.attention.qk_norm = QkNorm::kHeads;
  const std::shared_ptr<const Mixer> mixer = read_plamo_scan(reader, config);
  const std::vector<bool> attends = attending_layers(reader, config);
  read_plamo2_windows(reader, config);
  RopeConfig local = config.ropes[0];
  local.theta = reader.number(kLocalTheta, 1.0f, 1e12f, local.theta);
  config.ropes.push_back(local);
  for (size_t i = 0; i < attends.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    layer.attention = attends[i];
    layer.rope = layer.window > 0 ? 1 : 0;
    if (!attends[i]) layer.mixer = mixer, layer.rope = -1, layer.window = 0;
  }
  if (reader.gguf()) return;
  constexpr float kHeadEps = 1e-6f;  // of queries and keys, whatever the file says
  if (config.norm.eps != kHeadEps)
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("rms_norm_eps: expected {}, got {}", kHeadEps, config.norm.eps));
  reader.expect_text("linear_type", "normal");
}

void describe_plamo2_layers(ConfigWriter& writer, const ModelConfig& config) {
  json heads = json::array(), kv_heads = json::array(), full = json::array();
  int window = 0, step = 2;
  for (int i = 0; i < config.n_layers; ++i) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    heads.push_back(layer.attention ? config.n_heads : 0);
    kv_heads.push_back(layer.attention ? config.n_kv_heads : 0);
    if (layer.attention && layer.window == 0) full.push_back(i);
    window = std::max(window, layer.window);
  }
  const auto fits = [&](int candidate) {
    for (int i = 0; i < config.n_layers; ++i)
      if (attends_in_turn(i, config.n_layers, candidate) !=
          config.layers[static_cast<size_t>(i)].attention)
        return false;
    return true;
  };
  while (step <= 2 * config.n_layers && !fits(step)) ++step;
  writer.set({"attention.head_count", ""}, heads);
  writer.set({"attention.head_count_kv", ""}, kv_heads);
  writer.set({"", "mamba_step"}, step);
  writer.set({"", "mamba_enabled"}, config.has_states());
  writer.set(kPlamoWindow, std::max(window - 1, 0));
  writer.set(kFullLayers, full);
  writer.erase({"", "layer_types"});
}

void describe_plamo2(ConfigWriter& writer, const ModelConfig& config) {
  if (const ChannelScanConfig* scan = channel_scan_config(config); scan != nullptr) {
    writer.set({"ssm.conv_kernel", "mamba_d_conv"}, scan->taps);
    writer.set({"ssm.state_size", "mamba_d_state"}, scan->state_dim);
    writer.set({"ssm.inner_size", ""}, scan->channels);
    writer.set({"ssm.group_count", ""}, 0);
    writer.set(kScanHeads, scan->n_heads);
  }
  writer.set(kLocalTheta, config.ropes[1].theta);
  describe_plamo2_layers(writer, config);
}

void plamo2_names(NameTable& names, const ModelConfig& config) {
  plamo3_names(names, config);
  names[tensor::kQNorm] = "mixer.q_weight", names[tensor::kKNorm] = "mixer.k_weight";
  names[tensor::kSsmIn] = "mixer.in_proj", names[tensor::kSsmConv] = "mixer.conv1d";
  names[tensor::kSsmX] = "mixer.bcdt_proj", names[tensor::kSsmStep] = "mixer.dt_proj";
  names[tensor::kSsmBias] = "mixer.dt_bias", names[tensor::kSsmRate] = "mixer.A_log";
  names[tensor::kSsmSkip] = "mixer.D", names[tensor::kSsmOut] = "mixer.out_proj";
  names[tensor::kSsmStepNorm] = "mixer.dt_norm_weight";
  names[tensor::kSsmBNorm] = "mixer.B_norm_weight";
  names[tensor::kSsmCNorm] = "mixer.C_norm_weight";
  names.bare_norms = {&tensor::kQNorm, &tensor::kKNorm, &tensor::kSsmStepNorm, &tensor::kSsmBNorm,
                      &tensor::kSsmCNorm};
}

void plamo2_gguf_names(NameTable& names, const ModelConfig&) {
  names.bare_norms = {&tensor::kAttnPostNorm, &tensor::kFfnPostNorm, &tensor::kSsmStepNorm,
                      &tensor::kSsmBNorm, &tensor::kSsmCNorm};
}

// 1 / 5 and 1 / 5^1.5
constexpr float kAttnPostLess = 0.2f, kFfnPostLess = 0.08944271909999159f;

}  // namespace

extern constinit const Architecture kPlamo = {
    .name = "plamo",
    .title = "PLaMo",
    .hf_types = {"plamo", "PlamoForCausalLM"},
    .configure = configure_plamo,
    .hf_names = plamo_names,
    .forward = parallel_forward,
    .hf_usual = usual_plamo,
    .describe = describe_plamo,
};

extern constinit const Architecture kPlamo2 = {
    .name = "plamo2",
    .title = "PLaMo 2",
    .hf_types = {"plamo2", "Plamo2ForCausalLM", "PLaMo2ForCausalLM"},
    .configure = configure_plamo2,
    .hf_names = plamo2_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"tie_word_embeddings": true, "head_dim": 128, "num_key_value_heads": 4})",
    .hf_aliases = R"({"hidden_size_per_head": "head_dim"})",
    .describe = describe_plamo2,
    .gguf_names = plamo2_gguf_names,
    .hf_norms_less_one = true,
    .hf_attn_post_less = kAttnPostLess,
    .hf_ffn_post_less = kFfnPostLess,
    .zero_sizes = true,
};

extern constinit const Architecture kPlamo3 = {
    .name = "plamo3",
    .title = "PLaMo 3",
    .hf_types = {"plamo3", "Plamo3ForCausalLM", "PLaMo3ForCausalLM"},
    .configure = configure_plamo3,
    .hf_names = plamo3_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"tie_word_embeddings": true, "head_dim": 128, "num_key_value_heads": 4,
    "sliding_window": 2048, "rope_theta": 1e6})",
    .hf_aliases = R"({"window_size": "sliding_window"})",
    .describe = describe_plamo3,
    .gguf_names = plamo3_gguf_names,
    .hf_norms_less_one = true,
    .hf_attn_post_less = kAttnPostLess,
    .hf_ffn_post_less = kFfnPostLess,
};

}  // namespace penstock
