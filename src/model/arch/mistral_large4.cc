// Mistral Large 4: latent attention to selected tokens, with queries that grow with the position by
// learned factors, rotation by learned frequencies in three of four layers, and latents of earlier
// layers in some; experts by softmax behind dense layers.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

using nlohmann::json;

constexpr int kMostMistralSelected = 1 << 16, kMostMistralHeads = 1024, kMostMistralDim = 4096;

// transformers' defaults: YaRN over a short original context, whose cosines are not scaled.
void usual_mistral_large4(json& object) {
  const auto has = [&](const char* key) {
    const auto found = object.find(key);
    return found != object.end() && !found->is_null();
  };
  if (!has("rope_parameters") && !has("rope_scaling"))
    object["rope_parameters"] = {
        {"rope_type", "yarn"},    {"rope_theta", 10000.0},
        {"factor", 2048.0},       {"original_max_position_embeddings", 512},
        {"beta_fast", 32.0},      {"beta_slow", 1.0},
        {"attention_factor", 1.0}};
  object["head_dim"] = object.value("qk_rope_head_dim", json(64));
}

// Layers without rotation have heads of the same size, none of whose dimensions is rotated.
void read_plain_layers(ConfigReader& reader, ModelConfig& config) {
  const Key key{"", "no_rope_layers"};
  const std::vector<int> rotates = reader.integers(key, 0, 1);
  const int every = reader.integer({"", "no_rope_layer_interval"}, 1, 1 << 20, 4);
  if (!rotates.empty() && rotates.size() < config.layers.size())
    return reader.fail(ErrorCode::kCorruptFile,
                       fmt::format("no_rope_layers: expected {} numbers, got {}",
                                   config.layers.size(), rotates.size()));
  LatentConfig plain = config.latent;
  plain.plain_dim += plain.rope_dim, plain.rope_dim = 0;
  plain.indexer = {};
  const auto shared = std::make_shared<const LatentConfig>(plain);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const bool turns = rotates.empty() ? (static_cast<int>(i) + 1) % every != 0 : rotates[i] != 0;
    if (turns) continue;
    LayerConfig& layer = config.layers[i];
    layer.rope = -1, layer.latent = shared, layer.head_dim = plain.kv_rank;
  }
}

void read_sources(ConfigReader& reader, ModelConfig& config) {
  const Key key{"", "kv_source_layers"};
  const std::vector<int> sources = reader.integers(key, 0, config.n_layers - 1);
  if (sources.empty()) return;
  if (sources.size() != config.layers.size())
    return reader.fail(ErrorCode::kCorruptFile,
                       fmt::format("kv_source_layers: expected {} numbers, got {}",
                                   config.layers.size(), sources.size()));
  for (int i = 0; i < config.n_layers; ++i) {
    const int source = sources[static_cast<size_t>(i)];
    if (source == i) continue;
    LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    const LayerConfig& other = config.layers[static_cast<size_t>(source)];
    if (source > i || sources[static_cast<size_t>(source)] != source || layer.rope != other.rope)
      return reader.fail(
          ErrorCode::kUnsupported,
          fmt::format("kv_source_layers: expected for layer {} an earlier one with latents of its "
                      "own that is rotated alike, got {}",
                      i, source));
    layer.kv_layer = source;
  }
}

void read_input_indexer(ConfigReader& reader, ModelConfig& config) {
  IndexerConfig& indexer = config.latent.indexer;
  indexer.from_input = true, indexer.interleaved = true;
  indexer.top_k = reader.integer({"", "index_topk"}, 1, kMostMistralSelected);
  indexer.n_heads = reader.integer({"", "index_n_heads"}, 1, kMostMistralHeads);
  indexer.head_dim =
      reader.integer({"", "index_head_dim"}, config.latent.rope_dim, kMostMistralDim);
  if (indexer.head_dim % 2 != 0)
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("index_head_dim: expected an even number, got {}", indexer.head_dim));
  check_sparse_layer_types(reader);
  const std::vector<bool> full = read_indexer_types(reader, config);
  for (size_t i = 0; i < config.layers.size(); ++i)
    config.layers[i].selecting_layer =
        full[i] || i == 0 ? static_cast<int>(i) : config.layers[i - 1].selecting_layer;
}

