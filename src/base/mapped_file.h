// A read-only memory map of a whole file.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>

#include "base/result.h"

namespace penstock {

class MappedFile {
 public:
  // Errors: kNotFound, kIo. An empty file maps to an empty span.
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Tells the system that these bytes will not be read again soon (they may be read again, at the price of disk).
  void drop(std::span<const std::byte> part) const;

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace penstock
