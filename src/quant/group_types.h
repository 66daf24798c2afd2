// The encodings by group that have a name ("int4"), for whoever quantizes.
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

// THE list.
std::span<const GroupType> group_types();
const GroupType* find_group_type(std::string_view name);  // null: there is none

// Symmetric codes of the type with scales as files of it have them, not for "ternary".
GroupCoding coding_of(const GroupType& type);

}  // namespace penstock
