#include "model/arch/rope.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "model/arch/archs.h"

namespace penstock {

using nlohmann::json;

namespace {

constexpr float kMaxTheta = 1e12f, kMaxFactor = 1e6f;

void check_factors(ConfigReader& reader, const RopeConfig& rope) {
  for (const std::vector<float>* factors : {&rope.short_factors, &rope.long_factors}) {
    if (factors->size() != static_cast<size_t>(rope.rotary_dim / 2)) {
      reader.fail(
          ErrorCode::kCorruptFile,
          fmt::format("longrope: expected {} short and long factors, got {} and {}",
                      rope.rotary_dim / 2, rope.short_factors.size(), rope.long_factors.size()));
      return;
    }
    for (const float factor : *factors) {
      if (!(factor >= 1e-6f))
        reader.fail(ErrorCode::kCorruptFile, "longrope: a factor is not positive");
    }
  }
}

RopeConfig read_gguf_rope(ConfigReader& reader, const ModelConfig& config) {
  RopeConfig rope;
  rope.rotary_dim =
      reader.integer({"rope.dimension_count", ""}, 2, config.head_dim, config.head_dim);
  rope.theta = reader.number({"rope.freq_base", ""}, 1.0f, kMaxTheta, 10000.0f);
  // "scale_linear": older files' name, without a type; as llama.cpp a factor alone is linear.
  const float older = reader.number({"rope.scale_linear", ""}, 0.0f, kMaxFactor, 1.0f);
  rope.factor = reader.number({"rope.scaling.factor", ""}, 0.0f, kMaxFactor, older);
  const bool scales = rope.factor != 1.0f && rope.factor != 0.0f;
  const std::string type = reader.text({"rope.scaling.type", ""}, scales ? "linear" : "none");
  rope.original_max_seq_len = reader.integer({"rope.scaling.original_context_length", ""}, 1,
                                             kMaxContextLength, config.max_seq_len);
  const float attention = reader.number({"rope.scaling.attn_factor", ""}, 0.0f, 1e3f, 1.0f);
  if (rope.factor == 0.0f) rope.factor = 1.0f;
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    rope.beta_fast = reader.number({"rope.scaling.yarn_beta_fast", ""}, 1e-3f, 1e6f, 32.0f);
    rope.beta_slow = reader.number({"rope.scaling.yarn_beta_slow", ""}, 1e-3f, 1e6f, 1.0f);
    rope.mscale_all_dim = reader.number({"rope.scaling.yarn_log_multiplier", ""}, 0.0f, 1e3f, 0.0f);
    // attention_factor of the checkpoint, which overrides the one derived from `factor`.
    const float own = reader.number({"rope.scaling.yarn_attn_factor", ""}, 0.0f, 1e3f, 0.0f);
    if (own > 0) {
      rope.attention_factor = own * attention;
    } else if (rope.mscale_all_dim > 0) {
      rope.mscale = 1.0f;
    } else {
      rope.attention_factor = attention * (1.0f + 0.1f * std::log(std::max(rope.factor, 1.0f)));
    }
  } else if (type == "longrope") {
    rope.attention_factor = attention;  // the factors themselves are tensors
  } else if (type != "none") {
    reader.fail(
        ErrorCode::kUnsupported,
        fmt::format("rope.scaling.type: expected none, linear, yarn or longrope, got '{}'", type));
  } else {
    rope.attention_factor = attention == 1.0f ? 0.0f : attention;
  }
  return rope;
}

// Returns the number of rotated dimensions as transformers computes it: without partial rope it
// ignores the share for rope_type `default` and fails for other types.
int read_rotary_dim(ConfigReader& top, ConfigReader& reader, const std::string& type,
                    const ModelConfig& config) {
  const Key key{"", "partial_rotary_factor"};
  float share = top.number(key, 0.0f, 1.0f, 1.0f);
  share = reader.number(key, 0.0f, 1.0f, share);
  const auto rotary_dim = static_cast<int>(static_cast<double>(share) * config.head_dim);
  const Architecture* row = find_architecture(config.arch);
  if (type == "proportional" || (row != nullptr && row->partial_rope)) return rotary_dim;
  if (type != "default" && type != "mrope" && rotary_dim != config.head_dim) {
    reader.fail(
        ErrorCode::kUnsupported,
        fmt::format("partial_rotary_factor: expected 1 for rope_type {} of architecture {}, got {}",
                    type, config.arch, share));
  }
  return config.head_dim;
}

}  // namespace

