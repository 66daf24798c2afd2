// HRM-Text: two stacks of layers that are computed in turn, several times: the low one reads the sum
// of both states and replaces its own, then the high one does. A layer has a cache for each time.
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "model/arch/archs.h"

namespace penstock {

namespace {

using nlohmann::json;

// Layers of a stack, and how often the low one is computed before the high one. Both are computed
// n_layers / (layers * (low + 1)) times.
struct HrmShape {
  int layers = 0, low = 0;
  int pass_of(int layer) const { return layer / layers; }
  bool is_high(int layer) const { return pass_of(layer) % (low + 1) == low; }
  // Index of the layer that has the weights.
  int first_of(int layer) const { return (is_high(layer) ? low * layers : 0) + layer % layers; }
};

HrmShape shape_of(const ModelConfig& config) {
  return {config.residual.stack_layers, config.residual.low_passes};
}

int small_count(const json& object, const char* key, int fallback) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return fallback;
  return found->is_number_integer() && *found > 0 && *found <= 1024 ? found->get<int>() : 0;
}

// num_hidden_layers counts each time that a layer is computed if the file also has the layers of a
// stack; otherwise it is these. Every head has keys and values of its own.
void usual_hrm(json& object) {
  const int high = small_count(object, "H_cycles", 2), low = small_count(object, "L_cycles", 3);
  const int layers =
      small_count(object, "num_layers_per_stack", small_count(object, "num_hidden_layers", 16));
  object["num_layers_per_stack"] = layers, object["H_cycles"] = high, object["L_cycles"] = low;
  if (int64_t{layers} * high * (low + 1) <= 1024)
    object["num_hidden_layers"] = layers * high * (low + 1);
  const auto spread = object.find("initializer_range");
  const bool known = spread != object.end() && spread->is_number() && *spread > 0;
  const auto scale = object.find("embedding_scale");
  if (scale == object.end() || scale->is_null())
    object["embedding_scale"] = 1.0 / (known ? spread->get<double>() : 0.02);
}

void configure_hrm(ConfigReader& reader, ModelConfig& config) {
  if (reader.gguf())
    return reader.fail(ErrorCode::kUnsupported,
                       "GGUF files of this architecture are not known: expected a directory");
  if (config.n_kv_heads != config.n_heads)
    reader.fail(ErrorCode::kUnsupported, "num_key_value_heads: expected as many as heads");
  // Published files have no names for biases.
  for (const char* key : {"attention_bias", "mlp_bias"}) reader.expect_flag(key, false);
  const HrmShape shape{reader.integer({"", "num_layers_per_stack"}, 1, 1024),
                       reader.integer({"", "L_cycles"}, 1, 1024)};
  const int high = reader.integer({"", "H_cycles"}, 1, 1024);
  if (!reader.status()) return;
  if (int64_t{shape.layers} * high * (shape.low + 1) != config.n_layers)
    return reader.fail(
        ErrorCode::kUnsupported,
        fmt::format("num_hidden_layers: expected at most 1024, {} layers in {} times "
                    "{} passes",
                    shape.layers, high, shape.low + 1));
  config.embedding.scale = reader.number({"", "embedding_scale"}, -1e9f, 1e9f);
  config.attention.value_gates = config.attention.joins_gates = true;
  config.norm.bare = config.residual.recalls = true;
  config.residual.stack_layers = shape.layers, config.residual.low_passes = shape.low;
  for (int i = 0; i < config.n_layers; ++i)
    if (const int of = shape.first_of(i); of != i)
      config.layers[static_cast<size_t>(i)].weights_layer = of;
}

void hrm_names(NameTable& names, const ModelConfig& config) {
  const HrmShape shape = shape_of(config);
  for (int i = 0; i < config.n_layers; ++i)
    names.layer_prefixes.push_back(fmt::format("{}_module.layers.{}.", shape.is_high(i) ? 'H' : 'L',
                                               i % std::max(shape.layers, 1)));
  names[tensor::kFirstState] = "z_L_init";
  names[tensor::kGatedQkv] = "attn.gqkv_proj", names[tensor::kO] = "attn.o_proj";
  names[tensor::kGates] = "attn.gate_proj";
}

}  // namespace

StepOutputs hrm_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                        KvCache& cache, Ops& ops, const ForwardOptions& options) {
  PENSTOCK_CHECK(options.stream == nullptr);  // LayerRunner refuses models that recall states
  const HrmShape loop = shape_of(config);
  const auto [first_layer, end_layer] = layers_of(config, weights, options);
  const auto stream = [&] {
    return ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream);
  };
  const Tensor x = stream(), low = stream(), high = stream();
  const Tensor normed = ops.new_tensor(shape.tokens, config.model_dim);
  const NormParams bare{nullptr, nullptr, config.norm.eps};
  DecoderParts decoder(config, weights, shape, cache, ops);
  begin_stream(config, weights, shape, high, ops, options);
  // A layer norm of zeros is its bias.
  ops.clear(x);
  ops.norm(x, {nullptr, weights.first_state.get(), 1.0f, true}, low);
  const NormedInput h{x, bare, normed};
  for (int i = first_layer; i < end_layer; ++i) {
    if (i % loop.layers == 0) {
      ops.copy(low, x);
      ops.add(x, high, 1.0f);
    }
    ops.prepare(h);
    decoder.attention(i, h, x, &h);
    decoder.feed_forward(i, h, x, nullptr);
    // The head norms what the last pass gives.
    if ((i + 1) % loop.layers == 0 && i + 1 < end_layer)
      ops.norm(x, bare, loop.is_high(i) ? high : low);
  }
  return output_head(config, weights, x, shape, ops, options);
}

extern constinit const Architecture kHrmText = {
    .name = "hrm-text",
    .title = "HRM-Text",
    .hf_types = {"hrm_text", "HrmTextForCausalLM"},
    .directories_only = true,
    .configure = configure_hrm,
    .hf_names = hrm_names,
    .forward = hrm_forward,
    .hf_defaults = R"({"head_dim": 128, "tie_word_embeddings": false})",
    .hf_usual = usual_hrm,
};

}  // namespace penstock
