// DeepSeek V4 (Flash, Pro): attention to a window and to compressed entries of what is before it, of
// which every second layer selects some; mixed residual streams; experts in all layers, chosen in the
// first ones by the token alone.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

using nlohmann::json;

constexpr int kMostV4Rank = 1 << 16, kMostV4Heads = 1024, kMostV4Dim = 4096, kMostV4Ratio = 4096;
constexpr int kMostV4Entries = 1 << 16, kMostV4Iterations = 1000;
constexpr int kUsualSelectedRatio = 4, kUsualRatio = 128;
constexpr std::string_view kOnlyWindow = "sliding_attention",
                           kSelectedEntries = "compressed_sparse_attention",
                           kAllEntries = "heavily_compressed_attention";
constexpr int kWindowGroup = 1;  // of the cache; entries are kept for all of a sequence, in group 0
// Index of a rope in ModelConfig::ropes; the next one is its inverse (CompressedConfig).
constexpr int kRopeOfEntries = 0, kRopeOfWindows = 2;

bool v4_has(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && !found->is_null();
}

// Ropes as transformers saves them, one for each of two kinds of layers.
void flatten_v4_ropes(json& object) {
  const auto found = object.find("rope_parameters");
  if (found == object.end() || !found->is_object()) return;
  const json ropes = *found;
  const auto windows = ropes.find("main"), entries = ropes.find("compress");
  if (windows == ropes.end() || entries == ropes.end() || !windows->is_object() ||
      !entries->is_object())
    return;
  object["rope_parameters"] = *entries;
  object["main_rope_type"] = windows->value("rope_type", json("default"));
  if (windows->contains("rope_theta")) object["rope_theta"] = (*windows)["rope_theta"];
  if (entries->contains("rope_theta")) object["compress_rope_theta"] = (*entries)["rope_theta"];
  if (!v4_has(object, "partial_rotary_factor") && entries->contains("partial_rotary_factor"))
    object["partial_rotary_factor"] = (*entries)["partial_rotary_factor"];
}

// A published list of ratios in place of transformers' list of kinds, and a share of rotated dimensions
// as their number.
void usual_deepseek4(json& object) {
  flatten_v4_ropes(object);
  if (!v4_has(object, "layer_types") && v4_has(object, "compress_ratios") &&
      object["compress_ratios"].is_array())
    object["layer_types"] = object["compress_ratios"];
  const json share = object.value("partial_rotary_factor", json()),
             head = object.value("head_dim", json(512));
  if (share.is_number() && head.is_number_integer() && share >= 0 && share <= 1 && head >= 1 &&
      head <= kMostV4Dim)
    object["qk_rope_head_dim"] = static_cast<int>(share.get<double>() * head.get<int>());
  object.erase("partial_rotary_factor");
  for (const char* rope : {"rope_parameters", "rope_scaling"})
    if (v4_has(object, rope) && object[rope].is_object())
      object[rope].erase("partial_rotary_factor");
}

int ratio_of(ConfigReader& reader, std::string_view kind, std::string_view legacy, int usual) {
  const int top = reader.integer({"", legacy}, 2, kMostV4Ratio, usual);
  const json* rates = reader.find({"", "compress_rates"});
  if (rates == nullptr || reader.has({"", legacy})) return top;
  if (!rates->is_object()) {
    reader.fail(ErrorCode::kCorruptFile, "compress_rates: expected an object");
    return usual;
  }
  ConfigReader inside(*rates, Naming::kHuggingFace, "", reader.where() + ": compress_rates");
  const int ratio = inside.integer({"", kind}, 2, kMostV4Ratio, usual);
  reader.merge(inside);
  return ratio;
}

constexpr Key kV4Kinds{"attention.compress_ratios", "layer_types"};

// The kind of a layer in the words of transformers' list; GGUF files list ratios.
json kind_of_layer(const json& item) {
  if (!item.is_number()) return item;
  return item == 0                     ? json(kOnlyWindow)
         : item == kUsualSelectedRatio ? json(kSelectedEntries)
         : item == kUsualRatio         ? json(kAllEntries)
                                       : item;
}

