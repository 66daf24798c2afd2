// MiMo V2: values of heads are narrower than keys; layers with a window have KV heads, a rope and
// sinks of their own; experts behind the first layer.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

using nlohmann::json;

constexpr std::string_view kFull = "full_attention", kSliding = "sliding_attention";
constexpr Key kValueDim{"attention.value_length", "v_head_dim"};
constexpr Key kValueScale{"attention.value_scale", "attention_value_scale"};
constexpr Key kSlidingSinks{"", "add_swa_attention_sink_bias"},
    kFullSinks{"", "add_full_attention_sink_bias"};

const json& member(const json& object, const char* name) {
  static const json kNothing;
  const auto found = object.find(name);
  return found != object.end() ? *found : kNothing;
}

// Rewrites a list of ones and zeros by layer as a list of two names; another number becomes a name
// that is not known, which is refused when it is read.
void rename_pattern(const char* from, const char* to, std::string_view zero, std::string_view one,
                    json& object) {
  const json pattern = member(object, from);
  if (!pattern.is_array()) return;
  json names = json::array();
  for (const json& item : pattern)
    names.push_back(item == 0   ? json(zero)
                    : item == 1 ? json(one)
                                : json(item.dump(-1, ' ', true, json::error_handler_t::replace)));
  object[to] = std::move(names);
  object.erase(from);
}

// Published files have keys of their own, and count the tokens before the query in
// sliding_window_size. transformers doubles the KV heads of layers with a window.
void usual_mimo(json& object) {
  rename_pattern("hybrid_layer_pattern", "layer_types", kFull, kSliding, object);
  rename_pattern("moe_layer_freq", "mlp_layer_types", "dense", "sparse", object);
  const json& size = member(object, "sliding_window_size");
  if (size.is_number_unsigned() && size.get<uint64_t>() < 1u << 30)
    object["sliding_window"] = size.get<uint64_t>() + 1;
  object.erase("sliding_window_size");
  object.erase("attention_chunk_size");  // of the training; no layer attends by chunks
  if (member(object, "rope_parameters").is_null()) {
    const auto rope = [&object](const char* theta, double usual) {
      const json& own = member(object, theta);
      const json& share = member(object, "partial_rotary_factor");
      return json{{"rope_type", "default"},
                  {"rope_theta", own.is_null() ? json(usual) : own},
                  {"partial_rotary_factor", share.is_null() ? json(0.334) : share}};
    };
    object["rope_parameters"] = {{kFull, rope("rope_theta", 5e6)},
                                 {kSliding, rope("swa_rope_theta", 1e4)}};
  }
  const json kv_heads = member(object, "num_key_value_heads"),
             types = member(object, "layer_types");
  if (!kv_heads.is_number_unsigned() || kv_heads.get<uint64_t>() > 1024 || !types.is_array())
    return;
  const json& own = member(object, "swa_num_key_value_heads");
  const json sliding = own.is_null() ? json(2 * kv_heads.get<uint64_t>()) : own;
  json heads = json::array();
  for (const json& type : types) heads.push_back(type == kSliding ? sliding : kv_heads);
  object["num_key_value_heads"] = std::move(heads);
}

// Refuses what differs between the kinds of layers in another way than published models do.
void check_mimo(ConfigReader& reader, const ModelConfig& config, int value_dim) {
  const auto expect = [&reader](std::string_view key, int wanted) {
    if (const int got = reader.integer({"", key}, 0, 1 << 20, wanted); got != wanted)
      reader.fail(
          ErrorCode::kUnsupported,
          fmt::format("{}: expected {}, as in layers without a window, got {}", key, wanted, got));
  };
  expect("swa_num_attention_heads", config.n_heads);
  expect("swa_head_dim", config.head_dim);
  expect("swa_v_head_dim", value_dim);
  if (reader.integer({"", "n_shared_experts"}, 0, 1 << 20, 0) != 0)
    reader.fail(ErrorCode::kUnsupported, "n_shared_experts: expected none");
  reader.expect_text("scoring_func", "sigmoid");
  reader.expect_text("topk_method", "noaux_tc");
  if (reader.has_tensor("model.layers.0.self_attn.qkv_proj.weight"))
    reader.fail(
        ErrorCode::kUnsupported,
        "tensor model.layers.0.self_attn.qkv_proj.weight: queries, keys and values that lie "
        "together by the ranks of a cluster are not supported in directories; expected "
        "q_proj, k_proj and v_proj");
}

