// The safetensors container: a JSON header of names, types, shapes and offsets, then the data.
#pragma once
#include <map>

#include "formats/mapped_source.h"

namespace penstock {

// True when the first bytes look like a safetensors header.
bool is_safetensors(std::span<const std::byte> bytes);

// The tensors, pointing into `bytes`, in the order of the data. They must cover the data without gaps or
// overlaps, as the format demands. `where` names the file in messages.
Result<std::vector<TensorInfo>> parse_safetensors(std::span<const std::byte> bytes, const std::string& where);

// The format's name of an encoding ("BF16"), or empty when it has none.
std::string_view safetensors_dtype(QuantType type);

}  // namespace penstock
