#include <algorithm>
#include <array>

#include "base/json_text.h"
#include "formats/hf_config.h"
#include "model/towers/families.h"

namespace penstock {

namespace {

using nlohmann::json;

// Keys of vision_config that do not change what a tower computes: training, other tasks, and what
// older versions of transformers wrote into every configuration.
constexpr std::string_view kHarmless[] = {"model_type",
                                          "architectures",
                                          "dtype",
                                          "torch_dtype",
                                          "transformers_version",
                                          "_name_or_path",
                                          "name_or_path",
                                          "_attn_implementation",
                                          "_attn_implementation_autoset",
                                          "_attn_implementation_internal",
                                          "_commit_hash",
                                          "_experts_implementation_internal",
                                          "attention_dropout",
                                          "dropout",
                                          "hidden_dropout_prob",
                                          "dropout_rate",
                                          "drop_path_rate",
                                          "embedding_dropout",
                                          "projection_dropout",
                                          "activation_dropout",
                                          "layerdrop",
                                          "encoder_layerdrop",
                                          "init_std",
                                          "initializer_range",
                                          "initializer_factor",
                                          "lambda_init",
                                          "use_cache",
                                          "use_flash_attn",
                                          "attn_implementation",
                                          "return_dict",
                                          "output_hidden_states",
                                          "output_attentions",
                                          "torchscript",
                                          "use_bfloat16",
                                          "pruned_heads",
                                          "tie_word_embeddings",
                                          "is_encoder_decoder",
                                          "is_decoder",
                                          "is_composition",
                                          "cross_attention_hidden_size",
                                          "add_cross_attention",
                                          "tie_encoder_decoder",
                                          "max_length",
                                          "min_length",
                                          "do_sample",
                                          "early_stopping",
                                          "num_beams",
                                          "num_beam_groups",
                                          "diversity_penalty",
                                          "temperature",
                                          "top_k",
                                          "top_p",
                                          "typical_p",
                                          "repetition_penalty",
                                          "length_penalty",
                                          "no_repeat_ngram_size",
                                          "encoder_no_repeat_ngram_size",
                                          "bad_words_ids",
                                          "num_return_sequences",
                                          "output_scores",
                                          "return_dict_in_generate",
                                          "forced_bos_token_id",
                                          "forced_eos_token_id",
                                          "remove_invalid_values",
                                          "exponential_decay_length_penalty",
                                          "suppress_tokens",
                                          "begin_suppress_tokens",
                                          "finetuning_task",
                                          "id2label",
                                          "label2id",
                                          "tokenizer_class",
                                          "prefix",
                                          "bos_token_id",
                                          "pad_token_id",
                                          "eos_token_id",
                                          "sep_token_id",
                                          "decoder_start_token_id",
                                          "task_specific_params",
                                          "problem_type",
                                          "tf_legacy_loss",
                                          "chunk_size_feed_forward",
                                          "auto_map",
                                          "vision_use_head",
                                          "projection_dim",
                                          "vocab_size",
                                          "tokens_per_second",
                                          "gradient_checkpointing",
                                          "use_mask_token",
                                          "mask_token",
                                          "base_model_ep_plan",
                                          "base_model_tp_plan"};

const char* section_of(TowerSense sense, const json& config) {
  if (sense == TowerSense::kSight) return "vision_config";
  return config.contains("encoder_config") ? "encoder_config" : "audio_config";
}

// The error of a key that nothing read and that may change results.
std::optional<Error> unknown_key(const ConfigReader& reader, const json& object) {
  for (const auto& [key, value] : object.items()) {
    const bool neutral = value.is_null() || value == false;
    if (neutral || reader.was_asked_for(key) ||
        std::ranges::find(kHarmless, key) != std::end(kHarmless))
      continue;
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: {}: this field is not known here (it is {})", reader.where(), key,
                             value.dump().substr(0, 60))};
  }
  return std::nullopt;
}

json tower_object(const WeightSource& source, std::string_view defaults, TowerSense sense) {
  json object = defaults.empty() ? json::object() : bounded_json(defaults);
  const json& config = multimodal_part(source.config());
  const auto found = config.find(section_of(sense, config));
  if (found == config.end() && config.is_object()) {
    object.update(config);
  } else if (found != config.end() && found->is_object()) {
    object.update(*found);
  }
  return object;
}

}  // namespace

