// The named group-wise encodings ("int4"), for quantizers.
#pragma once
#include <span>
#include <string_view>

#include "quant/grouped_encode.h"

namespace penstock {

struct GroupType {
  std::string_view name;
  int bits;
  std::string_view codebook;  // "", "nf4", "fp4", "f8_e4m3", "ternary"
  int group_size;             // default; 0: whole rows
  ActivationCoding::Kind activations;

  bool whole_rows() const {
    return activations != ActivationCoding::Kind::kNone || codebook == "f8_e4m3" ||
           codebook == "ternary";
  }
};

// Returns THE list.
std::span<const GroupType> group_types();
const GroupType* find_group_type(std::string_view name);  // null if unknown

// Returns the type's symmetric codes, with scales rounded as in its files. REQUIRES: not "ternary".
GroupCoding coding_of(const GroupType& type);

}  // namespace penstock
