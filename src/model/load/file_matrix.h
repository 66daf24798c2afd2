// A matrix as a file holds it, on the way to a backend.
#pragma once
#include <cstddef>
#include <optional>
#include <vector>

#include "formats/prequantized.h"
#include "formats/weight_source.h"

namespace penstock {

// A matrix to pack: in the file, rewritten into `storage`, or as another quantizer stored it.
struct FileMatrix {
  QuantizedMatrix view;
  std::vector<std::byte> storage;
  std::optional<GroupedMatrix> grouped;  // then view is unused
  const TensorInfo* tensor = nullptr;
};

}  // namespace penstock