TowerReader::TowerReader(const WeightSource& source, std::string_view hf_defaults, TowerSense sense)
    : source_(source),
      object_(tower_object(source, hf_defaults, sense)),
      whole_(multimodal_part(source.config()), Naming::kHuggingFace, "",
             source.path().string() + ": config.json"),
      vision_(object_, Naming::kHuggingFace, "",
              source.path().string() +
                  ": config.json: " + section_of(sense, multimodal_part(source.config()))),
      has_section_(multimodal_part(source.config())
                       .contains(section_of(sense, multimodal_part(source.config())))) {
  whole_.set_source(&source), vision_.set_source(&source);
}

std::string TowerReader::vision_type() { return vision_.text({"", "model_type"}, ""); }

std::string TowerReader::prefix(std::initializer_list<std::string_view> prefixes,
                                std::string_view name) {
  for (const std::string_view prefix : prefixes)
    if (has_tensor(std::string(prefix) + std::string(name))) return std::string(prefix);
  fail(ErrorCode::kCorruptFile, fmt::format("tensor {}{} is missing", *prefixes.begin(), name));
  return std::string(*prefixes.begin());
}

int TowerReader::dimension(const std::string& name, size_t axis) {
  const TensorInfo* found = source_.WeightSource::find(name);
  if (found != nullptr && axis < found->shape.size() && found->shape[axis] > 0 &&
      found->shape[axis] <= 1 << 24)
    return static_cast<int>(found->shape[axis]);
  fail(ErrorCode::kCorruptFile,
       found == nullptr ? fmt::format("tensor {} is missing", name)
                        : fmt::format("tensor {}: expected at least {} axes", name, axis + 1));
  return 1;
}

int TowerReader::side(Key key, std::optional<int> fallback) {
  constexpr int kMost = 1 << 16;
  const json* value = vision_.find(key);
  if (value == nullptr || !value->is_array()) return vision_.integer(key, 1, kMost, fallback);
  const std::vector<int> sides = vision_.integers(key, 1, kMost);
  if (!sides.empty() && std::ranges::all_of(sides, [&](int s) { return s == sides[0]; }))
    return sides[0];
  fail(ErrorCode::kUnsupported,
       fmt::format("{}: expected equal sides, got {}", vision_.name(key), value->dump()));
  return 1;
}

ActivationFunction TowerReader::activation(Key key, std::string fallback) {
  return activation(vision_, key, std::move(fallback));
}

ActivationFunction TowerReader::activation(ConfigReader& from, Key key, std::string fallback) {
  const std::string name = from.text(key, std::move(fallback));
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new" || name == "gelu_fast")
    return Activation::kGeluTanh;
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "relu") return Activation::kRelu;
  if (name == "quick_gelu") return quick_gelu();
  fail(ErrorCode::kUnsupported,
       fmt::format("{}: expected gelu, gelu_pytorch_tanh, quick_gelu, silu or relu, got '{}'",
                   from.name(key), name));
  return Activation::kGelu;
}

Status TowerReader::status() const {
  RETURN_IF_ERROR(vision_.status());
  RETURN_IF_ERROR(whole_.status());
  if (!has_section_) return {};  // the other fields are those of the text model
  if (auto error = unknown_key(vision_, object_)) return tl::unexpected(*std::move(error));
  return {};
}

void TowerReader::merge(const ConfigReader& other, const nlohmann::json& object) {
  if (!other.status()) return fail(other.status().error().code, other.status().error().message);
  if (auto error = unknown_key(other, object)) fail(error->code, std::move(error->message));
}

ActivationFunction quick_gelu() {
  ActivationFunction f(Activation::kClampedSilu);
  f.parameters[0] = 1.702f, f.parameters[1] = 1e30f;
  return f;
}

void set_tower_layers(TowerConfig& config, int n_layers, int dim, int n_heads, int ffn_dim) {
  ModelConfig& layers = config.layers;
  layers.arch = config.family;
  layers.n_layers = n_layers, layers.model_dim = dim, layers.ffn_dim = ffn_dim;
  layers.n_heads = layers.n_kv_heads = n_heads;
  layers.head_dim = dim / n_heads;
  layers.attention.scale = 1.0f / std::sqrt(static_cast<float>(layers.head_dim));
  layers.attention.causal = false;
  layers.layers.assign(static_cast<size_t>(n_layers), {});
  for (LayerConfig& layer : layers.layers) layer.rope = -1, layer.cache_layer = 0;
}

void set_tower_activation(TowerConfig& config, ActivationFunction f, bool gated) {
  config.layers.ffn.activation = f, config.layers.ffn.gated = gated;
  for (LayerConfig& layer : config.layers.layers) layer.activation = f;
}

}  // namespace penstock
