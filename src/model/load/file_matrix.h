// A matrix as a file holds it, on the way to a backend.
#pragma once
#include <cstddef>
#include <optional>
#include <vector>

#include "formats/prequantized.h"
#include "formats/weight_source.h"

namespace penstock {

// A matrix to pack: a view of the file, a copy that was rewritten into `storage`, or the form of
// another quantizer.
struct FileMatrix {
  QuantizedMatrix view;
  std::vector<std::byte> storage;
  std::optional<GroupedMatrix> grouped;  // if set, `view` is unused
  const TensorInfo* tensor = nullptr;
};

}  // namespace penstock
