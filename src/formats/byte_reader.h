// A cursor over little-endian bytes that never reads past the end: after a failed read every read
// fails.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace penstock {

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t offset() const { return offset_; }
  size_t remaining() const { return bytes_.size() - offset_; }
  bool ok() const { return ok_; }

  // Reads a value; T{} when it does not fit before the end.
  template <class T>
  T read() {
    T value = {};
    if (const std::byte* at = take(sizeof(T))) std::memcpy(&value, at, sizeof(T));
    return value;
  }

  // Skips n elements of `size` bytes and returns a pointer to them; nullptr when there are fewer.
  const std::byte* take(uint64_t n, size_t size = 1) {
    if (!ok_ || n > remaining() / size) {
      ok_ = false;
      return nullptr;
    }
    const std::byte* at = bytes_.data() + offset_;
    offset_ += static_cast<size_t>(n) * size;
    return at;
  }

  // Reads a 64-bit length and as many bytes.
  std::string_view read_string() {
    const auto length = read<uint64_t>();
    const std::byte* at = take(length);
    return at == nullptr ? std::string_view()
                         : std::string_view(reinterpret_cast<const char*>(at), length);
  }

 private:
  std::span<const std::byte> bytes_;
  size_t offset_ = 0;
  bool ok_ = true;
};

}  // namespace penstock
