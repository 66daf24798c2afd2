// GGUF and safetensors files put together byte by byte, so that tests can make impossible ones.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "formats/gguf_types.h"

namespace penstock {

class GgufBytes {
 public:
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;  // innermost first, as in the file
    uint32_t type;
    uint64_t offset;
  };

  uint32_t magic = kGgufMagic;
  uint32_t version = 3;
  // The counts that the header claims when they are not the real ones.
  int64_t claimed_tensors = -1;
  int64_t claimed_pairs = -1;
  std::vector<Tensor> tensors;
  std::string pairs;
  uint64_t n_pairs = 0;
  size_t alignment = 32;
  size_t data_bytes = 0;

  template <class T>
  static std::string raw(T value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  static std::string text(std::string_view value) {
    return raw<uint64_t>(value.size()) + std::string(value);
  }

  // value: the bytes after the type.
  void pair(std::string_view key, GgufValueType type, const std::string& value) {
    pairs += text(key) + raw(type) + value;
    ++n_pairs;
  }
  void pair_u32(std::string_view key, uint32_t value) {
    pair(key, GgufValueType::kUint32, raw(value));
  }

  std::string bytes() const {
    std::string out = raw(magic) + raw(version);
    out += raw<uint64_t>(claimed_tensors < 0 ? tensors.size()
                                             : static_cast<uint64_t>(claimed_tensors));
    out +=
        raw<uint64_t>(claimed_pairs < 0 ? n_pairs : static_cast<uint64_t>(claimed_pairs)) + pairs;
    for (const Tensor& tensor : tensors) {
      out += text(tensor.name) + raw<uint32_t>(static_cast<uint32_t>(tensor.dims.size()));
      for (const uint64_t dim : tensor.dims) out += raw(dim);
      out += raw(tensor.type) + raw(tensor.offset);
    }
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    out.resize(out.size() + data_bytes, '\1');
    return out;
  }
};

inline std::string safetensors_bytes(const std::string& header, size_t data_bytes) {
  return GgufBytes::raw<uint64_t>(header.size()) + header + std::string(data_bytes, '\1');
}

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace penstock
