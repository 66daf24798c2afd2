// Whisper's encoder, also in other models: two convolutions over a log-mel spectrum, learned (or stored sinusoid) positions,
// pre-norm layers. Qwen2-Audio averages pairs of its states, Voxtral joins several. Qwen3-ASR has the
// same layers behind convolutions over chunks of the spectrum.
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

void configure_qwen3_asr_tower(TowerReader& reader, TowerConfig& config) {
  ConfigReader& audio = reader.hearing();
  const std::string at = reader.prefix({"model.audio_tower.", "audio_tower."}, "conv2d1.weight");
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
  audio.integer({"", "max_position_embeddings"}, planes.n_positions, 1 << 20, 13);
  audio.integer({"", "output_dim"}, 1, 1 << 20, 3584);
  config.positions = {
      .kind = TowerPositions::Kind::kSines, .name = "", .rows = 1, .cols = planes.n_positions};
  const std::string projector =
      reader.prefix({"model.multi_modal_projector.", "multi_modal_projector."}, "linear_1.weight");
  config.roots.push_back(projector);
  config.text_dim = reader.dimension(projector + "linear_2.weight", 0);
  config.projector = {norm_stage(at + "ln_post", config.layers.norm),
                      linear_stage(projector + "linear_1", config.model_dim()),
                      activation_stage(config.layers.ffn.activation),
                      linear_stage(projector + "linear_2", config.text_dim)};
}

}  // namespace

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
    .hf_defaults = R"({"d_model": 1280, "encoder_layers": 32, "encoder_attention_heads": 20,
    "encoder_ffn_dim": 5120})",
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
