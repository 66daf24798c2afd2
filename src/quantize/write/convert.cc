#include "quantize/write/convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "model/arch/archs.h"
#include "model/arch/names.h"
#include "model/arch/rope.h"
#include "model/blocks/difference.h"
#include "quantize/map/tensor_map.h"

namespace penstock {

using nlohmann::json;

namespace {

const char* activation_name(Activation activation) {
  switch (activation) {
    case Activation::kSilu: return "silu";
    case Activation::kGelu: return "gelu";
    case Activation::kGeluTanh: return "gelu_pytorch_tanh";
    case Activation::kRelu: return "relu";
    case Activation::kRelu2: return "relu2";
    case Activation::kXielu: return "xielu";
    case Activation::kClampedSilu: return "silu";
    case Activation::kSigmoid: return "sigmoid";
    case Activation::kClamp: return "clamp";
    case Activation::kSoftplus: return "softplus";
    case Activation::kBoundedSilu: return "silu";
    case Activation::kCappedSilu:
    case Activation::kSoftCappedSilu: return "silu";
  }
  return "silu";
}

// Scaling settings of published Llama 3 models, one of which must explain a GGUF file's factors.
struct Llama3Scaling {
  float factor, low, high;
  int original;
};
constexpr Llama3Scaling kLlama3Scalings[] = {{8, 1, 4, 8192}, {32, 1, 4, 8192}, {16, 1, 4, 8192}};

Result<std::vector<float>> rope_factors(const WeightSource& gguf, std::string_view name) {
  const TensorInfo* tensor = gguf.find(name);
  if (tensor == nullptr || !can_quantize(tensor->type)) {
    return errorf(ErrorCode::kCorruptFile, "{}: tensor {} is missing or holds no real numbers",
                  gguf.path().string(), name);
  }
  std::vector<float> factors(static_cast<size_t>(tensor->n_elements()));
  dequantize_row(tensor->type, tensor->bytes.data(), factors.data(), tensor->n_elements());
  return factors;
}

// Factor of pairs that are not rotated; they follow the rotated pairs, whose factors are equal.
constexpr float kStill = 1e30f;
bool set_proportional(const std::vector<float>& factors, json& parameters) {
  const auto still = std::ranges::find_if(factors, [](float factor) { return factor > 1e20f; });
  const bool rest_is_still =
      std::all_of(still, factors.end(), [](float factor) { return factor > 1e20f; });
  const bool equal =
      std::all_of(factors.begin(), still, [&](float factor) { return factor == factors[0]; });
  if (still == factors.end() || still == factors.begin() || !rest_is_still || !equal) return false;
  const auto n_turning = static_cast<double>(still - factors.begin());
  parameters.update({{"rope_type", "proportional"},
                     {"partial_rotary_factor", n_turning / static_cast<double>(factors.size())}});
  if (factors[0] != 1.0f) parameters["factor"] = factors[0];
  return true;
}

Result<json> rope_parameters(const WeightSource& gguf, const ModelConfig& config) {
  const RopeConfig& rope = config.ropes[0];
  json parameters = {{"rope_theta", rope.theta}, {"rope_type", "default"}};
  if (rope.scaling == RopeScaling::kLinear) {
    parameters["rope_type"] = "linear";
    parameters["factor"] = rope.factor;
  } else if (rope.scaling == RopeScaling::kYarn) {
    parameters.update({{"rope_type", "yarn"},
                       {"factor", rope.factor},
                       {"original_max_position_embeddings", rope.original_max_seq_len},
                       {"beta_fast", rope.beta_fast},
                       {"beta_slow", rope.beta_slow},
                       {"attention_factor", rope_magnitude(rope)}});
    return parameters;
  } else if (gguf.find("rope_factors_long.weight") != nullptr ||
             gguf.find("rope_factors_short.weight") != nullptr) {
    ASSIGN_OR_RETURN(const std::vector<float> long_factors,
                     rope_factors(gguf, "rope_factors_long.weight"));
    ASSIGN_OR_RETURN(const std::vector<float> short_factors,
                     rope_factors(gguf, "rope_factors_short.weight"));
    parameters.update(
        {{"rope_type", "longrope"},
         {"factor", static_cast<float>(config.max_seq_len) / rope.original_max_seq_len},
         {"original_max_position_embeddings", rope.original_max_seq_len},
         {"long_factor", long_factors},
         {"short_factor", short_factors},
         {"attention_factor", rope_magnitude(rope)}});
    return parameters;
  }
  if (gguf.find("rope_freqs.weight") == nullptr) return parameters;
  ASSIGN_OR_RETURN(const std::vector<float> stored, rope_factors(gguf, "rope_freqs.weight"));
  if (set_proportional(stored, parameters)) return parameters;
  const std::vector<float> plain = rope_frequencies(rope);
  for (const Llama3Scaling& known : kLlama3Scalings) {
    RopeConfig scaled = rope;
    scaled.scaling = RopeScaling::kLlama3;
    scaled.factor = known.factor;
    scaled.low_freq_factor = known.low;
    scaled.high_freq_factor = known.high;
    scaled.original_max_seq_len = known.original;
    const std::vector<float> wanted = rope_frequencies(scaled);
    bool same = stored.size() == wanted.size();
    for (size_t i = 0; same && i < stored.size(); ++i)
      same = std::fabs(plain[i] / stored[i] - wanted[i]) <= 1e-5f * wanted[i];
    if (!same) continue;
    parameters.update({{"rope_type", "llama3"},
                       {"factor", known.factor},
                       {"low_freq_factor", known.low},
                       {"high_freq_factor", known.high},
                       {"original_max_position_embeddings", known.original}});
    return parameters;
  }
  return errorf(ErrorCode::kUnsupported,
                "{}: rope_freqs.weight: the factors are those of no known scaling",
                gguf.path().string());
}

json gpt2_config(const ModelConfig& config) {
  return {{"n_embd", config.model_dim},
          {"n_inner", config.ffn_dim},
          {"n_layer", config.n_layers},
          {"n_head", config.n_heads},
          {"n_positions", config.max_seq_len},
          {"layer_norm_epsilon", config.norm.eps},
          {"activation_function", config.ffn.activation.kind == Activation::kGeluTanh
                                      ? "gelu_new"
                                      : activation_name(config.ffn.activation.kind)},
          {"scale_attn_weights", true}};
}

void set_token(const WeightSource& gguf, const char* from, const char* to, json& out) {
  const auto found = gguf.config().find(from);
  if (found != gguf.config().end() && found->is_number()) out[to] = *found;
}

void set_experts(const ModelConfig& config, const std::string& arch, json& out) {
  out[arch == "mixtral" ? "num_local_experts" : "num_experts"] = config.experts.count;
  out["num_experts_per_tok"] = config.experts.routing.n_active;
  if (arch == "mixtral") {
    out["intermediate_size"] = config.experts.ffn_dim;
  } else {
    out["moe_intermediate_size"] = config.experts.ffn_dim;
    out["norm_topk_prob"] = config.experts.routing.normalize;
  }
}

void set_windows(const ModelConfig& config, json& out) {
  int window = 0;
  json types = json::array();
  for (const LayerConfig& layer : config.layers) {
    window = std::max(window, layer.window);
    types.push_back(layer.window > 0 ? "sliding_attention" : "full_attention");
  }
  if (window == 0) return;
  out["sliding_window"] = window;
  out["layer_types"] = types;
}

}  // namespace

namespace {

// Adds the settings of the architecture, with its own names of keys.
void describe_as(const Architecture& row, const WeightSource& gguf, const ModelConfig& config,
                 json& out) {
  ConfigWriter writer(out, Naming::kHuggingFace, "", &gguf);
  if (row.describe != nullptr) row.describe(writer, config);
  if (row.hf_aliases.empty()) return;
  const json aliases = bounded_json(row.hf_aliases);
  for (const auto& [theirs, usual] : aliases.items()) {
    const auto found = out.find(usual.get_ref<const std::string&>());
    if (found != out.end()) out[theirs] = json(*found);
  }
}

}  // namespace

Result<json> hf_config_of(const WeightSource& gguf, const ModelConfig& config) {
  const std::string arch = arch_in(config, Naming::kHuggingFace);
  const Architecture* row = find_architecture(arch);
  if (row == nullptr || row->hf_types.empty()) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: architecture {} cannot be written as a Hugging Face checkpoint",
                  gguf.path().string(), config.arch);
  }
  if (config.arch == "glm4" && !config.positions.rope_interleaved) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: rope.dimension_sections: GLM-4V is written as GGUF only",
                  gguf.path().string());
  }
  json out = {{"architectures", {row->hf_types[1]}},
              {"model_type", row->hf_types[0]},
              {"vocab_size", config.vocab_size},
              {"tie_word_embeddings", config.embedding.tied},
              {"torch_dtype", "float16"}};
  set_token(gguf, "tokenizer.ggml.bos_token_id", "bos_token_id", out);
  set_token(gguf, "tokenizer.ggml.eos_token_id", "eos_token_id", out);
  if (config.positions.learned) {
    out.update(gpt2_config(config));
    describe_as(*row, gguf, config, out);
    return out;
  }
  ASSIGN_OR_RETURN(const json rope, rope_parameters(gguf, config));
  out.update({{"hidden_size", config.model_dim},
              {"intermediate_size", config.ffn_dim > 0 ? config.ffn_dim : config.experts.ffn_dim},
              {"num_hidden_layers", config.n_layers},
              {"num_attention_heads", config.n_heads},
              {"num_key_value_heads", config.n_kv_heads},
              {"head_dim", config.head_dim},
              {"max_position_embeddings", config.max_seq_len},
              {"rms_norm_eps", config.norm.eps},
              {"hidden_act", activation_name(config.ffn.activation.kind)},
              {"rope_theta", config.ropes[0].theta},
              {"rope_parameters", rope}});
  if (rope["rope_type"] != "default") out["rope_scaling"] = rope;
  if (rope["rope_type"] == "longrope")
    out["original_max_position_embeddings"] = rope["original_max_position_embeddings"];
  if (config.ropes[0].rotary_dim != config.head_dim)
    out["partial_rotary_factor"] =
        static_cast<double>(config.ropes[0].rotary_dim) / config.head_dim;
  if (config.experts.count > 0) set_experts(config, arch, out);
  set_windows(config, out);
  if (arch.starts_with("gemma")) {
    out["query_pre_attn_scalar"] = 1.0f / (config.attention.scale * config.attention.scale);
    out["hidden_activation"] = out["hidden_act"];
    if (config.ropes.size() > 1) out["rope_local_base_freq"] = config.ropes[1].theta;
    if (config.ropes.size() > 1 && rope["rope_type"] != "proportional")
      out.erase("rope_parameters");
  }
  if (config.attention.softcap > 0) out["attn_logit_softcapping"] = config.attention.softcap;
  if (config.output.softcap > 0) out["final_logit_softcapping"] = config.output.softcap;
  describe_as(*row, gguf, config, out);
  return out;
}