void configure_mistral_large4(ConfigReader& reader, ModelConfig& config) {
  if (reader.gguf())
    return reader.fail(ErrorCode::kUnsupported,
                       "GGUF files of this architecture are not known: expected a directory");
  if (config.ffn.activation.kind != Activation::kSilu)
    reader.fail(ErrorCode::kUnsupported, "hidden_act: expected silu");
  if (reader.integer({"", "q_lora_rank"}, 0, 1 << 20, 0) != 0)
    reader.fail(ErrorCode::kUnsupported, "q_lora_rank: expected none");
  reader.expect_flag("norm_topk_prob", true);
  read_latent(reader, config);
  config.latent.norm_eps = config.norm.eps;
  config.ropes[0].learned = true;
  config.attention.learned_query_scale = true;
  read_softmax_groups(reader, config);
  read_mlp_layer_types(reader, config);
  read_input_indexer(reader, config);
  read_plain_layers(reader, config);
  read_sources(reader, config);
  config.output.softcap = reader.number({"", "final_logit_softcapping"}, 0.0f, 1e6f, 30.0f);
}

// Mistral's own names; those of the vision model beside it are similar.
void mistral_large4_names(NameTable& names, const ModelConfig&) {
  names.embedding = "tok_embeddings", names.lm_head = "output";
  names[tensor::kRopeLogs] = "lerope.alpha";
  names[tensor::kAttnNorm] = "attention_norm", names[tensor::kFfnNorm] = "ffn_norm";
  names[tensor::kQ] = "attention.wq", names[tensor::kO] = "attention.wo";
  names[tensor::kLatentA] = "attention.wkv_a_with_mqa";
  names[tensor::kLatentANorm] = "attention.kv_a_norm";
  names[tensor::kLatentB] = "attention.wkv_b";
  names[tensor::kQuerySlopes] = "attention.ssmax_scaling.s";
  names[tensor::kQueryBiases] = "attention.ssmax_scaling.b";
  names[tensor::kIndexQuery] = "attention.indexer.wq_b";
  names[tensor::kIndexKey] = "attention.indexer.wk";
  names[tensor::kIndexWeights] = "attention.indexer.weights_proj";
  names[tensor::kIndexKeyNorm] = "attention.indexer.k_norm.weight";
  names[tensor::kIndexKeyNormBias] = "attention.indexer.k_norm.bias";
  names[tensor::kIndexInNorm] = "attention.indexer.q_input_norm.weight";
  names[tensor::kIndexInNormBias] = "attention.indexer.q_input_norm.bias";
  names[tensor::kIndexSlopes] = "attention.indexer.ssmax_scaling.s";
  names[tensor::kIndexBiases] = "attention.indexer.ssmax_scaling.b";
  names[tensor::kGate] = "feed_forward.w1", names[tensor::kUp] = "feed_forward.w3";
  names[tensor::kGateUp] = "", names[tensor::kDown] = "feed_forward.w2";
  names[tensor::kRouter] = "gate";
  names[tensor::kExpertGate] = "experts.{}.w1", names[tensor::kExpertUp] = "experts.{}.w3";
  names[tensor::kExpertDown] = "experts.{}.w2";
  names[tensor::kSharedGate] = "shared_experts.w1", names[tensor::kSharedUp] = "shared_experts.w3";
  names[tensor::kSharedDown] = "shared_experts.w2";
}

constexpr MeaningfulKey kMistralKeys[] = {{{"", "kv_source_layers"}, 0}};

}  // namespace

extern constinit const Architecture kMistralLarge4 = {
    .name = "mistral-large4",
    .title = "Mistral Large 4 (text, also of `mistral_large4`; sparse attention)",
    .hf_types = {"mistral_large4_text", "mistral_large4", "MistralLarge4ForConditionalGeneration"},
    .directories_only = true,
    .configure = configure_mistral_large4,
    .hf_names = mistral_large4_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"rms_norm_eps": 1e-5, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 4,
    "moe_intermediate_size": 6144, "first_k_dense_replace": 1, "index_topk": 2048, "index_n_heads": 32,
    "index_head_dim": 128})",
    .hf_usual = usual_mistral_large4,
    .own_keys = kMistralKeys,
};

}  // namespace penstock
