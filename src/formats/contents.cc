#include "formats/contents.h"

#include <fmt/format.h>

#include "base/checksum.h"

namespace penstock {

std::string contents_of(const WeightSource& source) {
  std::string text;
  for (const TensorInfo& tensor : source.tensors()) {
    text +=
        fmt::format("{} {} {:016x}\n", tensor.name, tensor.bytes.size(), checksum64(tensor.bytes));
  }
  return text;
}

}  // namespace penstock
