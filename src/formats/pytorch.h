// Checkpoints of torch.save: pytorch_model.bin. Nothing in them is executed (formats/pickle.h).
#pragma once
#include "formats/mapped_source.h"

namespace penstock {

// A zip archive, or the form that torch wrote up to version 1.5: pickles, and storages behind them.
bool is_pytorch(std::span<const std::byte> bytes);

// The tensors of a state dict, sorted by name. They point into `bytes`; those that lie there with other strides than their shape's are
// laid in order in `copies`, which take at most as many bytes as the file has. `where` names the file in messages. Errors: kCorruptFile;
// kUnsupported where there is anything but tensors, or a type of number that no weight has.
Result<std::vector<TensorInfo>> parse_pytorch(std::span<const std::byte> bytes, const std::string& where,
                                              std::vector<std::vector<std::byte>>& copies);

}  // namespace penstock
