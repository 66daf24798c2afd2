// dots3 note: latent attention to selected tokens in some layers, in the others to a window, with
// sizes of heads and latents of their own; normed rotated keys, scaled latents and gates by head;
// experts chosen by sigmoid behind dense layers.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"
#include "model/arch/rope.h"

namespace penstock {

namespace {

using nlohmann::json;

constexpr int kMostDotsRank = 8192, kMostDotsHead = 4096, kMostDotsHeads = 1024;
constexpr int kMostDotsSelected = 1 << 16;
constexpr std::string_view kDotsSliding = "sliding_attention", kDotsIndexed = "indexed_attention";

bool dots3_has(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && !found->is_null();
}

// Kinds of layers, of which the published files say neither all nor all in these words.
json dots3_kinds(const json& object, int n_layers) {
  json kinds = json::array();
  const bool slides = object.value("use_sliding_window", json(true)) != false;
  if (dots3_has(object, "layer_types")) kinds = object["layer_types"];
  for (int i = 0; i < n_layers && !dots3_has(object, "layer_types"); ++i)
    kinds.push_back(!slides || i < 2 || i % 4 == 1 ? kDotsIndexed : kDotsSliding);
  if (!kinds.is_array() || (dots3_has(object, "per_layer_config") && !dots3_has(object, "use_dsa")))
    return kinds;
  const bool selects = object.value("use_dsa", json(true)) != false;
  for (json& kind : kinds)
    if (kind != kDotsSliding && (kind == "full_attention" || kind == kDotsIndexed))
      kind = selects ? kDotsIndexed : "full_attention";
  return kinds;
}

json dots3_mlp_kinds(const json& object, int n_layers) {
  json kinds = json::array();
  const json first = object.value("first_k_dense_replace", json(1)),
             every = object.value("moe_layer_freq", json(1));
  for (int i = 0; i < n_layers; ++i) {
    const auto at = static_cast<size_t>(i);
    bool sparse = first.is_number_integer() && i >= first.get<int64_t>();
    if (every.is_array()) sparse = sparse && at < every.size() && every[at] != 0;
    if (every.is_number_integer() && every > 1) sparse = sparse && i % every.get<int64_t>() == 0;
    kinds.push_back(sparse ? "sparse" : "dense");
  }
  return kinds;
}

// Sizes of layers with a window, which transformers keeps by layer, as keys of the published files.
void spread_dots3_sizes(json& object) {
  const auto layers = object.find("per_layer_config");
  if (layers == object.end() || !layers->is_object()) return;
  const json* first = nullptr;
  for (const auto& [index, sizes] : layers->items()) {
    if (!sizes.is_object() || (first != nullptr && sizes != *first)) return;  // is refused
    first = &sizes;
  }
  const json sizes = first == nullptr ? json::object() : *first;
  for (const char* key : {"num_attention_heads", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim",
                          "qk_rope_head_dim", "v_head_dim"}) {
    const json value = sizes.contains(key) ? sizes[key] : object.value(key, json());
    if (!value.is_null()) object["swa_" + std::string(key)] = value;
  }
  object.erase("per_layer_config");
}

void usual_dots3(json& object) {
  const json layers = object.value("num_hidden_layers", json(46));
  const int n_layers =
      layers.is_number_integer() && layers > 0 && layers < 1024 ? layers.get<int>() : 0;
  const json kinds = dots3_kinds(object, n_layers);
  object["layer_types"] = kinds;
  if (!dots3_has(object, "mlp_layer_types"))
    object["mlp_layer_types"] = dots3_mlp_kinds(object, n_layers);
  for (const char* key : {"first_k_dense_replace", "moe_layer_freq"}) object.erase(key);
  spread_dots3_sizes(object);
  for (const auto& [theirs, usual] :
       {std::pair("sliding_window_size", "sliding_window"),
        std::pair("moe_shared_expert_intermediate_size", "shared_experts_intermediate_size")})
    if (dots3_has(object, theirs) && !dots3_has(object, usual)) object[usual] = object[theirs];
  const json usual_heads = object.value("num_attention_heads", json(64)),
             heads = object.value("swa_num_attention_heads", json(64));
  if (kinds.is_array() && usual_heads != heads) {
    json by_layer = json::array();
    for (const json& kind : kinds) by_layer.push_back(kind == kDotsSliding ? heads : usual_heads);
    object["num_attention_heads"] = by_layer;
  }
  object.erase("num_key_value_heads");
  object.erase("head_dim");
  const json ropes = object.value("rope_parameters", json());
  if (!ropes.is_object()) return;
  const auto of_kind = [&](std::string_view kind) {
    json rope = ropes.value(std::string(kind), json());
    if (rope.is_object()) rope.erase("partial_rotary_factor");
    return rope;
  };
  if (!of_kind(kDotsSliding).is_null()) object["swa_rope_parameters"] = of_kind(kDotsSliding);
  for (const std::string_view kind : {std::string_view("full_attention"), kDotsIndexed})
    if (!of_kind(kind).is_null()) object["rope_parameters"] = of_kind(kind);
}

// Latents of layers with a window; those of the others are read.
void read_dots3_windows(ConfigReader& reader, ModelConfig& config,
                        const std::vector<bool>& slides) {
  const LatentConfig& usual = config.latent;
  LatentConfig l = usual;
  l.indexer = {};
  l.kv_rank = reader.integer({"attention.kv_lora_rank_swa", "swa_kv_lora_rank"}, 1, kMostDotsRank,
                             reader.gguf() ? std::nullopt : std::optional(1024));
  l.query_rank = reader.integer({"", "swa_q_lora_rank"}, 1, kMostDotsRank, usual.query_rank);
  l.value_dim = reader.integer({"attention.value_length_mla_swa", "swa_v_head_dim"}, 1,
                               kMostDotsHead, reader.gguf() ? std::nullopt : std::optional(128));
  l.rope_dim = reader.integer({"", "swa_qk_rope_head_dim"}, 2, kMostDotsHead, usual.rope_dim);
  l.plain_dim = reader.gguf() ? reader.integer({"attention.key_length_mla_swa", ""}, l.rope_dim + 1,
                                               2 * kMostDotsHead) -
                                    l.rope_dim
                              : reader.integer({"", "swa_qk_nope_head_dim"}, 1, kMostDotsHead, 192);
  RopeConfig rope;
  rope.theta = reader.number({"rope.freq_base_swa", "swa_rope_theta"}, 1.0f, 1e12f, 50000.0f);
  if (const json* own = reader.find({"", "swa_rope_parameters"}); own != nullptr)
    rope = read_hf_rope(reader, *own, config, rope.theta);
  rope.rotary_dim = l.rope_dim;
  config.ropes.push_back(rope);
  const int window =
      reader.integer({"attention.sliding_window", "sliding_window"}, 1, 1 << 30, 512);
  const auto shared = std::make_shared<const LatentConfig>(l);
  const float factor = std::sqrt(static_cast<float>(usual.plain_dim + usual.rope_dim) /
                                 static_cast<float>(l.plain_dim + l.rope_dim));
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if (!slides[i]) continue;
    LayerConfig& layer = config.layers[i];
    layer.window = window, layer.rope = 1, layer.latent = shared, layer.score_factor = factor;
    layer.head_dim = l.kv_rank + l.rope_dim;
  }
}

// The kind of each layer; in GGUF files as two lists of flags.
std::vector<std::string> read_dots3_kinds(ConfigReader& reader, const ModelConfig& config) {
  std::vector<std::string> kinds;
  const auto flags = [&](std::string_view key) {
    const json* list = reader.find({key, ""});
    const bool right = list != nullptr && list->is_array() && list->size() >= config.layers.size();
    if (!right)
      reader.fail(ErrorCode::kCorruptFile,
                  fmt::format("{}: expected a list of {} layers", key, config.layers.size()));
    return right ? *list : json();
  };
  if (reader.gguf()) {
    const json slides = flags("attention.sliding_window_pattern"),
               selects = flags("attention.indexer.types");
    for (size_t i = 0; i < config.layers.size() && !slides.is_null() && !selects.is_null(); ++i)
      kinds.emplace_back(slides[i] != false && slides[i] != 0     ? kDotsSliding
                         : selects[i] != false && selects[i] != 0 ? kDotsIndexed
                                                                  : "full_attention");
    return kinds;
  }
  const json* list = reader.find({"", "layer_types"});
  for (const json& kind : list != nullptr && list->is_array() ? *list : json::array()) {
    if (kind != kDotsSliding && kind != kDotsIndexed && kind != "full_attention" &&
        kind != "deepseek_sparse_attention")
      break;
    kinds.push_back(kind == "deepseek_sparse_attention" ? std::string(kDotsIndexed)
                                                        : kind.get<std::string>());
  }
  if (kinds.size() != config.layers.size())
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("layer_types: expected sliding_attention, indexed_attention or "
                            "full_attention for {} layers",
                            config.layers.size()));
  return kinds;
}

