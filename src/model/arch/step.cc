// Step 3.5 and the text model of Step 3.7: layers with a window have query heads and a rope of their
// own, heads have gates, experts behind the first layers, bounded products in the last ones.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

using nlohmann::json;

constexpr std::string_view kFull = "full_attention", kSliding = "sliding_attention";
constexpr Key kExpertBounds{"swiglu_clamp_exp", "swiglu_limits"};
constexpr Key kSharedBounds{"swiglu_clamp_shexp", "swiglu_limits_shared"};
constexpr size_t kMostLayers = 4096;

const json& member(const json& object, const char* name) {
  static const json kNothing;
  const auto found = object.is_object() ? object.find(name) : object.end();
  return object.is_object() && found != object.end() ? *found : kNothing;
}

// Entry of a list by layer, or the value of all layers.
const json& of_layer(const json& value, size_t layer) {
  static const json kNothing;
  if (!value.is_array()) return value;
  return layer < value.size() ? value[layer] : kNothing;
}

// One rope for each kind of layer, from lists by layer: as rope_parameters, with rope_scaling for
// layers with full attention.
void gather_ropes(const json& types, json& object) {
  json ropes = json::object();
  for (const std::string_view kind : {kFull, kSliding}) {
    const auto first = std::find(types.begin(), types.end(), kind);
    if (first == types.end()) continue;
    const auto layer = static_cast<size_t>(first - types.begin());
    json rope = {{"rope_type", "default"}, {"rope_theta", 10000.0}};
    for (const auto& [key, list] : {std::pair("rope_theta", "rope_theta"),
                                    std::pair("partial_rotary_factor", "partial_rotary_factors")}) {
      const json& value = of_layer(member(object, list), layer);
      if (!value.is_null()) rope[key] = value;
    }
    const json& scaling = member(object, "rope_scaling");
    if (kind == kFull && scaling.is_object()) rope.update(scaling);
    ropes[std::string(kind)] = std::move(rope);
  }
  object["rope_parameters"] = std::move(ropes);
  for (const char* key : {"rope_theta", "partial_rotary_factors", "rope_scaling"})
    object.erase(key);
}

// Numbers of heads by layer, where layers with a window have others.
void list_heads(const json& types, const char* key, const json& sliding, json& object) {
  const json usual = member(object, key);
  if (!sliding.is_number_integer() || sliding == usual) return;
  json heads = json::array();
  for (const json& type : types) heads.push_back(type == kSliding ? sliding : usual);
  object[key] = std::move(heads);
}

// Lists by layer may also cover the layers that predict further tokens.
void usual_step(json& object) {
  const json& layers = member(object, "num_hidden_layers");
  const json& next = member(object, "num_nextn_predict_layers");
  if (!layers.is_number_unsigned() || layers.get<size_t>() > kMostLayers) return;
  const auto n = layers.get<size_t>();
  const size_t further = next.is_number_unsigned() ? std::min(next.get<size_t>(), kMostLayers) : 0;
  for (const char* key : {"layer_types", "mlp_layer_types", "swiglu_limits", "swiglu_limits_shared",
                          "rope_theta", "partial_rotary_factors"}) {
    const auto list = object.find(key);
    if (list == object.end() || !list->is_array() || list->size() != n + further) continue;
    const auto behind = list->begin() + static_cast<std::ptrdiff_t>(n);
    json own(json::array());
    std::copy(behind, list->end(), std::back_inserter(own));
    list->erase(behind, list->end());
    object[fmt::format("next_token_{}", key)] = std::move(own);
  }
  if (member(object, "layer_types").is_null()) object["layer_types"] = json(n, kFull);
  const json types = object["layer_types"];
  if (!types.is_array() || types.size() != n) return;  // which read_windows() refuses
  if (member(object, "rope_parameters").is_null()) gather_ropes(types, object);
  const json& other = member(object, "attention_other_setting");
  const json& heads = member(object, "num_sliding_attention_heads");
  list_heads(types, "num_attention_heads",
             heads.is_null() ? member(other, "num_attention_heads") : heads, object);
  list_heads(types, "num_key_value_heads", member(other, "num_attention_groups"), object);
}

