// Llama whose layers may lack attention or the feed-forward and have their own numbers of KV heads
// and widths: Llama Nemotron (found by search for the architecture), DeciLM.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"
#include "model/forward/decoder.h"

namespace penstock {

namespace {

using nlohmann::json;

bool says(const json& block, const char* key) {
  const auto found = block.find(key);
  return found != block.end() && *found == true;
}

// Whether a setting is neither null nor false.
bool gives(const json& block, const char* key) {
  const auto found = block.find(key);
  return found != block.end() && !found->is_null() && *found != false;
}

// The next multiple of 256 of two thirds of the width, as the published code rounds.
json deci_width(const json& multiplier, const json& dim) {
  constexpr int64_t kUnit = 256;
  if (multiplier.is_null()) return 0;
  if (!multiplier.is_number() || !dim.is_number_integer()) return multiplier;
  const double wide = 2.0 * std::clamp(multiplier.get<double>(), 0.0, 1e4) *
                      static_cast<double>(std::clamp<int64_t>(dim.get<int64_t>(), 0, 1 << 20)) /
                      3.0;
  return (static_cast<int64_t>(wide) + kUnit - 1) / kUnit * kUnit;
}

// Writes block_configs as lists by layer: of KV heads, of widths, both 0 where a layer lacks the
// part.
void usual_deci(json& object) {
  const auto blocks = object.find("block_configs");
  if (blocks == object.end() || !blocks->is_array()) return;
  const json dim = object.value("hidden_size", json()),
             heads = object.value("num_attention_heads", json());
  json kv_heads = json::array(), widths = json::array();
  bool linear = false, sparse = false;
  for (const json& block : *blocks) {
    const json attention = block.is_object() ? block.value("attention", json()) : json(),
               ffn = block.is_object() ? block.value("ffn", json()) : json();
    if (!attention.is_object() || !ffn.is_object()) return;
    linear |= says(attention, "replace_with_linear") || says(ffn, "replace_with_linear");
    for (const char* key : {"window_length", "num_sink_tokens", "unshifted_sink", "sparsify",
                            "use_prefill_window_in_sink_attention"})
      sparse |= gives(attention, key);
    sparse |= gives(ffn, "sparsify");
    const json group = attention.value("n_heads_in_group", json());
    const bool attends = !says(attention, "no_op") && group.is_number_integer() && group > 0 &&
                         heads.is_number_integer();
    kv_heads.push_back(attends ? json(heads.get<int64_t>() / group.get<int64_t>()) : json(0));
    widths.push_back(says(ffn, "no_op") ? json(0) : deci_width(ffn.value("ffn_mult", json()), dim));
  }
  object["num_key_value_heads"] = kv_heads, object["intermediate_size"] = widths;
  object["replace_with_linear"] = linear, object["sparsify"] = sparse;
}

// Which layers have a positive number in a list by layer; all of them if there is no list.
std::vector<bool> positive(ConfigReader& reader, Key key, size_t n_layers) {
  const json* list = reader.find(key);
  std::vector<bool> result(n_layers, true);
  if (list == nullptr || !list->is_array()) return result;
  const std::vector<int> numbers = reader.integers(key, 0, 1 << 20);
  for (size_t i = 0; i < std::min(n_layers, numbers.size()); ++i) result[i] = numbers[i] > 0;
  return result;
}

void configure_deci(ConfigReader& reader, ModelConfig& config) {
  set_rope_pairs(reader, config);
  if (reader.flag({"", "replace_with_linear"}, false))
    return reader.fail(ErrorCode::kUnsupported,
                       "block_configs: replace_with_linear: expected false in every layer");
  if (reader.flag({"", "sparsify"}, false))
    return reader.fail(ErrorCode::kUnsupported,
                       "block_configs: window_length, num_sink_tokens, unshifted_sink, sparsify: "
                       "expected null or false in every layer");
  const size_t n = config.layers.size();
  const std::vector<bool> attends =
      positive(reader, {"attention.head_count_kv", "num_key_value_heads"}, n);
  const std::vector<bool> feeds = positive(reader, {"feed_forward_length", "intermediate_size"}, n);
  const std::vector<bool> heads = positive(reader, {"attention.head_count", ""}, n);
  for (size_t i = 0; i < n; ++i) {
    config.layers[i].attention = attends[i], config.layers[i].feed_forward = feeds[i];
    if (!attends[i]) config.layers[i].rope = -1;
    if (attends[i] != heads[i] && reader.gguf())
      reader.fail(ErrorCode::kUnsupported,
                  fmt::format("attention.head_count: layer {} has heads without KV heads, which "
                              "stands for a linear layer: that is not supported",
                              i));
  }
}

json listed(const ModelConfig& config, bool LayerConfig::* has,
            int (ModelConfig::*size)(int) const) {
  json list = json::array();
  for (int i = 0; i < config.n_layers; ++i) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    list.push_back(layer.*has ? (config.*size)(i) : 0);
  }
  return list;
}

void describe_deci(ConfigWriter& writer, const ModelConfig& config) {
  const json kv = listed(config, &LayerConfig::attention, &ModelConfig::n_kv_heads_of);
  writer.set({"attention.head_count_kv", "num_key_value_heads"}, kv);
  writer.set({"attention.head_count", ""},
             listed(config, &LayerConfig::attention, &ModelConfig::n_heads_of));
  writer.set({"feed_forward_length", "intermediate_size"},
             listed(config, &LayerConfig::feed_forward, &ModelConfig::ffn_dim_of));
  writer.erase({"", "block_configs"});
}

}  // namespace

// Layers compute what they have.
StepOutputs deci_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                         KvCache& cache, Ops& ops, const ForwardOptions& options) {
  const auto [first_layer, end_layer] = layers_of(config, weights, options);
  const Tensor x = options.stream != nullptr
                       ? *options.stream
                       : ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream);
  const Tensor normed = ops.new_tensor(shape.tokens, config.model_dim);
  DecoderParts decoder(config, weights, shape, cache, ops);
  begin_stream(config, weights, shape, x, ops, options);
  for (int i = first_layer; i < end_layer; ++i) {
    const LayerWeights& layer = weights.layers[static_cast<size_t>(i)];
    const auto input = [&](const NormWeights& norm) {
      const NormedInput h{x, norm_params(config, norm), normed};
      ops.prepare(h);
      return h;
    };
    if (config.layers[static_cast<size_t>(i)].attention)
      decoder.attention(i, input(layer.attn_norm), x, nullptr);
    if (config.has_feed_forward(i)) decoder.feed_forward(i, input(layer.ffn_norm), x, nullptr);
  }
  if (options.stream != nullptr) return {};
  return output_head(config, weights, x, shape, ops, options);
}

extern constinit const Architecture kDeci = {
    .name = "deci",
    .title = "Llama Nemotron 49B, 253B (`nemotron-nas`), DeciLM",
    .hf_types = {"nemotron-nas", "DeciLMForCausalLM", "deci"},
    .configure = configure_deci,
    .forward = deci_forward,
    .hf_defaults = R"({"tie_word_embeddings": false, "rms_norm_eps": 1e-5})",
    .hf_aliases = R"({"num_key_value_heads_per_layer": "num_key_value_heads"})",
    .hf_usual = usual_deci,
    .describe = describe_deci,
    .gguf_pairs = true,
    .zero_sizes = true,
};

}  // namespace penstock
