// The names of weights in files.
#pragma once
#include <string_view>

#include "model/config.h"
#include "model/weights.h"

namespace penstock {

NameTable tensor_names(const ModelConfig& config, Naming naming);
// Tensors that files may have and no forward needs: cached frequencies and masks, other modalities.
bool is_ignorable_tensor(std::string_view name);

}  // namespace penstock