namespace {

// Returns the name of the difference; "": none.
// Bounds of the products of feed-forwards (Step 3.5, GLM-5.3).
bool same_bounds(const LayerConfig& a, const LayerConfig& b) {
  const auto bound = [](const std::optional<ActivationFunction>& f) {
    const bool bounds =
        f && (f->kind == Activation::kBoundedSilu || f->kind == Activation::kCappedSilu);
    return bounds ? f->parameters[0] : 0.0f;
  };
  return a.activation.kind == b.activation.kind &&
         nearly(bound(a.activation), bound(b.activation)) &&
         nearly(bound(a.expert_activation.value_or(a.activation)),
                bound(b.expert_activation.value_or(b.activation)));
}

std::string_view mixer_difference(const LayerConfig& a, const LayerConfig& b) {
  if (a.mixer == nullptr || b.mixer == nullptr) return a.mixer == b.mixer ? "" : "mixers";
  return a.mixer->difference(*b.mixer);
}

bool same_sizes(const ModelConfig& a, const ModelConfig& b, int layer) {
  const auto i = static_cast<size_t>(layer);
  return a.head_dim_of(layer) == b.head_dim_of(layer) &&
         a.n_heads_of(layer) == b.n_heads_of(layer) &&
         a.n_kv_heads_of(layer) == b.n_kv_heads_of(layer) &&
         a.ffn_dim_of(layer) == b.ffn_dim_of(layer) &&
         a.layers[i].kv_layer == b.layers[i].kv_layer &&
         a.layers[i].has_sinks == b.layers[i].has_sinks &&
         a.layers[i].selecting_layer == b.layers[i].selecting_layer &&
         a.layers[i].ngrams == b.layers[i].ngrams &&
         a.layers[i].shared_layer == b.layers[i].shared_layer &&
         a.layers[i].keys_as_values == b.layers[i].keys_as_values;
}

bool same_rope(const ModelConfig& a, const ModelConfig& b, size_t i) {
  const RopeConfig &x = a.ropes[i], &y = b.ropes[i];
  // llama3's and longrope's factors are tensors in GGUF and settings in config.json.
  const auto in_tensors = [](RopeScaling scaling) {
    return scaling == RopeScaling::kLlama3 || scaling == RopeScaling::kLongRope ||
           scaling == RopeScaling::kProportional;
  };
  // Factors belong to the first rope; architectures may leave another rope without them.
  if (i > 0 && (in_tensors(x.scaling) || (in_tensors(a.ropes[0].scaling) && y.tensor_factors)))
    return false;
  if (!nearly(rope_magnitude(x), rope_magnitude(y)) || x.rotary_dim != y.rotary_dim ||
      !nearly(x.theta, y.theta))
    return false;
  if (in_tensors(x.scaling) || in_tensors(y.scaling)) return true;
  return x.scaling == y.scaling && (x.scaling == RopeScaling::kNone || nearly(x.factor, y.factor));
}

// One format stores the share of gates that are cut off, the other the threshold.
bool same_cutoff(float x, float y) { return x == y || std::fabs(x - y) <= 1e-3f; }

}  // namespace

