// Any bytes are a PyTorch file or one error. Of what is accepted every byte is read, so that the
// sanitizers see it.
#include <cstdint>
#include <vector>

#include "formats/pytorch.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace penstock;
  std::vector<std::vector<std::byte>> copies;
  const auto parsed = parse_pytorch(std::as_bytes(std::span(data, size)), "fuzz", copies);
  if (!parsed) return 0;
  for (const TensorInfo& tensor : *parsed) {
    std::vector<std::byte> values(tensor.bytes.begin(), tensor.bytes.end());
    static volatile std::byte last;
    if (!values.empty()) last = values.back();
  }
  return 0;
}
