#include "model/mixture.h"

#include <algorithm>

namespace penstock {

namespace {

using enum QuantType;

// name, base, output, value, value_more, down, down_more, attention_output
constexpr Mixture kMixtures[] = {
    {"q2_k", kQ2_K, kQ6_K, kQ3_K, kQ3_K, kQ3_K, kQ3_K, kQ3_K},
    {"q3_k_s", kQ3_K, kQ6_K, kQ3_K, kQ3_K, kQ3_K, kQ3_K, kQ3_K},
    {"q3_k_m", kQ3_K, kQ6_K, kQ4_K, kQ5_K, kQ3_K, kQ4_K, kQ4_K},
    {"q3_k_l", kQ3_K, kQ6_K, kQ5_K, kQ5_K, kQ5_K, kQ5_K, kQ5_K},
    {"q4_k_s", kQ4_K, kQ6_K, kQ4_K, kQ5_K, kQ4_K, kQ5_K, kQ4_K},
    {"q4_k_m", kQ4_K, kQ6_K, kQ4_K, kQ6_K, kQ4_K, kQ6_K, kQ4_K},
    {"q5_k_s", kQ5_K, kQ6_K, kQ5_K, kQ5_K, kQ5_K, kQ5_K, kQ5_K},
    {"q5_k_m", kQ5_K, kQ6_K, kQ5_K, kQ6_K, kQ5_K, kQ6_K, kQ5_K},
};

// The first and last eighth of the layers and every third between: where errors cost most.
bool wants_more_bits(int layer, int n_layers) {
  const int eighth = n_layers / 8;
  return layer < eighth || layer >= 7 * n_layers / 8 || (layer - eighth) % 3 == 2;
}

// Made for projections only: the embedding and the vocabulary projection are never trained for it.
bool is_ternary(QuantType type) { return type == kTQ1_0 || type == kTQ2_0; }

QuantType fallback(QuantType type) {
  switch (type) {
    case kQ2_K:
    case kQ3_K:
    case kIQ4_XS:
    case kTQ1_0:
    case kTQ2_0: return kIQ4_NL;
    case kQ4_K: return kQ5_0;
    case kQ5_K: return kQ5_1;
    case kQ6_K: return kQ8_0;
    default: return kF16;
  }
}

}  // namespace

std::span<const Mixture> mixtures() { return kMixtures; }

Result<Mixture> find_mixture(std::string_view name) {
  std::string lower(name), known;
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  for (const Mixture& mixture : kMixtures) {
    if (mixture.name == lower) return mixture;
    known += std::string(mixture.name) + ", ";
  }
  for (const QuantTypeInfo& info : quant_types()) {
    if (!can_quantize(info.type)) continue;
    const QuantType t = info.type;
    if (info.name == lower) return Mixture{info.name, t, is_ternary(t) ? kQ6_K : t, t, t, t, t, t};
    known += std::string(info.name) + ", ";
  }
  known.resize(known.size() - 2);
  return errorf(ErrorCode::kInvalidArgument, "weight type '{}': expected one of {}", name, known);
}

QuantType choose_type(const Mixture& mixture, WeightRole role, int layer, int n_layers, bool tied, int cols) {
  const bool more = wants_more_bits(layer, n_layers);
  QuantType type = mixture.base;
  switch (role) {
    case WeightRole::kOutput: type = mixture.output; break;
    case WeightRole::kEmbedding:
      type = tied ? mixture.output : is_ternary(mixture.base) ? kQ4_K : mixture.base;
      break;
    case WeightRole::kV: type = more ? mixture.value_more : mixture.value; break;
    case WeightRole::kDown: type = more ? mixture.down_more : mixture.down; break;
    case WeightRole::kO: type = mixture.attention_output; break;
    case WeightRole::kRouter: return kF32;
    default: break;
  }
  while (cols % quant_info(type).block_size != 0) type = fallback(type);
  return type;
}

int gguf_file_type(std::string_view mixture) {
  constexpr std::pair<std::string_view, int> kNumbers[] = {
      {"f32", 0},     {"f16", 1},     {"q4_0", 2},    {"q4_1", 3},    {"q8_0", 7},
      {"q5_0", 8},    {"q5_1", 9},    {"q2_k", 10},   {"q3_k_s", 11}, {"q3_k_m", 12},
      {"q3_k_l", 13}, {"q4_k_s", 14}, {"q4_k_m", 15}, {"q5_k_s", 16}, {"q5_k_m", 17},
      {"q6_k", 18},   {"iq4_nl", 25}, {"iq4_xs", 30}, {"bf16", 32},   {"tq1_0", 36},
      {"tq2_0", 37},  {"mxfp4", 38},  {"q3_k", 12},   {"q4_k", 15},   {"q5_k", 17},
  };
  for (const auto& [name, number] : kNumbers) {
    if (name == mixture) return number;
  }
  return -1;
}

}  // namespace penstock
