// The names of weights in files, and which of them a source uses.
#include "model/arch/names.h"

#include <algorithm>
#include <charconv>

#include "base/text_hash.h"
#include "model/arch/archs.h"

namespace penstock {

namespace {

// Text models inside multimodal ones: their prefix, and that of the whole text part.
struct TextModel {
  std::string_view prefix, root;
};
constexpr TextModel kTextModels[] = {{"model.language_model.", "model.language_model."},
                                     {"language_model.model.", "language_model."},
                                     {"language_model.model.decoder.", "language_model."},
                                     {"language_model.backbone.", "language_model."},
                                     {"model.language_model.model.", "model.language_model."},
                                     {"model.text_model.", "model.text_model."},
                                     {"llm.model.", "llm."},
                                     {"model.llm.", "model.llm."},
                                     {"thinker.model.", "thinker.model."}};
constexpr std::string_view kOutputs[] = {
    "lm_head",     "language_model.lm_head", "model.language_model.lm_head",
    "llm.lm_head", "model.llm.unembed",      "thinker.lm_head"};

NameTable gguf_names() {
  NameTable n(true);
  n.embedding = "token_embd";
  n.embedding_norm = "token_embd_norm";
  n.positions = "position_embd";
  n.final_norm = "output_norm";
  n.lm_head = "output";
  n.layer = "blk.{}.";
  return n;
}

NameTable hf_names(const ModelConfig& config) {
  NameTable n(false);
  n.prefixes = {"model."};
  for (const TextModel& text : kTextModels) n.prefixes.push_back(text.prefix);
  n.prefixes.push_back("");
  n.embedding = "embed_tokens";
  n.final_norm = "norm";
  n.lm_head = "lm_head";
  n.layer = "layers.{}.";
  // With one norm per sub-layer, "post_attention" is the one before the feed-forward.
  n[tensor::kFfnNorm] = config.residual.norms == NormPlacement::kPre ? "post_attention_layernorm"
                                                                     : "pre_feedforward_layernorm";
  return n;
}

}  // namespace

NameTable tensor_names(const ModelConfig& config, Naming naming) {
  NameTable names = naming == Naming::kGguf ? gguf_names() : hf_names(config);
  const Architecture* architecture = find_architecture(config.arch);
  if (architecture == nullptr) return names;
  const auto change = naming == Naming::kGguf ? architecture->gguf_names : architecture->hf_names;
  if (change != nullptr) change(names, config);
  return names;
}

std::string with_index(std::string_view pattern, int index) {
  std::string name(pattern);
  const size_t at = name.find("{}");
  return at == std::string::npos ? name : name.replace(at, 2, std::to_string(index));
}

std::string layer_prefix(const NameTable& names, int layer) {
  if (!names.layer_prefixes.empty()) return names.layer_prefixes[static_cast<size_t>(layer)];
  return with_index(names.layer, layer / names.layers_per_index);
}

std::string in_layer(const NameTable& names, int layer, std::string_view part) {
  std::string name(part);
  const size_t at = name.find('@');
  if (at == 0 && !names.first_blocks.empty())
    return std::to_string(names.first_blocks[static_cast<size_t>(layer)] + name[1] - '0') +
           name.substr(2);
  if (at == std::string::npos) return name;
  return name.replace(at, 1,
                      names.at_layers.empty() ? std::to_string(layer % names.layers_per_index)
                                              : names.at_layers[static_cast<size_t>(layer)]);
}

std::string with_letter(std::string_view pattern, char letter) {
  std::string name(pattern);
  const size_t at = name.find("{}");
  return at == std::string::npos ? name : name.replace(at, 2, 1, letter);
}

namespace {

// Whether experts' matrices are stored [in, out]; transformers transposes them when it saves them.
bool inputs_first(const NameTable& names, const WeightSource& source, std::string_view prefix,
                  int n_layers) {
  for (int i = 0; i < n_layers; ++i) {
    const std::string at = std::string(prefix) + layer_prefix(names, i);
    const TensorInfo* wide =
        source.WeightSource::find(at + std::string(names[tensor::kExpertGateUp]));
    const TensorInfo* narrow =
        source.WeightSource::find(at + std::string(names[tensor::kExpertDown]));
    if (wide == nullptr || narrow == nullptr || wide->shape.size() != 3 ||
        narrow->shape.size() != 3)
      continue;
    return wide->shape[1] != 2 * narrow->shape[2];
  }
  return true;
}

}  // namespace

std::string_view output_stem(const WeightSource& source) {
  const auto* const found = std::ranges::find_if(kOutputs, [&](std::string_view stem) {
    return std::ranges::any_of(source.tensors(), [&](const TensorInfo& tensor) {
      return tensor.name.size() > stem.size() && tensor.name[stem.size()] == '.' &&
             tensor.name.starts_with(stem);
    });
  });
  return found == std::end(kOutputs) ? "" : *found;
}

void choose_names(NameTable& names, const WeightSource& source, std::string_view prefix,
                  int n_layers) {
  if (names.lm_head == kOutputs[0] && !output_stem(source).empty())
    names.lm_head = output_stem(source);
  if (names.experts_transposed)
    names.experts_transposed = inputs_first(names, source, prefix, n_layers);
  const auto has = [&](std::string_view name, const char* suffix) {
    for (int i = 0; i < n_layers; ++i) {
      // WeightSource::find() looks up the list of tensors; an overriding find() may encode the
      // tensor.
      const std::string whole =
          std::string(prefix) + layer_prefix(names, i) + std::string(name) + suffix;
      if (source.WeightSource::find(whole) != nullptr) return true;
    }
    return false;
  };
  // Qwen3-Omni has a tensor for each expert where Qwen3-VL has one for all.
  const bool apart = names.experts_transposed && !has(names[tensor::kExpertGateUp], "") &&
                     has(with_index(tensor::kExpertGate.hf, 0), ".weight");
  if (apart) {
    names.experts_transposed = false;
    names[tensor::kExpertGateUp] = "", names[tensor::kExpertDown] = tensor::kExpertDown.hf;
  }
  if (!names.other_gate.empty() && has(names.other_gate, ".weight"))
    names[tensor::kGate] = names.other_gate, names[tensor::kUp] = names.other_up,
    names[tensor::kDown] = names.other_down;
  if (names[tensor::kFusedExpertDown].empty()) return;
  if (has(names[tensor::kExpertGateUp], "")) {
    names[tensor::kExpertDown] = names[tensor::kFusedExpertDown];
  } else {
    names[tensor::kExpertGateUp] = "";
  }
}

bool is_of_further_tokens(std::string_view name) {
  return name.starts_with("mtp.") || name.starts_with("model.mtp.");
}

NextTokenStems next_token_stems(Naming naming, const std::string& at, std::string_view apart,
                                int index) {
  if (naming == Naming::kGguf) {
    const std::string n = at + "nextn.";
    return {at,
            n + "eh_proj",
            n + "enorm",
            n + "hnorm",
            n + "shared_head_norm",
            n + "embed_tokens",
            n + "shared_head_head"};
  }
  if (const std::string n(apart); !n.empty()) {
    return {fmt::format("{}layers.{}.", n, index),
            n + "fc",
            n + "pre_fc_norm_embedding",
            n + "pre_fc_norm_hidden",
            n + "norm",
            n + "embed_tokens",
            n + "lm_head"};
  }
  return {at,
          at + "eh_proj",
          at + "enorm",
          at + "hnorm",
          at + "shared_head.norm",
          at + "embed_tokens",
          at + "shared_head.head"};
}

NextTokenStems next_token_stems(const WeightSource& source, const std::string& at, int index) {
  const auto is_there = [&](const std::string& stem) {
    return std::ranges::any_of(source.tensors(), [&](const TensorInfo& tensor) {
      return std::string_view(tensor.name).starts_with(stem);
    });
  };
  NextTokenStems stems = next_token_stems(source.naming(), at, "", index);
  if (source.naming() == Naming::kGguf) return stems;
  for (const std::string_view apart : kNextTokenApart) {
    const NextTokenStems others = next_token_stems(source.naming(), at, apart, index);
    if (is_there(others.projection + ".") && is_there(others.layer)) return others;
  }
  if (is_there(at + "transformer.shared_head.")) {  // Step 3.5
    stems.final_norm = at + "transformer.shared_head.norm";
    stems.head = at + "transformer.shared_head.output";
  }
  return stems;
}

bool is_ignorable_tensor(std::string_view name) {
  for (const std::string_view part :
       {"rotary_emb.inv_freq", "rotary_pos_emb.inv_freq", ".attn.bias", ".attn.masked_bias",
        ".attn.causal_mask", "attention.bias", "attention.masked_bias", "embed_positions.weights",
        "rope_freqs.weight", "rope_factors_", "model.mtp_", "mtp_dspark.",
        // of Longformer's tokens that attend globally
        "self.query_global.", "self.key_global.", "self.value_global."}) {
    if (name.find(part) != std::string_view::npos) return true;
  }
  // of caches in 8 bits, which this one is not
  for (const std::string_view end :
       {"attn.k_scale", "attn.v_scale", "attn.q_scale", "k_proj.k_scale", "v_proj.v_scale"})
    if (name.ends_with(end)) return true;
  return is_of_further_tokens(name);
}

bool is_of_a_head(std::string_view name) {
  for (const std::string_view part : {"lm_head.",
                                      "cls.",
                                      "pooler.",
                                      "classifier.",
                                      "head.",
                                      "decoder.",
                                      "score.",
                                      "qa_outputs.",
                                      "output.weight",
                                      "dense_2.",
                                      "dense_3.",
                                      "pre_classifier.",
                                      "vocab_transform.",
                                      "vocab_layer_norm.",
                                      "vocab_projector.",
                                      "generator_",
                                      "discriminator_",
                                      "predictions.",
                                      "sop_classifier.",
                                      "dense.",
                                      "lm_predictions.",
                                      "mask_predictions."}) {
    if (name.starts_with(part) || name.find("." + std::string(part)) == name.find('.')) return true;
  }
  return false;
}

bool is_text_prefix(std::string_view prefix, const NameTable& names) {
  return prefix.empty() || prefix == "model." || prefix == "transformer." ||
         std::ranges::find(names.prefixes, prefix) != names.prefixes.end() ||
         std::ranges::find(kTextModels, prefix, &TextModel::prefix) != std::end(kTextModels);
}

bool is_of_another_modality(std::string_view name, std::string_view prefix) {
  if (is_of_further_tokens(name)) return false;
  const auto* const text = std::ranges::find(kTextModels, prefix, &TextModel::prefix);
  if (text != std::end(kTextModels))
    return !name.starts_with(text->root) &&
           std::ranges::none_of(kOutputs,
                                [&](std::string_view stem) { return name.starts_with(stem); });
  for (const std::string_view part :
       {"vision_tower.", "vision_model.", "vision_embed_tokens.", "visual.",
        "multi_modal_projector.", "mm_projector.", "vit_large_projector.", "audio_tower.",
        "embed_vision.", "embed_audio.", "image_newline"}) {
    if (name.find(part) != std::string_view::npos) return true;
  }
  if (name.starts_with("model.")) name.remove_prefix(std::string_view("model.").size());
  constexpr std::string_view kParts[] = {"aligner",
                                         "apm",
                                         "audio_encoder",
                                         "connector",
                                         "merger",
                                         "projector",
                                         "resampler",
                                         "vision_adapter",
                                         "vision_encoder",
                                         "vision_projection",
                                         "vit_merger",
                                         "vpm",
                                         "vision_language_adapter",
                                         "patch_merger",
                                         "patch_merge_mlp",
                                         "pre_mm_projector_norm"};
  return std::ranges::find(kParts, name.substr(0, name.find('.'))) != std::end(kParts);
}

std::string shown_shape(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

bool is_of_later_layer(const ModelConfig& config, std::string_view layer, std::string_view name) {
  const std::string_view begin = layer.substr(0, layer.find("{}"));
  if (!name.starts_with(begin)) return false;
  int index = -1;
  const std::string_view rest = name.substr(begin.size());
  std::from_chars(rest.data(), rest.data() + rest.size(), index);
  return index >= config.n_layers && index < config.n_layers + config.n_next_token_layers;
}

namespace {

bool is_of_encoder(std::string_view name) {
  return name.starts_with("model.encoder.") || name.starts_with("encoder.");
}

}  // namespace

Status check_unused(const WeightSource& source, const ModelConfig& config, std::string_view prefix,
                    std::string_view layer, const ViewSet& used) {
  for (const TensorInfo& tensor : source.tensors()) {
    if (used.contains(tensor.name) || is_ignorable_tensor(tensor.name)) continue;
    if (is_of_another_modality(tensor.name, prefix)) continue;
    if (config.encoder_rows > 0 && is_of_encoder(tensor.name)) continue;
    if (is_of_later_layer(config, layer, tensor.name)) continue;
    if (config.embedding.tied && tensor.name.ends_with("lm_head.weight")) continue;
    if (!config.output.has_head && is_of_a_head(tensor.name)) continue;
    return errorf(
        ErrorCode::kUnsupported,
        "{}: tensor {} {} is not part of architecture {}: this file holds another kind of model",
        source.path().string(), tensor.name, shown_shape(tensor.shape), config.arch);
  }
  return {};
}

}  // namespace penstock
