// The names of weights in files.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/weights.h"

namespace penstock {

NameTable tensor_names(const ModelConfig& config, Naming naming);
// The name with the index in the place of {}.
std::string with_index(std::string_view pattern, int index);
// For qkv_by_group: row r of q, k and v one after the other is row rows_by_group()[r] of the fused projection.
std::vector<int> rows_by_group(const ModelConfig& config);
// Tensors that files may have and no forward needs: cached frequencies and masks, other modalities.
bool is_ignorable_tensor(std::string_view name);
// Of a checkpoint that sees or hears beside reading.
bool is_of_another_modality(std::string_view name);

}  // namespace penstock