void read_entries(ConfigReader& reader, ModelConfig& config) {
  IndexerConfig& indexer = config.compressed.indexer;
  const json* kinds = reader.find(kV4Kinds);
  if (kinds != nullptr && (!kinds->is_array() || kinds->size() < config.layers.size()))
    return reader.fail(ErrorCode::kCorruptFile,
                       fmt::format("{}: expected a list of {} layers", reader.name(kV4Kinds),
                                   config.layers.size()));
  if (kinds == nullptr && reader.gguf())
    return reader.fail(ErrorCode::kCorruptFile,
                       fmt::format("{} is missing", reader.name(kV4Kinds)));
  const Key window_key{"attention.sliding_window", "sliding_window"};
  const int window = reader.integer(window_key, 1, kMaxContextLength, 128),
            selected = ratio_of(reader, kSelectedEntries, "compress_rate_csa", kUsualSelectedRatio),
            all = ratio_of(reader, kAllEntries, "compress_rate_hca", kUsualRatio);
  bool any = false;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    const json usual(i < 2 || i % 2 == 0 ? kAllEntries : kSelectedEntries);
    const json kind = kind_of_layer(kinds != nullptr ? (*kinds)[i] : usual);
    layer.window = window;
    layer.group = kWindowGroup;
    layer.rope = kind == kOnlyWindow ? kRopeOfWindows : kRopeOfEntries;
    if (kind == kSelectedEntries) layer.selecting_layer = static_cast<int>(i);
    layer.entry_ratio = kind == kSelectedEntries ? selected : kind == kAllEntries ? all : 0;
    any = any || kind == kSelectedEntries;
    if (layer.entry_ratio == 0 && kind != kOnlyWindow)
      reader.fail(
          ErrorCode::kUnsupported,
          fmt::format("{}: expected {}, {} or {} (ratios 0, {} or {}), got {}",
                      reader.name(kV4Kinds), kOnlyWindow, kSelectedEntries, kAllEntries,
                      kUsualSelectedRatio, kUsualRatio,
                      kind.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 60)));
  }
  indexer.n_heads =
      reader.integer({"attention.indexer.head_count", "index_n_heads"}, 1, kMostV4Heads, 64);
  indexer.head_dim = reader.integer({"attention.indexer.key_length", "index_head_dim"},
                                    config.compressed.rope_dim, kMostV4Dim, 128);
  if (indexer.head_dim % 2 != 0)
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("index_head_dim: expected an even number, got {}", indexer.head_dim));
  const int n_selected =
      reader.integer({"attention.indexer.top_k", "index_topk"}, 1, kMostV4Entries, 512);
  if (!any) {
    indexer = {};
    return;
  }
  indexer.interleaved = indexer.gated = indexer.entries = true;
  indexer.pool = selected;
  indexer.top_k = n_selected * selected;
}

void read_v4_ropes(ConfigReader& reader, ModelConfig& config) {
  reader.expect_text("main_rope_type", "default");
  RopeConfig of_entries = config.ropes[0], of_windows;
  if (of_entries.scaling != RopeScaling::kNone && of_entries.scaling != RopeScaling::kYarn)
    reader.fail(ErrorCode::kUnsupported, "rope scaling: expected default or yarn");
  of_windows.rotary_dim = of_entries.rotary_dim = config.compressed.rope_dim;
  of_windows.theta = reader.number({"rope.freq_base", "rope_theta"}, 1.0f, 1e12f, 10000.0f);
  of_entries.theta = reader.number({"attention.compress_rope_freq_base", "compress_rope_theta"},
                                   1.0f, 1e12f, 160000.0f);
  // The magnitude that YaRN computes from its factor is not used; GGUF files do not say so.
  if (of_entries.scaling == RopeScaling::kYarn &&
      (of_entries.attention_factor == 0.0f || reader.gguf()))
    of_entries.attention_factor = 1.0f, of_entries.mscale_all_dim = 0.0f;
  config.ropes = {of_entries, of_entries, of_windows, of_windows};
  config.ropes[kRopeOfEntries + 1].backwards = config.ropes[kRopeOfWindows + 1].backwards = true;
  config.positions.rope_interleaved = true;
}