RopeConfig read_hf_rope(ConfigReader& top, const json& parameters, const ModelConfig& config,
                        float default_theta) {
  ConfigReader reader(parameters, Naming::kHuggingFace, "", top.where() + ": rope_parameters");
  RopeConfig rope;
  rope.theta = top.number({"", "rope_theta"}, 1.0f, kMaxTheta, default_theta);
  rope.theta = reader.number({"", "rope_theta"}, 1.0f, kMaxTheta, rope.theta);
  const std::string type = reader.text({"", "rope_type"}, reader.text({"", "type"}, "default"));
  rope.rotary_dim = read_rotary_dim(top, reader, type, config);
  const bool has_factor = reader.has({"", "factor"});
  rope.factor = reader.number({"", "factor"}, 1e-3f, kMaxFactor, 1.0f);
  rope.original_max_seq_len = top.integer({"", "original_max_position_embeddings"}, 1,
                                          kMaxContextLength, config.max_seq_len);
  rope.original_max_seq_len = reader.integer({"", "original_max_position_embeddings"}, 1,
                                             kMaxContextLength, rope.original_max_seq_len);
  rope.attention_factor = reader.number({"", "attention_factor"}, 0.0f, 1e3f, 0.0f);
  if (!has_factor) rope.factor = static_cast<float>(config.max_seq_len) / rope.original_max_seq_len;
  // "dynamic" changes frequencies only beyond max_position_embeddings, which sequences never
  // exceed.
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (type == "llama3") {
    rope.scaling = RopeScaling::kLlama3;
    rope.low_freq_factor = reader.number({"", "low_freq_factor"}, 1e-3f, 1e6f);
    rope.high_freq_factor = reader.number({"", "high_freq_factor"}, 1e-3f, 1e6f);
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    rope.beta_fast = reader.number({"", "beta_fast"}, 1e-3f, 1e6f, 32.0f);
    rope.beta_slow = reader.number({"", "beta_slow"}, 1e-3f, 1e6f, 1.0f);
    rope.mscale = reader.number({"", "mscale"}, 0.0f, 1e3f, 0.0f);
    rope.mscale_all_dim = reader.number({"", "mscale_all_dim"}, 0.0f, 1e3f, 0.0f);
    rope.truncate = reader.flag({"", "truncate"}, true);
  } else if (type == "longrope" || type == "su") {
    rope.scaling = RopeScaling::kLongRope;
    rope.short_factors = reader.numbers({"", "short_factor"}, 1024);
    rope.long_factors = reader.numbers({"", "long_factor"}, 1024);
    check_factors(reader, rope);
  } else if (type == "ntk") {
    // GTE: theta grows by the factor, and the resulting frequencies are divided by it
    rope.scaling = RopeScaling::kLinear;
    rope.theta *= rope.factor;
    rope.factor = std::pow(rope.factor, 2.0f / static_cast<float>(std::max(rope.rotary_dim, 1)));
    if (reader.has({"", "mixed_b"}))
      reader.fail(ErrorCode::kUnsupported, "mixed_b: not known for rope_type ntk");
  } else if (type == "proportional") {
    rope.scaling = RopeScaling::kProportional;
    rope.n_turning = rope.rotary_dim / 2;
    rope.rotary_dim = config.head_dim;
    if (!has_factor) rope.factor = 1.0f;
  } else if (type != "default" && type != "dynamic" && type != "mrope") {
    // equal to the default for text
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("rope_type: expected default, linear, dynamic, llama3, yarn, longrope, "
                            "ntk or proportional, got '{}'",
                            type));
  }
  top.merge(reader);
  return rope;
}

RopeConfig read_rope(ConfigReader& reader, const ModelConfig& config) {
  if (reader.gguf()) return read_gguf_rope(reader, config);
  const json* parameters = reader.find({"", "rope_parameters"});
  if (parameters == nullptr) parameters = reader.find({"", "rope_scaling"});
  static const json kNone = json::object();
  return read_hf_rope(reader, parameters == nullptr ? kNone : *parameters, config, 10000.0f);
}

void read_rope_axes(ConfigReader& top, ModelConfig& config, AxisOrder order,
                    std::array<int, 3> published) {
  const json* object = top.find({"", "rope_parameters"});
  if (object == nullptr) object = top.find({"", "rope_scaling"});
  static const json kNone = json::object();
  ConfigReader nested(object == nullptr ? kNone : *object, Naming::kHuggingFace, "",
                      top.where() + ": rope_parameters");
  std::vector<float> sections = top.gguf() ? top.numbers({"rope.dimension_sections", ""}, 4)
                                           : nested.numbers({"", "mrope_section"}, 3);
  top.merge(nested);
  if (sections.empty()) sections.assign(published.begin(), published.end());
  sections.resize(3);
  RopeConfig& rope = config.ropes[0];
  rope.axes.assign(static_cast<size_t>(rope.rotary_dim) / 2, 0);
  float end_of_rows = sections[0] + sections[1];
  for (size_t i = 0; i < rope.axes.size(); ++i) {
    const auto at = static_cast<float>(i);
    if (order == AxisOrder::kInterleaved) {
      const size_t axis = i % 3;
      if (at < 3 * sections[axis]) rope.axes[i] = static_cast<uint8_t>(axis);
    } else if (at >= sections[0] && at < end_of_rows + sections[2]) {
      rope.axes[i] = at < end_of_rows ? 1 : 2;
    }
  }
}

