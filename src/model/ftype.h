// File types: which encoding each weight of a model gets under a name like "q4_k_m". Most files use more than one.
#pragma once
#include <string_view>
#include <vector>

#include "base/result.h"
#include "quant/quant_type.h"

namespace penstock {

// What a matrix does; the rules are by role and layer.
enum class WeightRole : uint8_t { kEmbedding, kOutput, kQ, kK, kV, kO, kGateUp, kDown, kRouter };

struct FileType {
  std::string_view name;
  int number = -1;              // general.file_type, as llama.cpp numbers them, or -1
  QuantType base;               // of everything the rules below do not name
  QuantType output;             // the vocabulary projection (and a tied embedding)
  QuantType value, value_more;  // v: usual layers, and the layers that get more bits
  QuantType down, down_more;    // the down projection likewise
  QuantType attention_output;
};

// THE list of those that mix encodings; every encoding's own name is one too (all matrices in it; of the ternary ones
// the layers' only).
std::span<const FileType> file_types();
Result<FileType> find_file_type(std::string_view name);

// The encoding of one matrix. Rows that are no whole number of blocks get the next larger encoding that fits,
// F16 at last.
QuantType choose_type(const FileType& ftype, WeightRole role, int layer, int n_layers, bool tied, int cols);

}  // namespace penstock