// Layers whose experts are those of the token: the first ones, or those of a list.
void read_hashed_layers(ConfigReader& reader, ModelConfig& config) {
  const json* kinds = reader.find({"", "mlp_layer_types"});
  const int n_first = reader.integer({"hash_layer_count", "num_hash_layers"}, 0, 1 << 20, 3);
  if (kinds != nullptr && (!kinds->is_array() || kinds->size() < config.layers.size()))
    return reader.fail(
        ErrorCode::kCorruptFile,
        fmt::format("mlp_layer_types: expected a list of {} layers", config.layers.size()));
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const json usual(static_cast<int>(i) < n_first ? "hash_moe" : "moe");
    const json& kind = kinds != nullptr ? (*kinds)[i] : usual;
    config.layers[i].hashed_experts = kind == "hash_moe";
    if (kind != "hash_moe" && kind != "moe")
      reader.fail(
          ErrorCode::kUnsupported,
          fmt::format("mlp_layer_types: expected hash_moe or moe, got {}",
                      kind.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 60)));
  }
}

// The limit of all gated products; GGUF files list those of routed and of shared experts by layer.
void read_limits(ConfigReader& reader, ModelConfig& config) {
  constexpr float kUsual = 10.0f, kLeast = 1e-3f, kMost = 1e6f;
  const float one =
      reader.gguf() ? kUsual : reader.number({"", "swiglu_limit"}, kLeast, kMost, kUsual);
  const auto limits = [&](Key key) {
    std::vector<float> list = reader.numbers(key, config.layers.size() + 64);
    if (list.empty()) list.assign(config.layers.size(), one);
    const bool fits = list.size() >= config.layers.size() &&
                      std::ranges::all_of(list, [](float x) { return x >= kLeast && x <= kMost; });
    if (!fits)
      reader.fail(ErrorCode::kCorruptFile,
                  fmt::format("{}: expected {} numbers of {} to {}", reader.name(key),
                              config.layers.size(), kLeast, kMost));
    list.resize(config.layers.size(), one);
    return list;
  };
  const std::vector<float> routed = limits({"swiglu_clamp_exp", ""}),
                           shared = limits({"swiglu_clamp_shexp", ""});
  for (size_t i = 0; i < config.layers.size(); ++i) {
    ActivationFunction capped(Activation::kCappedSilu);
    capped.parameters[0] = routed[i];
    config.layers[i].expert_activation = capped;
    capped.parameters[0] = shared[i];
    config.layers[i].activation = capped;
  }
}

void read_v4_experts(ConfigReader& reader, ModelConfig& config) {
  read_experts(reader, config);
  read_shared_experts(reader, config);
  read_hashed_layers(reader, config);
  ExpertRouting& routing = config.experts.routing;
  const std::string score = reader.text({"", "scoring_func"}, "sqrtsoftplus");
  constexpr int kGgufSigmoid = 2, kGgufSqrtSoftplus = 4;
  const int number = reader.integer({"expert_gating_func", ""}, 0, 16, kGgufSqrtSoftplus);
  if ((score != "sqrtsoftplus" && score != "sigmoid") ||
      (number != kGgufSigmoid && number != kGgufSqrtSoftplus))
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("{}: expected sqrtsoftplus or sigmoid, got {}",
                            reader.gguf() ? "expert_gating_func" : "scoring_func",
                            reader.gguf() ? fmt::format("{}", number) : score));
  const bool sigmoid = score == "sigmoid" || number == kGgufSigmoid;
  routing.score = sigmoid ? RouterScore::kSigmoid : RouterScore::kSqrtSoftplus;
  reader.expect_flag("norm_topk_prob", true);
  reader.expect_text("topk_method", "noaux_tc");
  routing.sum_eps = 1e-20f;
  routing.scale =
      reader.number({"expert_weights_scale", "routed_scaling_factor"}, -1e6f, 1e6f, 1.5f);
  if (!routing.normalize)
    reader.fail(ErrorCode::kUnsupported, "expert_weights_norm: expected true");
  const Key groups{"expert_group_count", "n_group"};
  if (reader.integer(groups, 0, kMaxExpertGroups, 1) > 1)
    reader.fail(ErrorCode::kUnsupported, fmt::format("{}: expected 1", reader.name(groups)));
  if (int64_t{config.vocab_size} * routing.n_active > INT32_MAX)
    reader.fail(
        ErrorCode::kUnsupported,
        fmt::format("num_experts_per_tok: expected at most {} experts of all {} tokens, got {}",
                    INT32_MAX, config.vocab_size, routing.n_active));
  config.experts.selection_bias = config.experts.bare_router = true;
  read_limits(reader, config);
}