namespace {

// Keeps high frequencies, divides low ones by the factor, and interpolates between; a step if the
// high factor is not above the low one.
void scale_llama3(const RopeConfig& rope, std::vector<float>& frequencies) {
  const double width = static_cast<double>(rope.high_freq_factor) - rope.low_freq_factor;
  for (float& frequency : frequencies) {
    const double turns =
        rope.original_max_seq_len * static_cast<double>(frequency) / (2 * std::numbers::pi);
    const double above = turns - rope.low_freq_factor;
    const double keep = width > 0 ? std::clamp(above / width, 0.0, 1.0) : above >= 0 ? 1.0 : 0.0;
    frequency = static_cast<float>(frequency * (keep + (1 - keep) / rope.factor));
  }
}

// As scale_llama3(), with a ramp over the pair index, between pairs that rotate beta_fast and
// beta_slow times.
void scale_yarn(const RopeConfig& rope, std::vector<float>& frequencies) {
  const auto pair_of = [&](double turns) {
    return rope.rotary_dim * std::log(rope.original_max_seq_len / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(static_cast<double>(rope.theta)));
  };
  double low = pair_of(rope.beta_fast), high = pair_of(rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, rope.rotary_dim - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double divide = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = static_cast<float>(frequencies[i] * (1 - divide + divide / rope.factor));
  }
}

}  // namespace

std::vector<float> rope_frequencies(const RopeConfig& rope, bool is_long) {
  std::vector<float> frequencies(rope.rotary_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = static_cast<float>(
        std::pow(static_cast<double>(rope.theta), -2.0 * static_cast<double>(i) / rope.rotary_dim));
  }
  switch (rope.scaling) {
    case RopeScaling::kNone: break;
    case RopeScaling::kLinear:
      for (float& frequency : frequencies) frequency /= rope.factor;
      break;
    case RopeScaling::kProportional:
      for (size_t i = 0; i < frequencies.size(); ++i)
        frequencies[i] =
            i < static_cast<size_t>(rope.n_turning) ? frequencies[i] / rope.factor : 0.0f;
      break;
    case RopeScaling::kLlama3: scale_llama3(rope, frequencies); break;
    case RopeScaling::kYarn: scale_yarn(rope, frequencies); break;
    case RopeScaling::kLongRope: {
      const std::vector<float>& factors = is_long ? rope.long_factors : rope.short_factors;
      for (size_t i = 0; i < frequencies.size() && i < factors.size(); ++i)
        frequencies[i] /= factors[i];
      break;
    }
  }
  for (float& frequency : frequencies) frequency *= rope.backwards ? -1.0f : 1.0f;
  return frequencies;
}

float rope_magnitude(const RopeConfig& rope) {
  if (rope.attention_factor > 0) return rope.attention_factor;
  const auto yarn = [&](float mscale) {
    return rope.factor <= 1 ? 1.0f : 0.1f * mscale * std::log(rope.factor) + 1.0f;
  };
  if (rope.scaling == RopeScaling::kYarn) {
    return rope.mscale > 0 && rope.mscale_all_dim > 0
               ? yarn(rope.mscale) / yarn(rope.mscale_all_dim)
               : yarn(1.0f);
  }
  if (rope.scaling == RopeScaling::kLongRope && rope.factor > 1 && rope.original_max_seq_len > 1) {
    return std::sqrt(1 + std::log(rope.factor) /
                             std::log(static_cast<float>(rope.original_max_seq_len)));
  }
  return 1.0f;
}

std::vector<float> alibi_slopes(int n_heads, float max_bias) {
  const int n = static_cast<int>(std::bit_floor(static_cast<unsigned>(n_heads)));
  std::vector<float> slopes;
  for (int h = 0; h < n_heads; ++h) {
    const float step = h < n ? static_cast<float>(h + 1) : static_cast<float>(h - n) + 0.5f;
    slopes.push_back(std::exp2(-max_bias * step / static_cast<float>(n)));
  }
  return slopes;
}

}  // namespace penstock