void read_dots3_indexer(ConfigReader& reader, ModelConfig& config,
                        const std::vector<std::string>& kinds) {
  // Without a layer that selects, sizes of indexers mean nothing.
  const bool says = reader.has({"attention.indexer.top_k", "index_topk"});
  if (!says || std::ranges::find(kinds, kDotsIndexed) == kinds.end()) return;
  IndexerConfig& indexer = config.latent.indexer;
  indexer.interleaved = true;
  indexer.top_k = reader.integer({"attention.indexer.top_k", "index_topk"}, 1, kMostDotsSelected);
  indexer.n_heads =
      reader.integer({"attention.indexer.head_count", "index_n_heads"}, 1, kMostDotsHeads);
  const Key key_size{"attention.indexer.key_length", "index_head_dim"};
  indexer.head_dim = reader.integer(key_size, config.latent.rope_dim, kMostDotsHead);
  if (indexer.head_dim % 2 != 0)
    reader.fail(ErrorCode::kUnsupported, fmt::format("{}: expected an even number, got {}",
                                                     reader.name(key_size), indexer.head_dim));
  for (size_t i = 0; i < config.layers.size(); ++i)
    if (kinds[i] == kDotsIndexed) config.layers[i].selecting_layer = static_cast<int>(i);
}

// What the published file says and transformers assumes.
void check_dots3(ConfigReader& reader) {
  for (const auto& [key, wanted] :
       {std::pair("scoring_func", "sigmoid"), std::pair("topk_method", "noaux_tc"),
        std::pair("normalization", "RMSNorm"), std::pair("final_norm", "RMSNorm"),
        std::pair("attention_gate_type", "headwise"),
        std::pair("swa_attention_gate_type", "headwise")})
    reader.expect_text(key, wanted);
  reader.expect_flag("k_rope_only_layernorm", true);
  for (const std::string_view key : {"use_dynamic_rsf", "moe_gating_fp32"})
    reader.expect_flag(key, false);
  if (reader.has({"", "per_layer_config"}))
    reader.fail(ErrorCode::kUnsupported,
                "per_layer_config: expected the same sizes for all layers with a window");
}

