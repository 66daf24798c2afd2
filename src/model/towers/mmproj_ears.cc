// mmproj files of towers that hear: Whisper's encoder with a projector.
#include "model/towers/mmproj_families.h"

namespace penstock {
namespace {

using nlohmann::json;

constexpr int kRate = 16000, kHop = 160;

// Whisper's feature extractor, as published; a window has two frames for each of the tower's positions.
json extractor(MmprojFiles& files, int positions) {
  return {{"feature_extractor_type", "WhisperFeatureExtractor"},
          {"feature_size", files.tower.integer({"num_mel_bins", ""}, 1, 1024)},
          {"sampling_rate", kRate},
          {"n_fft", 400},
          {"hop_length", kHop},
          {"chunk_length", std::max(1, 2 * positions * kHop / kRate)}};
}

// Also makes the extractor.
json whisper_config(MmprojFiles& files) {
  const int positions = files.tower.rows_of("a.position_embd.weight");
  files.images = extractor(files, positions);
  if (files.eps != 1e-5f)
    files.tower.fail(ErrorCode::kUnsupported,
                     fmt::format("layer_norm_epsilon: expected 0.00001, got {}", files.eps));
  return {{"d_model", files.dim},
          {"encoder_layers", files.n_layers},
          {"encoder_attention_heads", files.n_heads},
          {"encoder_ffn_dim", files.ffn_dim},
          {"num_mel_bins", files.images["feature_size"]},
          {"max_source_positions", positions},
          {"activation_function", "gelu"}};
}

void make_qwen2_audio(MmprojFiles& files) {
  files.config = {{"model_type", "qwen2_audio"}, {"audio_config", whisper_config(files)}};
}

void make_ultravox(MmprojFiles& files) {
  files.config = {{"model_type", "ultravox"},
                  {"audio_config", whisper_config(files)},
                  {"stack_factor", files.tower.integer({"projector.stack_factor", ""}, 1, 1 << 10)},
                  {"hidden_size", files.tower.rows_of("mm.a.mlp.1.weight")},
                  {"projector_act", "swiglu"},
                  {"projector_ln_mid", files.tower.has_tensor("mm.a.norm_mid.weight")}};
}

void make_voxtral(MmprojFiles& files) {
  const json whisper = whisper_config(files);
  files.config = {{"model_type", "voxtral"},
                  {"audio_config",
                   {{"hidden_size", files.dim},
                    {"num_hidden_layers", files.n_layers},
                    {"num_attention_heads", files.n_heads},
                    {"intermediate_size", files.ffn_dim},
                    {"num_mel_bins", whisper["num_mel_bins"]},
                    {"max_source_positions", whisper["max_source_positions"]},
                    {"activation_function", "gelu"}}},
                  {"projector_hidden_act", "gelu"}};
  const int stacked = files.tower.integer({"projector.stack_factor", ""}, 1, 1 << 10, 4);
  if (files.ffn_dim != stacked * files.dim)
    files.tower.fail(ErrorCode::kUnsupported,
                     fmt::format("stack_factor: expected feed_forward_length / embedding_length "
                                 "({} / {}), got {}",
                                 files.ffn_dim, files.dim, stacked));
}

// Sines are its positions; the file has them for as long as the longest window.
void make_omni_ear(MmprojFiles& files) {
  json audio = whisper_config(files);
  audio.update({{"n_window", files.tower.integer({"n_window", ""}, 1, 1 << 14, 100)},
                {"output_dim", files.text_dim}});
  files.config = {{"model_type", "qwen2_5_omni_thinker"}, {"audio_config", audio}};
  files.images["chunk_length"] = 300;
}

constexpr std::string_view kLayers = "audio_tower.layers.{}.";

std::vector<MmprojName> layer_names() {
  return {{"ln1", "self_attn_layer_norm"},
          {"ln2", "final_layer_norm"},
          {"attn_q", "self_attn.q_proj"},
          {"attn_k", "self_attn.k_proj"},
          {"attn_v", "self_attn.v_proj"},
          {"attn_out", "self_attn.out_proj"},
          {"ffn_up", "fc1"},
          {"ffn_down", "fc2"}};
}

std::vector<MmprojName> whisper_names(std::vector<MmprojName> more) {
  more.insert(more.begin(), {{"a.conv1d.1", "audio_tower.conv1"},
                             {"a.conv1d.2", "audio_tower.conv2"},
                             {"a.position_embd", "audio_tower.embed_positions"},
                             {"a.post_ln", "audio_tower.layer_norm"}});
  return more;
}

}  // namespace

std::vector<MmprojFamily> mmproj_ears() {
  const std::vector<MmprojName> two = {{"mm.a.mlp.1", "multi_modal_projector.linear_1"},
                                       {"mm.a.mlp.2", "multi_modal_projector.linear_2"},
                                       {"mm.a.norm_pre", "multi_modal_projector.ln_pre"},
                                       {"mm.a.norm_mid", "multi_modal_projector.ln_mid"}};
  return {
      {"qwen2a",
       kLayers,
       layer_names(),
       whisper_names({{"mm.a.fc", "multi_modal_projector.linear"}}),
       {},
       make_qwen2_audio,
       true},
      {"ultravox", kLayers, layer_names(), whisper_names(two), {}, make_ultravox, true},
      {"voxtral", kLayers, layer_names(), whisper_names(two), {}, make_voxtral, true},
      {"qwen2.5o",
       kLayers,
       layer_names(),
       {{"a.conv1d.1", "audio_tower.conv1"},
        {"a.conv1d.2", "audio_tower.conv2"},
        {"a.position_embd", "", true},
        {"a.post_ln", "audio_tower.ln_post"},
        {"mm.a.fc", "audio_tower.proj"}},
       {},
       make_omni_ear,
       true},
  };
}

}  // namespace penstock
