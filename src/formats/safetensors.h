// The safetensors container: a JSON header of names, types, shapes and offsets, then the data.
#pragma once
#include <map>

#include "formats/mapped_source.h"

namespace penstock {

// True when the first bytes look like a safetensors header.
bool is_safetensors(std::span<const std::byte> bytes);

// Returns the tensors, pointing into `bytes`, in the order of the data. They must cover the data
// without gaps or overlaps, as the format requires. where: name of the file in messages. Errors:
// kCorruptFile, kUnsupported.
Result<std::vector<TensorInfo>> parse_safetensors(std::span<const std::byte> bytes,
                                                  const std::string& where);

// Returns the format's name of a type ("BF16"); empty when the format lacks the type.
std::string_view safetensors_dtype(QuantType type);

}  // namespace penstock