std::string config_difference(const ModelConfig& a, const ModelConfig& b) {
  const bool same_sizes_of_all =
      a.n_layers == b.n_layers && a.head_dim == b.head_dim && a.latent == b.latent &&
      a.model_dim == b.model_dim && a.ffn_dim == b.ffn_dim && a.vocab_size == b.vocab_size &&
      a.streams == b.streams && a.mixed_streams == b.mixed_streams && a.ngrams == b.ngrams &&
      a.compressed == b.compressed && a.convolved == b.convolved && a.profiles == b.profiles &&
      a.block_residuals == b.block_residuals && a.sphere == b.sphere && a.shared == b.shared &&
      a.per_layer.dim == b.per_layer.dim && a.per_layer_rows() == b.per_layer_rows();
  if (!same_sizes_of_all) return "sizes";
  if (a.max_seq_len != b.max_seq_len) return "context length";
  if (a.ropes.size() != b.ropes.size()) return "positions";
  for (const std::string_view what :
       {difference(a.embedding, b.embedding), difference(a.positions, b.positions),
        difference(a.norm, b.norm), difference(a.residual, b.residual),
        difference(a.attention, b.attention), difference(a.ffn, b.ffn),
        difference(a.experts, b.experts), difference(a.altup, b.altup),
        difference(a.output, b.output), difference(a.rounding, b.rounding)}) {
    if (!what.empty()) return std::string(what);
  }
  for (size_t i = 0; i < a.layers.size(); ++i) {
    if (const std::string_view what = mixer_difference(a.layers[i], b.layers[i]); !what.empty())
      return fmt::format("{} of layer {}", what, i);
    if (a.layers[i].attention != b.layers[i].attention ||
        a.layers[i].window != b.layers[i].window || a.layers[i].chunked != b.layers[i].chunked ||
        a.layers[i].moe != b.layers[i].moe || a.layers[i].rope != b.layers[i].rope ||
        a.layers[i].query_scale != b.layers[i].query_scale ||
        !nearly(a.layers[i].score_factor, b.layers[i].score_factor) ||
        !same_cutoff(a.layers[i].gate_cutoff, b.layers[i].gate_cutoff) ||
        !same_bounds(a.layers[i], b.layers[i]) || !same_sizes(a, b, static_cast<int>(i)))
      return fmt::format("layer {}", i);
  }
  for (size_t i = 0; i < a.ropes.size(); ++i) {
    const auto uses = [&](const LayerConfig& layer) { return layer.rope == static_cast<int>(i); };
    if (std::ranges::any_of(a.layers, uses) && !same_rope(a, b, i)) return "rope";
  }
  return "";
}