void configure_dots3(ConfigReader& reader, ModelConfig& config) {
  if (config.ffn.activation.kind != Activation::kSilu)
    reader.fail(ErrorCode::kUnsupported, "hidden_act: expected silu");
  check_dots3(reader);
  read_latent(reader, config);
  LatentConfig& l = config.latent;
  if (l.query_rank == 0)
    return reader.fail(ErrorCode::kUnsupported, "q_lora_rank: expected a latent of queries");
  l.norm_eps = config.norm.eps;
  l.norms_rotated = true;
  config.attention.head_gates = true;
  const std::vector<std::string> kinds = read_dots3_kinds(reader, config);
  if (kinds.size() != config.layers.size()) return;
  std::vector<bool> slides;
  for (const std::string& kind : kinds) slides.push_back(kind == kDotsSliding);
  if (std::ranges::find(slides, true) != slides.end()) read_dots3_windows(reader, config, slides);
  // GGUF files have the factors in the norms.
  if (!reader.gguf() && reader.flag({"", "apply_mla_qkv_lora_rescale"}, true)) {
    const auto rescale = [&](LatentConfig& latent) {
      const auto dim = static_cast<float>(config.model_dim);
      latent.query_factor = std::sqrt(dim / static_cast<float>(latent.query_rank));
      latent.latent_factor = std::sqrt(dim / static_cast<float>(latent.kv_rank));
    };
    rescale(l);
    std::shared_ptr<const LatentConfig> shared;
    for (LayerConfig& layer : config.layers) {
      if (layer.latent == nullptr) continue;
      if (shared == nullptr) {
        LatentConfig own = *layer.latent;
        rescale(own);
        shared = std::make_shared<const LatentConfig>(own);
      }
      layer.latent = shared;
    }
  }
  read_experts(reader, config);
  if (reader.gguf()) read_dense_layers(reader, config);
  read_mlp_layer_types(reader, config);
  read_sigmoid_routing(reader, config);
  const int width = reader.integer({"", "shared_experts_intermediate_size"}, 1, 1 << 20,
                                   reader.gguf() ? config.experts.ffn_dim : 1536);
  const int n_shared = reader.integer({"expert_shared_count", "n_shared_experts"}, 0, 1024, 1);
  config.experts.shared_dim =
      static_cast<int>(std::min<int64_t>(int64_t{n_shared} * width, 1 << 20));
  read_dots3_indexer(reader, config, kinds);
  // No key says that the file has a layer that predicts a token further.
  if (reader.has_tensor(fmt::format("model.layers.{}.input_layernorm.weight", config.n_layers)))
    config.n_next_token_layers = 1;
}

constexpr MeaningfulKey kDots3Keys[] = {{{"attention.kv_lora_rank_swa", "swa_kv_lora_rank"}, 0}};

}  // namespace

extern constinit const Architecture kDots3Note = {
    .name = "dots3note",
    .title = "dots3 note (text, also of `dots3_note`; sparse attention)",
    .hf_types = {"dots3_note_text", "Dots3NoteForCausalLM", "dots3_note",
                 "Dots3NoteForConditionalGeneration"},
    .configure = configure_dots3,
    .forward = decoder_forward,
    .hf_defaults =
        R"({"rms_norm_eps": 1e-5, "q_lora_rank": 1024, "kv_lora_rank": 512, "rope_theta": 8e7,
    "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "moe_intermediate_size": 1536, "index_topk": 2048, "index_n_heads": 64,
    "index_head_dim": 128})",
    .hf_usual = usual_dots3,
    .partial_rope = true,
    .heads_by_layer = true,
    .own_keys = kDots3Keys,
};

}  // namespace penstock
