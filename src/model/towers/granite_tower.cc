// Granite Speech: frames of two mel spectra each, conformer layers that add what they have heard halfway,
// and a Q-Former that makes the tokens of each window.
#include <algorithm>
#include <cmath>

#include "model/towers/families.h"

namespace penstock {
namespace {

// Reads projector_config.
void read_queries(TowerReader& reader, TowerConfig& config) {
  TowerQueries& queries = config.queries;
  ConfigReader& whole = reader.whole();
  queries.window = whole.integer({"", "window_size"}, 1, 1 << 10, 15);
  const int rate = whole.integer({"", "downsample_rate"}, 1, 1 << 10, 5);
  queries.count = queries.window / rate;
  if (queries.window % rate != 0)
    return reader.fail(
        ErrorCode::kUnsupported,
        fmt::format("downsample_rate: expected a divisor of window_size ({}), got {}",
                    queries.window, rate));
  const nlohmann::json* const object = whole.find({"", "projector_config"});
  if (object == nullptr || !object->is_object())
    return reader.fail(ErrorCode::kCorruptFile, "projector_config: expected an object");
  ConfigReader own(*object, Naming::kHuggingFace, "", whole.where() + ": projector_config");
  if (const std::string type = own.text({"", "model_type"}, "blip_2_qformer");
      type != "blip_2_qformer")
    reader.fail(
        ErrorCode::kUnsupported,
        fmt::format("projector_config: model_type: expected blip_2_qformer, got '{}'", type));
  queries.dim = own.integer({"", "hidden_size"}, 1, 1 << 16, 768);
  queries.n_layers = own.integer({"", "num_hidden_layers"}, 1, 1 << 10, 12);
  queries.n_heads = own.integer({"", "num_attention_heads"}, 1, 1 << 10, 12);
  queries.ffn_dim = own.integer({"", "intermediate_size"}, 1, 1 << 20, 3072);
  queries.crosses_every = own.integer({"", "cross_attention_frequency"}, 1, 1 << 10, 2);
  queries.eps = own.number({"", "layer_norm_eps"}, 0, 1, 1e-12f);
  queries.activation = reader.activation(own, {"", "hidden_act"}, "gelu");
  if (queries.dim % queries.n_heads != 0)
    reader.fail(ErrorCode::kUnsupported,
                "projector_config: hidden_size: expected a multiple of num_attention_heads");
  if (own.integer({"", "encoder_hidden_size"}, 1, 1 << 16, 1408) != config.model_dim())
    reader.fail(ErrorCode::kUnsupported,
                "projector_config: encoder_hidden_size: expected encoder_config's hidden_dim");
  own.expect_flag("use_qformer_text_input", false);
  // Of texts, which it does not read, and of training.
  for (const char* const key : {"vocab_size", "max_position_embeddings", "position_embedding_type",
                                "attention_probs_dropout_prob", "pad_token_id"})
    own.has({"", key});
  reader.merge(own, *object);
}

// The text model multiplies all embeddings, those of sounds too.
float read_embedding_factor(TowerReader& reader) {
  const nlohmann::json* const text = reader.whole().find({"", "text_config"});
  if (text == nullptr || !text->is_object()) return 1.0f;
  ConfigReader own(*text, Naming::kHuggingFace, "", reader.whole().where() + ": text_config");
  const float factor = own.number({"", "embedding_multiplier"}, 0, 1e6f, 1.0f);
  if (!own.status()) reader.fail(own.status().error().code, own.status().error().message);
  return factor;
}

void configure_granite_speech_tower(TowerReader& reader, TowerConfig& config) {
  ConfigReader& audio = reader.hearing();
  const std::string at = reader.prefix({"encoder.", "model.encoder."}, "input_linear.weight");
  const int dim = audio.integer({"", "hidden_dim"}, 1, 1 << 16),
            n_heads = audio.integer({"", "num_heads"}, 1, 1 << 10),
            n_layers = audio.integer({"", "num_layers"}, 1, 1 << 10);
  set_tower_layers(config, n_layers, dim, n_heads,
                   dim * audio.integer({"", "feedforward_mult"}, 1, 1 << 6, 4));
  ModelConfig& layers = config.layers;
  if (!audio.has({"", "dim_head"}) && dim % n_heads != 0)
    reader.fail(
        ErrorCode::kUnsupported,
        fmt::format("hidden_dim: expected a multiple of num_heads {}, got {}", n_heads, dim));
  layers.head_dim =
      audio.has({"", "dim_head"}) ? audio.integer({"", "dim_head"}, 1, 1 << 12) : dim / n_heads;
  layers.attention.scale = 1.0f / std::sqrt(static_cast<float>(std::max(layers.head_dim, 1)));
  layers.norm = {.eps = 1e-5f, .layer_norm = true};
  set_tower_activation(config, Activation::kSilu, false);
  config.patch_size = 1, config.patch_dim = audio.integer({"", "input_dim"}, 1, 1 << 12, 160);
  config.patch_name = at + "input_linear";
  config.prefix = at;
  config.names.layer = "layers.{}.";
  config.roots.push_back(at);
  config.unit_in_row = true;
  config.window = audio.integer({"", "context_size"}, 1, 1 << 12, 200);
  config.whole.assign(static_cast<size_t>(n_layers), 0);
  constexpr int kMostTerms = 1 << 15;  // of a position's scores
  if (n_heads * (2 * config.window - 1) > kMostTerms)
    reader.fail(
        ErrorCode::kUnsupported,
        fmt::format("context_size: expected at most {} distances of all heads, got {} of {}",
                    kMostTerms, 2 * config.window - 1, n_heads));
  TowerConformer& conformer = config.conformer;
  conformer.taps = audio.integer({"", "conv_kernel_size"}, 1, 1 << 8, 15);
  conformer.conv_dim = dim * audio.integer({"", "conv_expansion_factor"}, 1, 1 << 6, 2);
  conformer.most_distance = audio.integer({"", "max_pos_emb"}, config.window, 1 << 16, 512);
  conformer.middle = n_layers / 2 - 1;
  conformer.n_classes = audio.integer({"", "output_dim"}, 1, 1 << 20, 42);
  conformer.classes = at + "out", conformer.of_classes = at + "out_mid";
  if (conformer.middle < 0) reader.fail(ErrorCode::kUnsupported, "num_layers: expected at least 2");
  config.queries.prefix = reader.prefix({"projector.", "model.projector."}, "linear.weight");
  config.roots.push_back(config.queries.prefix);
  config.text_dim = reader.dimension(config.queries.prefix + "linear.weight", 0);
  read_queries(reader, config);
  config.queries.factor = read_embedding_factor(reader);
}

}  // namespace

extern const TowerFamily kGraniteSpeechTower = {
    .name = "granitespeech",
    .title = "Granite Speech",
    .hf_types = {"granite_speech"},
    .configure = configure_granite_speech_tower,
    .hf_defaults = R"({"hidden_dim": 1024, "num_layers": 10, "num_heads": 8})",
    .sense = TowerSense::kHearing,
};

}  // namespace penstock
