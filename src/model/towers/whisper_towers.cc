// Whisper's encoder, also in other models: two convolutions over a log-mel spectrum, learned (or stored sinusoid) positions,
// pre-norm layers. Qwen2-Audio averages pairs of its states, Voxtral and Ultravox join several. Qwen2.5-Omni
// hears windows of two seconds; Qwen3-ASR and Qwen3-Omni have the same layers behind convolutions over
// chunks of the spectrum.
#include "model/towers/families.h"

namespace penstock {

namespace {

// transformers writes some names in Whisper's words, some in everybody's; in Whisper's own
// configuration the latter may be those of its decoder.
int either(TowerReader& reader, Key usual, Key own, int most) {
  ConfigReader& audio = reader.hearing();
  return audio.has(usual) && !audio.has(own) ? audio.integer(usual, 1, most)
                                             : audio.integer(own, 1, most);
}

// Reads the layers of a tower whose names begin with `at`.
void read_layers(TowerReader& reader, TowerConfig& config, const std::string& at) {
  ConfigReader& audio = reader.hearing();
  const int dim = either(reader, {"", "hidden_size"}, {"", "d_model"}, 1 << 16),
            n_heads = either(reader, {"", "num_attention_heads"}, {"", "encoder_attention_heads"},
                             1 << 10);
  if (dim % n_heads != 0)
    reader.fail(ErrorCode::kCorruptFile,
                fmt::format("hidden_size: expected a multiple of {} heads, got {}", n_heads, dim));
  set_tower_layers(
      config, either(reader, {"", "num_hidden_layers"}, {"", "encoder_layers"}, 1 << 10), dim,
      n_heads, either(reader, {"", "intermediate_size"}, {"", "encoder_ffn_dim"}, 1 << 20));
  config.layers.norm = {.eps = 1e-5f, .layer_norm = true};
  set_tower_activation(config, reader.activation({"", "activation_function"}, "gelu"), false);
  audio.flag({"", "scale_embedding"}, false);  // read by no encoder
  config.patch_size = 1, config.patch_dim = audio.integer({"", "num_mel_bins"}, 1, 1024, 128);
  config.prefix = at;
  config.roots.push_back(at);
  config.unit_in_row = true;
  NameTable& names = config.names;
  names.layer = "layers.{}.";
  names[tensor::kAttnNorm] = "self_attn_layer_norm", names[tensor::kFfnNorm] = "final_layer_norm";
  names[tensor::kO] = "self_attn.out_proj";
  names[tensor::kUp] = "fc1", names[tensor::kDown] = "fc2";
}

// Returns the stem of the norm behind the layers.
std::string read_whisper(TowerReader& reader, TowerConfig& config) {
  const std::string at = reader.prefix(
      {"audio_tower.", "model.audio_tower.", "model.encoder.", "encoder."}, "conv1.weight");
  read_layers(reader, config, at);
  config.convolutions = {{at + "conv1", 1}, {at + "conv2", 2}};
  config.positions = {
      .kind = TowerPositions::Kind::kFirst,
      .name = at + "embed_positions.weight",
      .rows = 1,
      .cols = reader.hearing().integer({"", "max_source_positions"}, 1, 1 << 20, 1500)};
  return at + "layer_norm";
}

void configure_qwen2_audio_tower(TowerReader& reader, TowerConfig& config) {
  const std::string norm = read_whisper(reader, config);
  config.unit = 2;
  const std::string at =
      reader.prefix({"multi_modal_projector.", "model.multi_modal_projector."}, "linear.weight");
  config.roots.push_back(at);
  config.text_dim = reader.dimension(at + "linear.weight", 0);
  config.projector = {mean_stage(), norm_stage(norm, config.layers.norm),
                      linear_stage(at + "linear", config.text_dim)};
}

// A row for each position: what the decoder's layers attend to.
void configure_whisper_tower(TowerReader& reader, TowerConfig& config) {
  const std::string norm = read_whisper(reader, config);
  config.unit = 1;
  config.text_dim = config.model_dim();
  config.projector = {norm_stage(norm, config.layers.norm)};
}

void configure_voxtral_tower(TowerReader& reader, TowerConfig& config) {
  const std::string norm = read_whisper(reader, config);
  const int joined = config.layers.ffn_dim, dim = config.model_dim();
  if (joined % dim != 0)
    return reader.fail(
        ErrorCode::kUnsupported,
        fmt::format("intermediate_size: expected a multiple of hidden_size ({}), got {}", dim,
                    joined));
  config.unit = joined / dim;
  config.projector = {norm_stage(norm, config.layers.norm), join_stage()};
  add_two_linear(reader, config);
}

// Files say where the encoder's weights are, if not in them.
void refuse_absent_encoder(TowerReader& reader) {
  ConfigReader& whole = reader.whole();
  if (reader.has_tensor("audio_tower.conv1.weight")) return;
  reader.fail(ErrorCode::kUnsupported,
              fmt::format("audio_model_id: expected the encoder's weights in this directory, they "
                          "are those of '{}'",
                          whole.text({"", "audio_model_id"}, "")));
}

// What changes results and is not computed.
void refuse_other_ultravox(TowerReader& reader) {
  ConfigReader& whole = reader.whole();
  if (const std::string type = reader.vision_type(); !type.empty() && type != "whisper")
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("model_type: expected whisper, got '{}'", type));
  const nlohmann::json* const latency = whole.find({"", "audio_latency_block_size"});
  if (latency != nullptr && !latency->is_null() && *latency != 0)
    reader.fail(ErrorCode::kUnsupported, "audio_latency_block_size: expected null");
  if (whole.integer({"", "num_projector_layers"}, 0, 1 << 10, 0) != 0)
    reader.fail(ErrorCode::kUnsupported,
                "num_projector_layers: expected 0: layers in the projector are not computed");
  for (const char* const key : {"audio_model_lora_config", "text_model_lora_config"}) {
    const nlohmann::json* const adapter = whole.find({"", key});
    if (adapter == nullptr || !adapter->is_object()) continue;
    const auto rank = adapter->find("r");
    if (rank != adapter->end() && *rank != 0 && !rank->is_null())
      reader.fail(ErrorCode::kUnsupported,
                  fmt::format("{}: r: expected 0: adapters must be merged into the weights", key));
  }
}

// norm, join, norm, linear_1, activation, linear_2 and another norm, behind the activation or at the end.
void read_ultravox_projector(TowerReader& reader, TowerConfig& config, const std::string& norm) {
  ConfigReader& whole = reader.whole();
  const std::string at =
      reader.prefix({"multi_modal_projector.", "model.multi_modal_projector."}, "linear_1.weight");
  config.roots.push_back(at);
  const int hidden = whole.integer({"", "hidden_size"}, 2, 1 << 20, 4096);
  config.text_dim = reader.dimension(at + "linear_2.weight", 0);
  constexpr NormConfig kNorm = {.eps = 1e-6f};
  ProjectorStage activation{.kind = ProjectorStage::Kind::kHalves, .activation = Activation::kSilu};
  if (whole.text({"", "projector_act"}, "swiglu") != "swiglu") {
    activation = activation_stage(reader.activation(whole, {"", "projector_act"}, "swiglu"));
  } else if (hidden % 2 != 0) {
    reader.fail(ErrorCode::kUnsupported, "hidden_size: expected an even number with swiglu");
  }
  const bool middle = whole.flag({"", "projector_ln_mid"}, false);
  config.projector = {norm_stage(norm, config.layers.norm), join_stage(),
                      norm_stage(at + "ln_pre", kNorm), linear_stage(at + "linear_1", hidden),
                      activation};
  if (middle) config.projector.push_back(norm_stage(at + "ln_mid", kNorm));
  config.projector.push_back(linear_stage(at + "linear_2", config.text_dim));
  if (!middle) config.projector.push_back(norm_stage(at + "ln_post", kNorm));
}

void configure_ultravox_tower(TowerReader& reader, TowerConfig& config) {
  refuse_absent_encoder(reader);
  refuse_other_ultravox(reader);
  // Of Whisper's decoder and its training.
  for (const char* const key :
       {"apply_spec_augment", "classifier_proj_size", "decoder_attention_heads", "decoder_ffn_dim",
        "decoder_layerdrop", "decoder_layers", "forced_decoder_ids", "mask_feature_length",
        "mask_feature_min_masks", "mask_feature_prob", "mask_time_length", "mask_time_min_masks",
        "mask_time_prob", "max_target_positions", "median_filter_width", "num_hidden_layers",
        "use_weighted_layer_sum"})
    reader.hearing().has({"", key});
  const std::string norm = read_whisper(reader, config);
  config.unit = reader.whole().integer({"", "stack_factor"}, 1, 1 << 10, 8);
  config.fills_unit = config.ends_apart = true;
  read_ultravox_projector(reader, config, norm);
}

std::string omni_prefix(TowerReader& reader, std::string_view name) {
  return reader.prefix(
      {"audio_tower.", "model.audio_tower.", "thinker.audio_tower.", "thinker.model.audio_tower."},
      name);
}

void configure_qwen2_5_omni_ear(TowerReader& reader, TowerConfig& config) {
  ConfigReader& audio = reader.hearing();
  const std::string at = omni_prefix(reader, "conv1.weight");
  read_layers(reader, config, at);
  config.convolutions = {{at + "conv1", 1}, {at + "conv2", 2}};
  config.ends_apart = true;
  // A window of 2 n_window frames is n_window positions, of which pairs become tokens.
  const int window = audio.integer({"", "n_window"}, 2, 1 << 14, 100);
  if (window % 2 != 0 || config.model_dim() % 2 != 0)
    reader.fail(ErrorCode::kUnsupported, "n_window, d_model: expected even numbers");
  audio.integer({"", "max_source_positions"}, window, 1 << 20, 1500);
  config.positions = {.kind = TowerPositions::Kind::kSines, .name = "", .rows = 1, .cols = window};
  config.unit = 2;
  config.unused.push_back(at + "audio_bos_eos_token.");  // of no use in transformers either
  config.text_dim = audio.integer({"", "output_dim"}, 1, 1 << 20, 3584);
  config.projector = {mean_stage(), norm_stage(at + "ln_post", config.layers.norm),
                      linear_stage(at + "proj", config.text_dim)};
}

// Reads convolutions over chunks of the spectrum, and the layers behind them.
void read_planes(TowerReader& reader, TowerConfig& config, const std::string& at) {
  ConfigReader& audio = reader.hearing();
  read_layers(reader, config, at);
  if (config.model_dim() % 2 != 0)
    reader.fail(ErrorCode::kUnsupported, "d_model: expected an even number");
  TowerPlanes& planes = config.planes;
  planes.convolutions = {at + "conv2d1", at + "conv2d2", at + "conv2d3"};
  planes.linear = at + "conv_out";
  planes.channels = audio.integer({"", "downsample_hidden_size"}, 1, 1 << 14, 480);
  planes.n_frames = 2 * audio.integer({"", "n_window"}, 1, 1 << 14, 50);
  planes.n_positions = (planes.n_frames + 7) / 8;
  // The processor cuts a sound into what the layers hear at once.
  audio.integer({"", "n_window_infer"}, 1, 1 << 20, 800);
  config.positions = {
      .kind = TowerPositions::Kind::kSines, .name = "", .rows = 1, .cols = planes.n_positions};
}

void configure_qwen3_omni_ear(TowerReader& reader, TowerConfig& config) {
  ConfigReader& audio = reader.hearing();
  const std::string at = omni_prefix(reader, "conv2d1.weight");
  read_planes(reader, config, at);
  audio.integer({"", "conv_chunksize"}, 1, 1 << 20, 500);  // how many are convolved at once
  audio.integer({"", "max_source_positions"}, config.planes.n_positions, 1 << 20, 1500);
  config.ends_apart = true;
  config.text_dim = audio.integer({"", "output_dim"}, 1, 1 << 20, 3584);
  config.projector = {norm_stage(at + "ln_post", config.layers.norm),
                      linear_stage(at + "proj1", config.model_dim()),
                      activation_stage(config.layers.ffn.activation),
                      linear_stage(at + "proj2", config.text_dim)};
}

void configure_qwen3_asr_tower(TowerReader& reader, TowerConfig& config) {
  ConfigReader& audio = reader.hearing();
  const std::string at = reader.prefix({"model.audio_tower.", "audio_tower."}, "conv2d1.weight");
  read_planes(reader, config, at);
  audio.integer({"", "max_position_embeddings"}, config.planes.n_positions, 1 << 20, 13);
  audio.integer({"", "output_dim"}, 1, 1 << 20, 3584);
  const std::string projector =
      reader.prefix({"model.multi_modal_projector.", "multi_modal_projector."}, "linear_1.weight");
  config.roots.push_back(projector);
  config.text_dim = reader.dimension(projector + "linear_2.weight", 0);
  config.projector = {norm_stage(at + "ln_post", config.layers.norm),
                      linear_stage(projector + "linear_1", config.model_dim()),
                      activation_stage(config.layers.ffn.activation),
                      linear_stage(projector + "linear_2", config.text_dim)};
}

// Sizes of the encoder of Whisper large.
constexpr std::string_view kLargeEncoderDefaults =
    R"({"d_model": 1280, "encoder_layers": 32, "encoder_attention_heads": 20,
    "encoder_ffn_dim": 5120})";

}  // namespace