// Reads which layers have experts: those that mlp_layer_types calls sparse, else those whose indices
// moe_layers_enum holds (a list, or a text with commas), else all but the first three.
void read_sparse(ConfigReader& reader, ModelConfig& config) {
  if (reader.gguf() || reader.has({"", "mlp_layer_types"}) ||
      !reader.has({"", "moe_layers_enum"})) {
    const int n_dense = reader.integer({"leading_dense_block_count", ""}, 0, config.n_layers, 3);
    for (int i = 0; i < std::min(n_dense, config.n_layers); ++i)
      config.layers[static_cast<size_t>(i)].moe = false;
    return read_mlp_layer_types(reader, config);
  }
  for (LayerConfig& layer : config.layers) layer.moe = false;
  const json* found = reader.find({"", "moe_layers_enum"});
  const auto mark = [&](int64_t layer) {
    if (layer >= 0 && layer < config.n_layers) config.layers[static_cast<size_t>(layer)].moe = true;
  };
  const auto refuse = [&] {
    reader.fail(ErrorCode::kCorruptFile,
                "moe_layers_enum: expected indices of layers, as a list or with commas between");
  };
  if (found->is_array()) {
    for (const json& layer : *found) {
      if (!layer.is_number_integer()) return refuse();
      mark(layer.get<int64_t>());
    }
    return;
  }
  if (!found->is_string()) return refuse();
  std::string_view rest = found->get_ref<const std::string&>();
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    int64_t layer = 0;
    const size_t from = item.find_first_not_of(' ');
    if (from == std::string_view::npos) continue;
    const auto [end, error] = std::from_chars(item.data() + from, item.data() + item.size(), layer);
    const std::string_view tail(end, static_cast<size_t>(item.data() + item.size() - end));
    if (error != std::errc() || tail.find_first_not_of(' ') != std::string_view::npos)
      return refuse();
    mark(layer);
  }
}

float read_bound(ConfigReader& reader, const json& value, Key key) {
  const double bound = value.is_number() ? value.get<double>() : 0;
  if (bound >= 0 && bound <= 1e6) return static_cast<float>(bound);
  reader.fail(ErrorCode::kCorruptFile,
              fmt::format("{}: expected numbers in [0, 1e6], got {}", reader.name(key), bound));
  return 0;
}

// Returns the bounds by layer; 0: none.
std::vector<float> read_bounds(ConfigReader& reader, const ModelConfig& config, Key key) {
  std::vector<float> bounds(config.layers.size());
  const json* found = reader.find(key);
  if (found == nullptr) return bounds;
  for (size_t i = 0; i < bounds.size(); ++i) {
    const json& bound = of_layer(*found, i);
    const bool listed = !found->is_array() || i < found->size();
    if (!listed || (!bound.is_null() && !bound.is_number())) {
      reader.fail(ErrorCode::kCorruptFile,
                  fmt::format("{}: expected {} numbers", reader.name(key), bounds.size()));
      return bounds;
    }
    bounds[i] = read_bound(reader, bound, key);
  }
  return bounds;
}

ActivationFunction bounded(float bound) {
  ActivationFunction f(bound > 0 ? Activation::kBoundedSilu : Activation::kSilu);
  f.parameters[0] = bound;
  return f;
}

// Layers that predict further tokens are like the last layer of their kind, which is one with a
// window where files do not say, but have no experts. They read streams without norms.
void read_next_token_layers(ConfigReader& reader, ModelConfig& config) {
  const size_t before = reader.gguf() ? config.layers.size() : 0;
  const auto own = [&](Key key, int i) -> const json& {
    static const json kNothing;
    const json* list = reader.find(key);
    const size_t at = before + static_cast<size_t>(i);
    return list != nullptr && list->is_array() && at < list->size() ? (*list)[at] : kNothing;
  };
  config.next_token_streams = true;
  const int n = std::clamp(config.n_next_token_layers, 1, kMostNextTokenLayers);
  for (int i = 0; i < n; ++i) {
    const json& type = own({"attention.sliding_window_pattern", "next_token_layer_types"}, i);
    const bool full = type == kFull || type == false;
    const auto like =
        std::find_if(config.layers.rbegin(), config.layers.rend(),
                     [&](const LayerConfig& layer) { return (layer.window == 0) == full; });
    const LayerConfig& of = like != config.layers.rend() ? *like : config.layers.back();
    LayerConfig& layer = config.next_token_layers.emplace_back(of);
    const Key bounds{kSharedBounds.gguf, "next_token_swiglu_limits_shared"};
    layer.activation = bounded(read_bound(reader, own(bounds, i), bounds));
    layer.expert_activation.reset();
    layer.moe = false;
  }
}

void check_step(ConfigReader& reader, const ModelConfig& config) {
  for (const std::string_view key : {"use_qk_norm", "use_head_wise_attn_gate", "use_moe",
                                     "use_moe_router_bias", "zero_centered"})
    reader.expect_flag(key, true);
  for (const std::string_view key : {"sink", "use_bidirectional_attention"})
    reader.expect_flag(key, false);
  const json* gating = reader.find({"", "gating"});
  if (gating != nullptr && *gating != true && *gating != "per-head")
    reader.fail(ErrorCode::kUnsupported, "gating: expected true or \"per-head\"");
  reader.expect_text("moe_router_activation", "sigmoid");
  const json* other = reader.find({"", "attention_other_setting"});
  for (const char* key : {"head_dim", "true_head_dim"}) {
    if (other == nullptr) break;
    const json& size = member(*other, key);
    if (!size.is_null() && size != config.head_dim)
      reader.fail(ErrorCode::kUnsupported,
                  fmt::format("attention_other_setting: {}: expected {}, as in the other layers",
                              key, config.head_dim));
  }
}

