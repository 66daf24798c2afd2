// Writes one safetensors file: describe every tensor, then stream their bytes (see GgufWriter).
#pragma once
#include <map>

#include "formats/tensor_file.h"

namespace penstock {

class SafetensorsWriter {
 public:
  // Sets an entry of the header's __metadata__ ("format": "pt").
  void set_metadata(std::string key, std::string value) {
    metadata_[std::move(key)] = std::move(value);
  }
  void add_tensor(std::string name, QuantType type, std::vector<int64_t> shape);
  // Writes the header and returns the file. Data is laid out by descending element size, so that
  // every tensor is aligned to its elements.
  // Errors: kInvalidArgument, kUnsupported for a type the format lacks, kIo.
  Result<TensorFile> create(const std::filesystem::path& path) const;

 private:
  struct Tensor {
    std::string name;
    QuantType type;
    std::vector<int64_t> shape;
  };
  std::map<std::string, std::string> metadata_;
  std::vector<Tensor> tensors_;
};

}  // namespace penstock