// GGUF files show experts and sinks by their tensors. Layers of one kind have sinks if one has.
void read_mimo_layers(ConfigReader& reader, ModelConfig& config) {
  config.attention.sinks = true;
  bool sliding = reader.flag(kSlidingSinks, !reader.gguf()), full = reader.flag(kFullSinks, false);
  for (int i = 0; i < config.n_layers; ++i) {
    LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    const auto has = [&](const char* part) {
      return reader.has_tensor(fmt::format("blk.{}.{}.weight", i, part));
    };
    (layer.window > 0 ? sliding : full) |= reader.gguf() && has("attn_sinks");
    layer.moe = reader.gguf() ? has("ffn_gate_inp") : i > 0;
  }
  for (LayerConfig& layer : config.layers) layer.has_sinks = layer.window > 0 ? sliding : full;
  read_mlp_layer_types(reader, config);
}

void configure_mimo(ConfigReader& reader, ModelConfig& config) {
  const int value_dim = reader.integer(kValueDim, 1, config.head_dim, config.head_dim);
  if (!reader.gguf()) check_mimo(reader, config, value_dim);
  if (value_dim < config.head_dim) config.attention.value_dim = value_dim;
  // A factor of the values is one of what attention adds.
  config.attention.out_factor = reader.number(kValueScale, -1e6f, 1e6f, 1.0f);
  read_windows(reader, config, 0);
  read_local_rope(reader, config);
  read_experts(reader, config);
  read_mimo_layers(reader, config);
  read_sigmoid_routing(reader, config);
}

void describe_mimo(ConfigWriter& writer, const ModelConfig& config) {
  std::vector<int> kv_heads;
  std::vector<bool> windows;
  json types = json::array();
  int full_heads = 0, sliding_heads = 0;
  bool full_sinks = false, sliding_sinks = false;
  for (int i = 0; i < config.n_layers; ++i) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    const bool slides = layer.window > 0;
    kv_heads.push_back(config.n_kv_heads_of(i));
    windows.push_back(slides);
    types.push_back(slides ? kSliding : kFull);
    (slides ? sliding_heads : full_heads) = kv_heads.back();
    (slides ? sliding_sinks : full_sinks) = layer.has_sinks;
  }
  const int value_dim = config.value_dim_of(0);
  writer.set({"attention.head_count_kv", ""}, kv_heads);
  writer.set({"attention.sliding_window_pattern", ""}, windows);
  writer.set({"", "layer_types"}, types);
  writer.set({"", "num_key_value_heads"}, full_heads > 0 ? full_heads : sliding_heads);
  writer.set({"", "swa_num_key_value_heads"}, sliding_heads > 0 ? sliding_heads : full_heads);
  writer.set(kFullSinks, full_sinks);
  writer.set(kSlidingSinks, sliding_sinks);
  writer.set({"attention.key_length", ""}, config.head_dim);
  writer.set(kValueDim, value_dim);
  writer.set(kValueScale, config.attention.out_factor);
  writer.erase({"", "num_experts"});
  writer.set({"", "n_routed_experts"}, config.experts.count);
  describe_sigmoid_routing(writer, config);
  describe_mlp_layer_types(writer, config);
  describe_local_rope(writer, config);
  describe_biases(writer, config);
}

void mimo_names(NameTable& names, const ModelConfig&) {
  names[tensor::kSinks] = "self_attn.attention_sink_bias";
}

}  // namespace

extern constinit const Architecture kMiMo2 = {
    .name = "mimo2",
    .title = "MiMo V2 Flash",
    .hf_types = {"mimo_v2_flash", "MiMoV2FlashForCausalLM"},
    .configure = configure_mimo,
    .hf_names = mimo_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"head_dim": 192, "v_head_dim": 128, "num_key_value_heads": 4,
    "rms_norm_eps": 1e-5, "sliding_window": 129, "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048, "attention_value_scale": 0.707})",
    .hf_aliases = R"({"layernorm_epsilon": "rms_norm_eps"})",
    .hf_usual = usual_mimo,
    .describe = describe_mimo,
    .partial_rope = true,
    .narrow_values = true,
};

}  // namespace penstock
