// Checkpoints of torch.save: pytorch_model.bin. Nothing in them is executed (formats/pickle.h).
#pragma once
#include "formats/mapped_source.h"

namespace penstock {

// Whether the file is a zip archive, or of the form that torch wrote up to version 1.5 (pickles
// followed by storages).
bool is_pytorch(std::span<const std::byte> bytes);

// Returns the tensors of a state dict, sorted by name. They point into `bytes`; tensors that are
// not contiguous there are copied into `copies`, which takes at most as many bytes as the file has.
// where: name of the file in messages. Errors: kCorruptFile; kUnsupported for anything but tensors,
// or a number type that weights do not have.
Result<std::vector<TensorInfo>> parse_pytorch(std::span<const std::byte> bytes,
                                              const std::string& where,
                                              std::vector<std::vector<std::byte>>& copies);

}  // namespace penstock
