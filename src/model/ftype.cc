#include "model/ftype.h"

#include <algorithm>

namespace penstock {

namespace {

using enum QuantType;

// name, number, base, output, value, value_more, down, down_more, attention_output
constexpr FileType kFileTypes[] = {
    {"q2_k", 10, kQ2_K, kQ6_K, kQ3_K, kQ3_K, kQ3_K, kQ3_K, kQ3_K},
    {"q3_k_s", 11, kQ3_K, kQ6_K, kQ3_K, kQ3_K, kQ3_K, kQ3_K, kQ3_K},
    {"q3_k_m", 12, kQ3_K, kQ6_K, kQ4_K, kQ5_K, kQ3_K, kQ4_K, kQ4_K},
    {"q3_k_l", 13, kQ3_K, kQ6_K, kQ5_K, kQ5_K, kQ5_K, kQ5_K, kQ5_K},
    {"q4_k_s", 14, kQ4_K, kQ6_K, kQ4_K, kQ5_K, kQ4_K, kQ5_K, kQ4_K},
    {"q4_k_m", 15, kQ4_K, kQ6_K, kQ4_K, kQ6_K, kQ4_K, kQ6_K, kQ4_K},
    {"q5_k_s", 16, kQ5_K, kQ6_K, kQ5_K, kQ5_K, kQ5_K, kQ5_K, kQ5_K},
    {"q5_k_m", 17, kQ5_K, kQ6_K, kQ5_K, kQ6_K, kQ5_K, kQ6_K, kQ5_K},
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

}  // namespace

std::span<const FileType> file_types() { return kFileTypes; }

Result<FileType> find_file_type(std::string_view name) {
  std::string lower(name), known;
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  for (const FileType& ftype : kFileTypes) {
    if (ftype.name == lower) return ftype;
    known += std::string(ftype.name) + ", ";
  }
  for (const QuantTypeInfo& info : quant_types()) {
    if (!can_quantize(info.type)) continue;
    const QuantType t = info.type;
    if (info.name == lower)
      return FileType{info.name, info.ftype, t, is_ternary(t) ? kQ6_K : t, t, t, t, t, t};
    known += std::string(info.name) + ", ";
  }
  known.resize(known.size() - 2);
  return errorf(ErrorCode::kInvalidArgument, "file type '{}': expected one of {}", name, known);
}

QuantType choose_type(const FileType& ftype, WeightRole role, int layer, int n_layers, bool tied, int cols) {
  const bool more = wants_more_bits(layer, n_layers);
  QuantType type = ftype.base;
  switch (role) {
    case WeightRole::kOutput: type = ftype.output; break;
    case WeightRole::kEmbedding:
      type = tied ? ftype.output : is_ternary(ftype.base) ? kQ4_K : ftype.base;
      break;
    case WeightRole::kV: type = more ? ftype.value_more : ftype.value; break;
    case WeightRole::kDown: type = more ? ftype.down_more : ftype.down; break;
    case WeightRole::kO: type = ftype.attention_output; break;
    case WeightRole::kRouter: return kF32;
    default: break;
  }
  while (cols % quant_info(type).block_size != 0) type = fallback(type);
  return type;
}

}  // namespace penstock
