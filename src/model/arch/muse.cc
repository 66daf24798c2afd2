// Muse Glimmer (text): a normed embedding, norms without weights on the heads of queries and keys,
// factors of queries and of bounded logits, gates of attended values, norms around each sub-layer;
// layers without a window are not rotated.
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

using nlohmann::json;

// The usual word of which layers have a window, and no bias of attention.
void configure_muse(ConfigReader& reader, ModelConfig& config) {
  constexpr int kMuseFullEvery = 4, kMostMuseWindow = 1 << 30;
  set_rope_pairs(reader, config);
  config.residual.norms = NormPlacement::kBoth;
  config.embedding.bare_norm = true;
  config.norm.offset = reader.gguf() ? 0.0f : 1.0f;
  config.norm.plain_final = true;
  config.norm.post_eps = reader.number({"", "post_norm_eps"}, 0.0f, 1.0f, 1e-8f);
  if (config.norm.post_eps == 0.0f)
    reader.fail(ErrorCode::kUnsupported, "post_norm_eps: expected a positive number");
  config.attention.value_gates = true;
  // GGUF files have the factor of queries as weights of their norms.
  config.attention.qk_norm = reader.gguf() ? QkNorm::kHead : QkNorm::kBare;
  const float factor = reader.number({"", "qk_scale_factor"}, 1e-3f, 1e3f, 3.87f);
  config.attention.scale =
      (reader.gguf() ? 1.0f : factor) / std::sqrt(static_cast<float>(config.head_dim));
  config.output.scale = reader.number({"logit_scale", "output_multiplier"}, -1e6f, 1e6f,
                                      reader.gguf() ? 1.0f : 0.19611613513818404f);
  config.output.softcap = reader.number({"final_logit_softcapping", "final_logit_softcapping"},
                                        0.0f, 1e6f, reader.gguf() ? 0.0f : 20.0f);
  const bool listed = reader.has({"attention.sliding_window_pattern", "layer_types"});
  const int window =
      reader.integer({"attention.sliding_window", "sliding_window"}, 1, kMostMuseWindow, 2048);
  if (listed) read_windows(reader, config, 0, window);
  const std::vector<float> thetas = reader.numbers({"", "layer_rope_theta"}, config.layers.size());
  if (!thetas.empty() && thetas.size() != config.layers.size())
    return reader.fail(ErrorCode::kCorruptFile,
                       fmt::format("layer_rope_theta: expected {} numbers, got {}",
                                   config.layers.size(), thetas.size()));
  const size_t n = config.layers.size();
  for (size_t i = 0; i < n; ++i) {
    LayerConfig& layer = config.layers[i];
    const bool last_of_four = (n - 1 - i) % kMuseFullEvery == 0;
    if (!listed) layer.window = last_of_four ? 0 : window;
    const bool rotates = reader.gguf()    ? layer.window > 0
                         : thetas.empty() ? !last_of_four
                                          : thetas[i] != 0.0f;
    layer.rope = rotates ? 0 : -1;
    if (!thetas.empty() && rotates && thetas[i] != config.ropes[0].theta)
      reader.fail(ErrorCode::kUnsupported,
                  fmt::format("layer_rope_theta: expected 0 or rope_theta ({}), got {}",
                              config.ropes[0].theta, thetas[i]));
  }
}

void muse_names(NameTable& names, const ModelConfig&) {
  names[tensor::kGates] = "self_attn.gate_proj";
  names[tensor::kQNorm] = names[tensor::kKNorm] = "";
}

void describe_muse(ConfigWriter& writer, const ModelConfig& config) {
  writer.set({"logit_scale", "output_multiplier"}, config.output.scale);
  writer.set({"final_logit_softcapping", "final_logit_softcapping"}, config.output.softcap);
}

}  // namespace

extern constinit const Architecture kMuseGlimmer = {
    .name = "muse-glimmer",
    .title = "Muse Glimmer (text)",
    .hf_types = {"muse_glimmer_text", "MuseGlimmerForConditionalGeneration", "muse_glimmer"},
    .configure = configure_muse,
    .hf_names = muse_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"tie_word_embeddings": false, "rms_norm_eps": 1e-5, "head_dim": 128,
    "num_key_value_heads": 2})",
    .describe = describe_muse,
    .hf_norms_less_one = true,
    .gguf_pairs = true,
};

}  // namespace penstock
