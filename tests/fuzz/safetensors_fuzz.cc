// Any bytes are a safetensors file or one error. What is accepted is decoded, so that the
// sanitizers see every byte read.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace penstock;
  const auto parsed = parse_safetensors(std::as_bytes(std::span(data, size)), "fuzz");
  if (!parsed) return 0;
  for (const TensorInfo& tensor : *parsed) {
    std::vector<float> values(static_cast<size_t>(tensor.n_elements()));
    dequantize_row(tensor.type, tensor.bytes.data(), values.data(), tensor.n_elements());
  }
  return 0;
}