namespace {

constexpr std::string_view kActivationParts[] = {"alpha_p", "alpha_n", "beta", "eps"};

std::string activation_tensor(const ModelConfig& config, int layer, size_t part) {
  const NameTable names = tensor_names(config, Naming::kHuggingFace);
  return fmt::format("model.{}{}{}", with_index(names.layer, layer), names[tensor::kActivation],
                     kActivationParts[part]);
}

EncodedTensor floats(std::string name, std::vector<int64_t> shape, std::span<const float> values) {
  EncodedTensor tensor{std::move(name), QuantType::kF32, std::move(shape), {}};
  tensor.bytes.resize(values.size_bytes());
  std::memcpy(tensor.bytes.data(), values.data(), values.size_bytes());
  return tensor;
}

}  // namespace

Status read_activations(const WeightSource& source, ModelConfig& config) {
  if (source.naming() == Naming::kGguf) return {};
  for (int i = 0; i < config.n_layers; ++i) {
    ActivationFunction& activation = config.layers[static_cast<size_t>(i)].activation;
    for (size_t part = 0; activation.kind == Activation::kXielu && part < 4; ++part) {
      const std::string name = activation_tensor(config, i, part);
      const TensorInfo* found = source.find(name);
      const int64_t one = 1;
      const bool scalar = found != nullptr && found->shape.empty();
      ASSIGN_OR_RETURN(const std::vector<float> value,
                       read_values(source, name, std::span(&one, scalar ? 0 : 1)));
      activation.parameters[part] = value[0];
    }
  }
  return {};
}

