// Dory: layers on the unit sphere (blocks/sphere.h), of which those in the middle are computed several
// times, with a cache for each time.
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "model/arch/archs.h"

namespace penstock {

namespace {

using nlohmann::json;

constexpr const char* kDoryCounts[] = {"n_input_layers", "n_recurrent_layers", "n_output_layers"};

int dory_count(const json& object, const char* key, int fallback) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return fallback;
  return found->is_number_integer() && *found >= 0 && *found <= 1024 ? found->get<int>() : -1;
}

// The layer of the file that is computed as layer i.
int dory_file_layer(const SphereConfig& sphere, int i) {
  const int behind = i - sphere.n_before, all = sphere.n_looped * sphere.loops;
  if (behind < 0) return i;
  return behind < all ? sphere.n_before + behind % sphere.n_looped
                      : sphere.n_before + sphere.n_looped + behind - all;
}

// Kinds of blocks by the letters of hybrid_layer_pattern.
json dory_kinds(const json& object) {
  const json pattern = object.value("hybrid_layer_pattern", json());
  json kinds = object.value("layer_types", json());
  if (!kinds.is_null() || !pattern.is_string()) return kinds;
  kinds = json::array();
  for (const char letter : pattern.get_ref<const std::string&>())
    kinds.push_back(letter == 'S'   ? "sliding_attention"
                    : letter == '*' ? "full_attention"
                    : letter == '-' ? "mlp"
                                    : "unknown");
  return kinds;
}

// Rotations of both kinds: rope_theta, or rope_theta_2 where rope_profile_layers says 2 for a kind's
// layers. A kind that has both is refused by its rope_type.
json dory_ropes(const json& object, const json& kinds) {
  const json profiles = object.value("rope_profile_layers", json());
  json ropes;
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (!kinds[i].is_string() || kinds[i] == "mlp") continue;
    const auto& kind = kinds[i].get_ref<const std::string&>();
    json theta = kind == "full_attention" ? 1e7 : 1e4;
    if (profiles.is_array() && i < profiles.size())
      theta = object.value(profiles[i] == 2 ? "rope_theta_2" : "rope_theta", theta);
    const json rope = {{"rope_type", "default"}, {"rope_theta", theta}};
    if (!ropes.contains(kind)) ropes[kind] = rope;
    if (ropes[kind] != rope) ropes[kind]["rope_type"] = "of several rope_profile_layers";
  }
  return ropes;
}

// Published files count attention and feed-forwards as layers of their own. Here a layer is both, and
// is counted each time that it is computed.
void usual_dory(json& object) {
  int divisor = 1;
  json kinds = dory_kinds(object);
  if (object.value("rope_parameters", json()).is_null() && kinds.is_array())
    object["rope_parameters"] = dory_ropes(object, kinds);
  if (kinds.is_array() && std::ranges::find(kinds, json("mlp")) != kinds.end()) {
    divisor = 2;
    json own = json::array();
    for (size_t i = 0; i < kinds.size(); i += 2) own.push_back(kinds[i]);
    kinds = own;
  }
  const int layers = dory_count(object, "num_hidden_layers", 36 * divisor) / divisor;
  int counts[3] = {8, 0, 8};
  for (const int part : {0, 2})
    counts[part] = dory_count(object, kDoryCounts[part], counts[part] * divisor) / divisor;
  counts[1] =
      dory_count(object, kDoryCounts[1], std::max(0, layers - counts[0] - counts[2]) * divisor) /
      divisor;
  for (int part = 0; part < 3; ++part) object[kDoryCounts[part]] = counts[part];
  if (counts[0] + counts[1] + counts[2] != layers || layers < 1) return;  // refused below
  if (!kinds.is_array()) {
    kinds = json::array();
    for (int i = 0; i < layers; ++i)
      kinds.push_back((i + 1) % 4 == 0 ? "full_attention" : "sliding_attention");
  }
  const int loops = dory_count(object, "n_recurrent_loops", 2);
  if (loops < 1 || kinds.size() != static_cast<size_t>(layers) ||
      layers + int64_t{counts[1]} * (loops - 1) > 1024)
    return;
  const SphereConfig sphere{.n_before = counts[0], .n_looped = counts[1], .loops = loops};
  json computed = json::array();
  const int all = layers + counts[1] * (loops - 1);
  for (int i = 0; i < all; ++i)
    computed.push_back(kinds[static_cast<size_t>(dory_file_layer(sphere, i))]);
  object["layer_types"] = computed, object["num_hidden_layers"] = all;
  if (object.value("rope_parameters", json()).is_null())
    object["rope_parameters"] = {
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}},
        {"full_attention", {{"rope_type", "default"}, {"rope_theta", 1e7}}}};
}