void configure_step(ConfigReader& reader, ModelConfig& config) {
  check_step(reader, config);
  config.attention.qk_norm = QkNorm::kHead;
  config.attention.head_gates = true;
  config.norm.offset = reader.gguf() ? 0.0f : 1.0f;
  const float scale = reader.number({"", "query_pre_attn_scalar"}, 1e-3f, 1e9f,
                                    static_cast<float>(config.head_dim));
  config.attention.scale = 1.0f / std::sqrt(scale);
  read_windows(reader, config, 0);
  const int whole = config.ropes[0].rotary_dim;
  read_local_rope(reader, config);
  if (reader.gguf()) {
    config.ropes[0].rotary_dim = whole / 2;
    config.ropes[1].rotary_dim =
        reader.integer({"rope.dimension_count_swa", ""}, 2, config.head_dim, whole);
    config.ropes[1].tensor_factors = false;
  }
  read_experts(reader, config);
  read_sparse(reader, config);
  read_sigmoid_routing(reader, config);
  ExpertRouting& routing = config.experts.routing;  // whose keys of config.json have other names
  routing.normalize = reader.flag({"expert_weights_norm", "norm_expert_weight"}, true);
  routing.scale =
      reader.number({"expert_weights_scale", "moe_router_scaling_factor"}, -1e6f, 1e6f, 1.0f);
  config.experts.shared_dim =
      reader.integer({"expert_shared_feed_forward_length", "share_expert_dim"}, 1, 1 << 20,
                     config.experts.ffn_dim);
  const std::vector<float> of_experts = read_bounds(reader, config, kExpertBounds),
                           of_shared = read_bounds(reader, config, kSharedBounds);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    config.layers[i].activation = bounded(of_shared[i]);
    if (of_experts[i] != of_shared[i]) config.layers[i].expert_activation = bounded(of_experts[i]);
  }
  read_next_token_layers(reader, config);
}

void describe_step(ConfigWriter& writer, const ModelConfig& config) {
  std::vector<int> heads, kv_heads;
  std::vector<std::string> types;
  std::vector<float> of_experts, of_shared;
  for (int i = 0; i < config.n_layers; ++i) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    heads.push_back(config.n_heads_of(i));
    kv_heads.push_back(config.n_kv_heads_of(i));
    types.emplace_back(layer.window > 0 ? kSliding : kFull);
    of_shared.push_back(layer.activation.parameters[0]);
    of_experts.push_back(layer.expert_activation.value_or(layer.activation).parameters[0]);
  }
  const RopeConfig &full = config.ropes[0], &local = config.ropes[1];
  writer.set({"attention.head_count", "num_attention_heads"}, heads);
  writer.set({"attention.head_count_kv", "num_key_value_heads"}, kv_heads);
  writer.set({"", "layer_types"}, types);
  writer.set({"leading_dense_block_count", ""}, leading_dense_layers(config));
  writer.set({"expert_gating_func", ""}, 2);
  writer.set({"expert_weights_norm", "norm_expert_weight"}, config.experts.routing.normalize);
  writer.set({"expert_weights_scale", "moe_router_scaling_factor"}, config.experts.routing.scale);
  writer.set({"expert_shared_feed_forward_length", "share_expert_dim"}, config.experts.shared_dim);
  writer.set(kExpertBounds, of_experts);
  writer.set(kSharedBounds, of_shared);
  describe_mlp_layer_types(writer, config);
  describe_local_rope(writer, config);
  // Files count all dimensions of which layers without a window rotate half.
  writer.set({"rope.dimension_count", ""}, 2 * full.rotary_dim);
  writer.set({"rope.dimension_count_swa", ""}, local.rotary_dim);
  describe_biases(writer, config);
}

void step_names(NameTable& names, const ModelConfig&) {
  names[tensor::kRouter] = "moe.gate";
  names[tensor::kSelectionBias] = "moe.router_bias";
  names[tensor::kExpertGate] = "moe.gate_proj";
  names[tensor::kExpertUp] = "moe.up_proj";
  names[tensor::kExpertDown] = "moe.down_proj";
  names[tensor::kSharedGate] = "share_expert.gate_proj";
  names[tensor::kSharedUp] = "share_expert.up_proj";
  names[tensor::kSharedDown] = "share_expert.down_proj";
}

}  // namespace

extern constinit const Architecture kStep35 = {
    .name = "step35",
    .title = "Step 3.5, Step 3.7 (text)",
    .hf_types = {"step3p5", "step3p7", "Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"},
    .configure = configure_step,
    .hf_names = step_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"head_dim": 128, "num_key_value_heads": 8, "num_experts_per_tok": 8,
    "moe_intermediate_size": 1280, "share_expert_dim": 1280})",
    .hf_aliases =
        R"({"num_attention_groups": "num_key_value_heads", "moe_top_k": "num_experts_per_tok",
    "share_expert_dims": "share_expert_dim"})",
    .hf_usual = usual_step,
    .describe = describe_step,
    .partial_rope = true,
    .hf_norms_less_one = true,
    .heads_by_layer = true,
};

}  // namespace penstock