extern const TowerFamily kUltravoxTower = {
    .name = "ultravox",
    .title = "Ultravox",
    .hf_types = {"ultravox"},
    .configure = configure_ultravox_tower,
    .hf_defaults = R"({"d_model": 384, "encoder_layers": 4, "encoder_attention_heads": 6,
    "encoder_ffn_dim": 1536, "num_mel_bins": 80})",
    .sense = TowerSense::kHearing,
};

extern const TowerFamily kQwen25OmniEar = {
    .name = "qwen2.5omni",
    .title = "Qwen2.5-Omni",
    .hf_types = {"qwen2_5_omni_thinker"},
    .configure = configure_qwen2_5_omni_ear,
    .hf_defaults = kLargeEncoderDefaults,
    .sense = TowerSense::kHearing,
};

extern const TowerFamily kQwen3OmniEar = {
    .name = "qwen3omni",
    .title = "Qwen3-Omni",
    .hf_types = {"qwen3_omni_moe_thinker"},
    .configure = configure_qwen3_omni_ear,
    .hf_defaults = kLargeEncoderDefaults,
    .sense = TowerSense::kHearing,
};

extern const TowerFamily kQwen3AsrTower = {
    .name = "qwen3asr",
    .title = "Qwen3-ASR",
    .hf_types = {"qwen3_asr"},
    .configure = configure_qwen3_asr_tower,
    .hf_defaults = R"({"d_model": 1024, "encoder_layers": 24, "encoder_attention_heads": 16,
    "encoder_ffn_dim": 4096})",
    .sense = TowerSense::kHearing,
};

extern const TowerFamily kQwen2AudioTower = {
    .name = "qwen2audio",
    .title = "Qwen2-Audio",
    .hf_types = {"qwen2_audio"},
    .configure = configure_qwen2_audio_tower,
    .hf_defaults = kLargeEncoderDefaults,
    .sense = TowerSense::kHearing,
};

extern const TowerFamily kWhisperTower = {
    .name = "whisper",
    .title = "Whisper",
    .hf_types = {"whisper"},
    .configure = configure_whisper_tower,
    .hf_defaults = R"({"d_model": 384, "encoder_layers": 4, "encoder_attention_heads": 6,
    "encoder_ffn_dim": 1536, "num_mel_bins": 80})",
    .sense = TowerSense::kHearing,
};

extern const TowerFamily kVoxtralTower = {
    .name = "voxtral",
    .title = "Voxtral",
    .hf_types = {"voxtral"},
    .configure = configure_voxtral_tower,
    .hf_defaults = R"({"hidden_size": 1280, "num_hidden_layers": 32, "num_attention_heads": 20,
    "intermediate_size": 5120})",
    .sense = TowerSense::kHearing,
};

}  // namespace penstock