void configure_dory(ConfigReader& reader, ModelConfig& config) {
  if (reader.gguf())
    return reader.fail(ErrorCode::kUnsupported,
                       "GGUF files of this architecture are not known: expected a directory");
  if (config.ffn.activation.kind != Activation::kSilu)
    reader.fail(ErrorCode::kUnsupported, "hidden_act: expected silu");
  for (const char* key : {"attention_bias", "mlp_bias", "ngpt_enable_final_norm"})
    reader.expect_flag(key, false);
  for (const char* key : {"ngpt", "fngpt", "attention_output_gate"}) reader.expect_flag(key, true);
  reader.expect_text("initial_state", "input_copy");
  reader.expect_text("input_transform", "residual");
  reader.expect_text("output_transform", "replace");
  // In the other mode what a pass sees of a prompt depends on where the prompt is cut.
  reader.expect_text("recurrent_kv_cache_mode", "per_loop");
  SphereConfig& sphere = config.sphere;
  sphere.stored = reader.number({"", "initializer_range"}, 1e-9f, 1.0f, 0.0177f);
  sphere.rate = reader.number({"", "ngpt_alpha_init"}, -1e6f, 1e6f, 0.05f);
  sphere.n_before = reader.integer({"", kDoryCounts[0]}, 0, 1024, 8);
  sphere.n_looped = reader.integer({"", kDoryCounts[1]}, 1, 1024, 20);
  sphere.loops = reader.integer({"", "n_recurrent_loops"}, 1, 1024, 2);
  const int behind = reader.integer({"", kDoryCounts[2]}, 0, 1024, 8);
  if (!reader.status()) return;
  if (sphere.n_before + int64_t{sphere.n_looped} * sphere.loops + behind != config.n_layers)
    return reader.fail(
        ErrorCode::kUnsupported,
        "num_hidden_layers: expected the sum of n_input_layers, n_recurrent_layers "
        "and n_output_layers, a layer_types of as many, and at most 1024 layers with "
        "those of each loop");
  for (int i = 0; i < config.n_layers; ++i) {
    const int file = dory_file_layer(sphere, i);
    const int first = file < sphere.n_before + sphere.n_looped ? file : i;
    if (first != i) config.layers[static_cast<size_t>(i)].weights_layer = first;
  }
  read_windows(reader, config, 0, 1024);
  read_local_rope(reader, config);
  config.norm.bare = config.norm.sub_norms = config.residual.recalls = true;
  // The final norm makes rows of length 1.
  const auto dim = static_cast<float>(config.model_dim);
  config.norm.eps = 1e-6f / dim;
  config.output.scale = 1.0f / std::sqrt(dim);
}

void dory_names(NameTable& names, const ModelConfig& config) {
  names.prefixes = {"backbone.", "model."};
  names.embedding = "embeddings";
  names.layer = "layers.";
  for (int i = 0; i < config.n_layers; ++i)
    names.first_blocks.push_back(2 * dory_file_layer(config.sphere, i));
}

}  // namespace

StepOutputs dory_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                         KvCache& cache, Ops& ops, const ForwardOptions& options) {
  PENSTOCK_CHECK(options.stream == nullptr);  // LayerRunner refuses models that recall states
  const auto [first_layer, end_layer] = layers_of(config, weights, options);
  const SphereConfig& loop = config.sphere;
  const Tensor x = ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream),
               entered = ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream);
  Sublayer sublayer(config, weights, shape, cache, ops);
  SphereLayer layers(sublayer);
  begin_stream(config, weights, shape, x, ops, options);
  for (int i = first_layer; i < end_layer; ++i) {
    const int behind = i - loop.n_before;
    if (behind == 0) layers.unit(i, x, entered);
    if (behind >= 0 && behind < loop.n_looped * loop.loops && behind % loop.n_looped == 0) {
      layers.unit(i, x, x);
      ops.add(x, entered, 1.0f);
    }
    layers.forward(i, x);
  }
  return output_head(config, weights, x, shape, ops, options);
}

extern constinit const Architecture kDory = {
    .name = "dory",
    .title = "Dory",
    .hf_types = {"dory", "DoryForCausalLM"},
    .directories_only = true,
    .configure = configure_dory,
    .hf_names = dory_names,
    .forward = dory_forward,
    .hf_defaults = R"({"head_dim": 256, "num_key_value_heads": 4, "sliding_window": 1024,
    "tie_word_embeddings": false})",
    .hf_aliases = R"({"attention_head_dim": "head_dim", "swa_window_size": "sliding_window",
    "init_method_std": "initializer_range", "mlp_hidden_act": "hidden_act"})",
    .hf_usual = usual_dory,
};

}  // namespace penstock
