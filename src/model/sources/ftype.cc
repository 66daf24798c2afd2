#include "model/sources/ftype.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace penstock {

namespace {

using enum QuantType;

using enum MoreBits;

// llama.cpp treats models with this many layers as 70B models with shared values, for which more
// bits cost little.
constexpr int kLayersOf70B = 80;

constexpr FileType kFileTypes[] = {
    {.name = "q2_k",
     .number = 10,
     .base = kQ2_K,
     .value = {kQ3_K},
     .value_shared = kQ4_K,
     .attention_output = kQ3_K,
     .down = {kQ3_K}},
    {.name = "q2_k_s",
     .number = 21,
     .base = kQ2_K,
     .value_shared = kQ4_K,
     .output_beside_eight = kQ2_K,
     .down = {kQ2_K, kFirstEighth, kQ4_K}},
    {.name = "q3_k_s", .number = 11, .base = kQ3_K},
    {.name = "q3_k_m",
     .number = 12,
     .base = kQ3_K,
     .value = {kQ4_K, kFirstTwo, kQ5_K},
     .attention_output = kQ4_K,
     .down = {kQ4_K, kFirstSixteenth, kQ5_K}},
    {.name = "q3_k_l",
     .number = 13,
     .base = kQ3_K,
     .value = {kQ5_K},
     .attention_output = kQ5_K,
     .output_beside_eight = kQ3_K,
     .down = {kQ5_K}},
    {.name = "q4_k_s",
     .number = 14,
     .base = kQ4_K,
     .value = {kQ4_K, kFirstFour, kQ5_K},
     .down = {kQ4_K, kFirstEighth, kQ5_K}},
    {.name = "q4_k_m",
     .number = 15,
     .base = kQ4_K,
     .value = {kQ4_K, kScattered, kQ6_K},
     .down = {kQ4_K, kScattered, kQ6_K}},
    {.name = "q5_k_s", .number = 16, .base = kQ5_K},
    {.name = "q5_k_m",
     .number = 17,
     .base = kQ5_K,
     .value = {kQ5_K, kScattered, kQ6_K},
     .down = {kQ5_K, kScattered, kQ6_K}},
    {.name = "iq1_s",
     .number = 24,
     .base = kIQ1_S,
     .output = kQ5_K,
     .embedding = kQ2_K,
     .value = {kQ2_K},
     .value_shared = kQ4_K,
     .attention_output = kIQ2_XXS,
     .down = {kIQ1_S, kFirstEighth, kQ2_K}},
    {.name = "iq1_m",
     .number = 31,
     .base = kIQ1_M,
     .output = kQ5_K,
     .embedding = kQ2_K,
     .value = {kQ2_K},
     .value_shared = kQ4_K,
     .attention_output = kIQ2_XXS,
     .down = {kIQ1_M, kFirstEighth, kQ2_K}},
    {.name = "iq2_xxs",
     .number = 19,
     .base = kIQ2_XXS,
     .output = kQ5_K,
     .embedding = kQ2_K,
     .value = {kQ2_K},
     .value_shared = kQ4_K,
     .down = {kIQ2_XXS, kFirstEighth, kQ2_K}},
    {.name = "iq2_xs",
     .number = 20,
     .base = kIQ2_XS,
     .output = kQ5_K,
     .embedding = kQ2_K,
     .value = {kQ2_K},
     .value_shared = kQ4_K,
     .down = {kIQ2_XS, kFirstEighth, kQ2_K}},
    {.name = "iq2_s",
     .number = 28,
     .base = kIQ2_XS,
     .output = kQ5_K,
     .embedding = kIQ3_S,
     .value = {kIQ3_S},
     .value_shared = kQ4_K,
     .attention_output = kIQ3_S,
     .down = {kIQ2_XS, kFirstEighth, kIQ3_S}},
    {.name = "iq2_m",
     .number = 29,
     .base = kIQ2_S,
     .output = kQ5_K,
     .embedding = kIQ3_S,
     .value = {kIQ3_S},
     .value_shared = kQ4_K,
     .attention_output = kIQ3_S,
     .down = {kIQ2_S, kFirstEighth, kIQ3_S}},
    {.name = "iq3_xxs",
     .number = 23,
     .base = kIQ3_XXS,
     .output = kQ5_K,
     .embedding = kIQ3_S,
     .query_key = kIQ2_S,
     .value_shared = kQ4_K,
     .attention_output = kIQ3_S,
     .value_unweighed = {kIQ3_S},
     .down_unweighed = {kQ3_K, kFirstEighth, kQ4_K}},
    {.name = "iq3_xs",
     .number = 22,
     .base = kIQ3_S,
     .query_key = kIQ3_XXS,
     .value_shared = kQ4_K,
     .gate_up = {kIQ3_XXS, kEnds, kIQ3_S}},
    {.name = "iq3_s", .number = 26, .base = kIQ3_S, .value_shared = kQ4_K},
    {.name = "iq3_m",
     .number = 27,
     .base = kIQ3_S,
     .value = {kQ4_K},
     .attention_output = kQ4_K,
     .down = {kIQ3_S, kFirstEighth, kQ4_K},
     .down_of_eight = LayerTypes{kIQ3_S, kScattered, kQ4_K}},
    {.name = "iq4_nl",
     .number = 25,
     .base = kIQ4_NL,
     .value_shared = kQ5_K,
     .down_unweighed = {kIQ4_NL, kFirstEighth, kQ5_K}},
    {.name = "iq4_xs",
     .number = 30,
     .base = kIQ4_XS,
     .value_shared = kQ5_K,
     .down_unweighed = {kIQ4_XS, kFirstEighth, kQ5_K}},
};

bool wants_more_bits(MoreBits where, int layer, int n_layers) {
  const int eighth = n_layers / 8;
  const bool at_end = layer < eighth || layer >= 7 * n_layers / 8;
  switch (where) {
    case kNowhere: return false;
    case kFirstTwo: return layer < 2;
    case kFirstFour: return layer < 4;
    case kFirstSixteenth: return layer < n_layers / 16;
    case kFirstEighth: return layer < eighth;
    case kEnds: return at_end;
    case kScattered: return at_end || (layer - eighth) % 3 == 2;
  }
  return false;
}

// Only projections are trained ternary; the embedding and the vocabulary projection are not.
bool is_ternary(QuantType type) { return type == kTQ1_0 || type == kTQ2_0; }

// Whether the type has at most about two bits per weight.
bool is_low(const FileType& ftype) {
  return ftype.base == kIQ1_S || ftype.base == kIQ1_M || ftype.base == kIQ2_XXS ||
         ftype.base == kIQ2_XS || ftype.base == kIQ2_S;
}
bool mixes(const FileType& ftype) { return ftype.output != ftype.base && !is_ternary(ftype.base); }

QuantType pick(const LayerTypes& types, int layer, int n_layers) {
  return wants_more_bits(types.where, layer, n_layers) ? types.more : types.usual;
}

QuantType fallback(QuantType type) {
  switch (type) {
    case kIQ1_S:
    case kIQ1_M:
    case kIQ2_XXS:
    case kIQ2_XS:
    case kIQ2_S:
    case kIQ3_XXS:
    case kIQ3_S:
    case kQ2_K:
    case kQ3_K:
    case kIQ4_XS:
    case kQ1_0:
    case kQ2_0:
    case kTQ1_0:
    case kTQ2_0:
    case kNVFP4: return kIQ4_NL;
    case kQ4_K: return kQ5_0;
    case kQ5_K: return kQ5_1;
    case kQ6_K: return kQ8_0;
    default: return kF16;
  }
}

QuantType value_type(const FileType& ftype, const MixedModel& model, int layer) {
  const bool shared = model.heads_per_kv_head >= 4 || (is_low(ftype) && model.n_experts >= 4);
  const LayerTypes& alone = model.weighed ? ftype.value : ftype.value_unweighed;
  const QuantType type =
      shared && ftype.value_shared
          ? *ftype.value_shared
          : pick(alone, layer, model.n_values > 0 ? model.n_values : model.n_layers);
  const bool large =
      model.n_layers == kLayersOf70B && model.heads_per_kv_head > 1 && !is_low(ftype);
  return large && (type == kQ3_K || type == kQ4_K) ? kQ5_K : type;
}

QuantType down_type(const FileType& ftype, const MixedModel& model, int layer) {
  LayerTypes types = model.weighed ? ftype.down : ftype.down_unweighed;
  if (model.n_experts == 8 && ftype.down_of_eight) types = *ftype.down_of_eight;
  return pick(types, layer, model.n_layers);
}

// Models of eight experts have a negligible share of weights in attention.
std::optional<QuantType> type_beside_eight_experts(const FileType& ftype, WeightRole role) {
  if (role == WeightRole::kK || role == WeightRole::kV) return is_low(ftype) ? kQ4_K : kQ8_0;
  if (role == WeightRole::kO && quant_bytes(ftype.base, 256) < quant_bytes(kQ5_K, 256))
    return ftype.output_beside_eight;
  return std::nullopt;
}

}  // namespace