void configure_deepseek4(ConfigReader& reader, ModelConfig& config) {
  if (config.ffn.activation.kind != Activation::kSilu)
    reader.fail(ErrorCode::kUnsupported, "hidden_act: expected silu");
  reader.expect_flag("attention_bias", false);
  reader.expect_flag("mlp_bias", false);
  for (int i = 0; i < config.n_layers; ++i) {
    if (config.n_kv_heads_of(i) != 1)
      reader.fail(ErrorCode::kUnsupported,
                  fmt::format("num_key_value_heads: expected 1, got {} in layer {}",
                              config.n_kv_heads_of(i), i));
  }
  CompressedConfig& c = config.compressed;
  const auto optional = [&](int usual) {
    return reader.gguf() ? std::nullopt : std::optional(usual);
  };
  c.query_rank =
      reader.integer({"attention.q_lora_rank", "q_lora_rank"}, 1, kMostV4Rank, optional(1024));
  c.rope_dim = reader.integer({"rope.dimension_count", "qk_rope_head_dim"}, 2, config.head_dim);
  c.n_groups =
      reader.integer({"attention.output_group_count", "o_groups"}, 1, config.n_heads, optional(8));
  c.out_rank =
      reader.integer({"attention.output_lora_rank", "o_lora_rank"}, 1, kMostV4Rank, optional(1024));
  c.saved_names = reader.has_tensor("model.embed_tokens.weight");
  if (config.n_heads % c.n_groups != 0)
    reader.fail(ErrorCode::kCorruptFile,
                fmt::format("o_groups: expected a divisor of the {} heads, got {}", config.n_heads,
                            c.n_groups));
  read_v4_ropes(reader, config);
  read_entries(reader, config);
  read_v4_experts(reader, config);
  config.mixed_streams.ends_by_shares = true;
  config.mixed_streams.count =
      reader.integer({"hyper_connection.count", "hc_mult"}, 1, kMaxMixedStreams, 4);
  config.mixed_streams.eps =
      reader.number({"hyper_connection.epsilon", "hc_eps"}, 0.0f, 1.0f, 1e-6f);
  config.mixed_streams.iterations = reader.integer(
      {"hyper_connection.sinkhorn_iterations", "hc_sinkhorn_iters"}, 1, kMostV4Iterations, 20);
}

void deepseek4_names(NameTable& names, const ModelConfig& config) {
  names.embedding = "embed", names.lm_head = "head";
  names[tensor::kAttnNorm] = "attn_norm", names[tensor::kFfnNorm] = "ffn_norm";
  names[tensor::kRouter] = "ffn.gate.weight", names[tensor::kSelectionBias] = "ffn.gate.bias";
  names[tensor::kTokenExperts] = "ffn.gate.tid2eid";
  names[tensor::kExpertGate] = "ffn.experts.{}.w1", names[tensor::kExpertUp] = "ffn.experts.{}.w3";
  names[tensor::kExpertDown] = "ffn.experts.{}.w2";
  names[tensor::kSharedGate] = "ffn.shared_experts.w1";
  names[tensor::kSharedUp] = "ffn.shared_experts.w3";
  names[tensor::kSharedDown] = "ffn.shared_experts.w2";
  if (!config.compressed.saved_names) return;
  names.embedding = "embed_tokens", names[tensor::kSharedKvNorm] = "attn.norm";
  names[tensor::kLastMixWeights] = "hc_head.hc_fn";
  names[tensor::kLastMixBase] = "hc_head.hc_base";
  names[tensor::kLastMixScale] = "hc_head.hc_scale";
}

constexpr MeaningfulKey kV4Keys[] = {{{"attention.compress_ratios", ""}, 0},
                                     {{"attention.output_group_count", "o_groups"}, 0}};

}  // namespace

extern constinit const Architecture kDeepseek4 = {
    .name = "deepseek4",
    .title = "DeepSeek V4 (Flash, Pro; compressed sparse attention)",
    .hf_types = {"deepseek_v4", "DeepseekV4ForCausalLM"},
    .configure = configure_deepseek4,
    .hf_names = deepseek4_names,
    .forward = mixed_streams_forward,
    .hf_defaults =
        R"({"rms_norm_eps": 1e-6, "head_dim": 512, "num_key_value_heads": 1, "qk_rope_head_dim": 64,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 6, "moe_intermediate_size": 2048,
    "tie_word_embeddings": false})",
    .hf_usual = usual_deepseek4,
    .own_keys = kV4Keys,
};

}  // namespace penstock