std::vector<EncodedTensor> hf_extra_tensors(const ModelConfig& config) {
  std::vector<EncodedTensor> out;
  for (int i = 0; i < config.n_layers; ++i) {
    const ActivationFunction& activation = config.layers[static_cast<size_t>(i)].activation;
    for (size_t part = 0; activation.kind == Activation::kXielu && part < 4; ++part) {
      std::vector<int64_t> shape;
      if (part < 2) shape = {1};  // shape of the learned parameters
      out.push_back(floats(activation_tensor(config, i, part), std::move(shape),
                           {&activation.parameters[part], 1}));
    }
  }
  return out;
}

Result<std::vector<EncodedTensor>> gguf_extra_tensors(const WeightSource& source,
                                                      const ModelConfig& config) {
  std::vector<EncodedTensor> out;
  if (source.naming() == Naming::kGguf) {
    for (const TensorInfo& tensor : source.tensors()) {
      if (!tensor.name.starts_with("rope_f")) continue;
      out.push_back(
          {tensor.name, tensor.type, tensor.shape, {tensor.bytes.begin(), tensor.bytes.end()}});
    }
    return out;
  }
  if (config.ropes.empty()) return out;
  const RopeConfig& rope = config.ropes[0];
  const auto add = [&](const char* name, const std::vector<float>& factors) {
    out.push_back(floats(name, {static_cast<int64_t>(factors.size())}, factors));
  };
  if (rope.scaling == RopeScaling::kLongRope) {
    add("rope_factors_long.weight", rope.long_factors);
    add("rope_factors_short.weight", rope.short_factors);
  } else if (rope.scaling == RopeScaling::kLlama3) {
    RopeConfig plain = rope;
    plain.scaling = RopeScaling::kNone;
    const std::vector<float> scaled = rope_frequencies(rope);
    std::vector<float> factors = rope_frequencies(plain);
    for (size_t i = 0; i < scaled.size(); ++i) factors[i] /= scaled[i];
    // As many as the widest rotation has.
    for (const RopeConfig& other : config.ropes)
      factors.resize(std::max(factors.size(), static_cast<size_t>(other.rotary_dim / 2)), 1.0f);
    add("rope_freqs.weight", factors);
  } else if (rope.scaling == RopeScaling::kProportional) {
    std::vector<float> factors(static_cast<size_t>(rope.rotary_dim / 2), kStill);
    std::fill_n(factors.begin(), rope.n_turning, rope.factor);
    add("rope_freqs.weight", factors);
  } else if (rope.scaling == RopeScaling::kYarn && !rope.truncate) {
    RopeConfig truncated = rope;
    truncated.truncate = true;
    if (rope_frequencies(truncated) != rope_frequencies(rope)) {
      return errorf(ErrorCode::kUnsupported, "{}: yarn: GGUF has no truncate = false",
                    source.path().string());
    }
  }
  return out;
}

}  // namespace penstock