std::span<const FileType> file_types() { return kFileTypes; }

std::string file_type_names() {
  std::vector<std::string_view> names;
  for (const FileType& ftype : kFileTypes) names.push_back(ftype.name);
  for (const QuantTypeInfo& info : quant_types()) {
    if (can_quantize(info.type) && std::ranges::find(names, info.name) == names.end())
      names.push_back(info.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<FileType> find_file_type(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  for (const FileType& ftype : kFileTypes) {
    if (ftype.name == lower) return ftype;
  }
  for (const QuantTypeInfo& info : quant_types()) {
    if (can_quantize(info.type) && info.name == lower)
      return uniform_file_type(info.name, info.ftype, info.type);
  }
  return errorf(ErrorCode::kInvalidArgument, "type: expected one of {}, got '{}'",
                file_type_names(), name);
}

FileType uniform_file_type(std::string_view name, int number, QuantType type) {
  FileType ftype{.name = name, .number = number, .base = type};
  if (!is_ternary(type)) ftype.output = type;
  if (is_ternary(type)) ftype.embedding = kQ4_K;
  return ftype;
}

MixedModel MixedModel::of(const ModelConfig& config, bool weighed) {
  const int n_kv_heads = config.layers.empty() ? config.n_kv_heads : config.n_kv_heads_of(0);
  const int shared = n_kv_heads > 0 ? config.n_heads / n_kv_heads : 1;
  const auto n_without = std::ranges::count_if(config.layers, [](const LayerConfig& layer) {
    return layer.kv_layer >= 0 || layer.keys_as_values;
  });
  const int n_values = n_without > 0 ? config.n_layers - static_cast<int>(n_without) : 0;
  return {config.n_layers, config.embedding.tied, shared, config.experts.count, weighed, n_values};
}

QuantType choose_type(const FileType& ftype, const MixedModel& model, WeightRole role, int layer,
                      int cols) {
  const auto chosen = [&] {
    switch (role) {
      case WeightRole::kOutput: return ftype.output;
      case WeightRole::kEmbedding: return model.tied ? ftype.output : ftype.embedding;
      case WeightRole::kQ:
      case WeightRole::kK: return ftype.query_key;
      case WeightRole::kQkv:
      case WeightRole::kV: return value_type(ftype, model, layer);
      case WeightRole::kO: return ftype.attention_output;
      case WeightRole::kGateUp: return pick(ftype.gate_up, layer, model.n_layers);
      case WeightRole::kDown: return down_type(ftype, model, layer);
      case WeightRole::kLatent:
      case WeightRole::kOther: return ftype.base;
      case WeightRole::kRouter: return kF32;
    }
    return ftype.base;
  };
  QuantType type = chosen();
  if (model.n_experts == 8 && mixes(ftype))
    type = type_beside_eight_experts(ftype, role).value_or(type);
  while (cols % quant_info(type).block_size != 0) type = fallback(type);
  return type;
}

}  // namespace penstock
