#include "quant/group_types.h"

#include <algorithm>

namespace penstock {

namespace {

using Kind = ActivationCoding::Kind;

constexpr GroupType kTypes[] = {
    {"int8", 8, "", 128, Kind::kNone},
    {"int7", 7, "", 128, Kind::kNone},
    {"int6", 6, "", 128, Kind::kNone},
    {"int5", 5, "", 128, Kind::kNone},
    {"int4", 4, "", 128, Kind::kNone},
    {"int3", 3, "", 128, Kind::kNone},
    {"int2", 2, "", 64, Kind::kNone},
    {"w8a8", 8, "", 0, Kind::kInt8PerToken},
    {"w8a8-static", 8, "", 0, Kind::kInt8Static},
    {"nf4", 4, "nf4", 64, Kind::kNone},
    {"fp4", 4, "fp4", 64, Kind::kNone},
    {"fp8", 8, "f8_e4m3", 0, Kind::kF8E4M3PerToken},
    {"ternary", 2, "ternary", 0, Kind::kInt8PerToken},
};

}  // namespace

std::span<const GroupType> group_types() { return kTypes; }

const GroupType* find_group_type(std::string_view name) {
  const auto* type =
      std::ranges::find_if(kTypes, [&](const GroupType& t) { return t.name == name; });
  return type == std::end(kTypes) ? nullptr : type;
}

GroupCoding coding_of(const GroupType& type) {
  GroupCoding coding;
  coding.bits = type.bits;
  coding.group_size = type.group_size;
  const bool nf4 = type.codebook == "nf4", fp4 = type.codebook == "fp4";
  if (nf4) coding.codebook.assign(nf4_levels().begin(), nf4_levels().end());
  if (fp4) coding.codebook.assign(fp4_levels().begin(), fp4_levels().end());
  if (type.codebook == "f8_e4m3") coding.codebook = f8e4m3_levels();
  const bool full_scales = type.activations != Kind::kNone || nf4 || fp4;
  coding.scale_type = full_scales ? QuantType::kF32 : QuantType::kF16;
  return coding;
}

}  // namespace penstock
