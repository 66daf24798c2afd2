// A read-only memory map of a whole file.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/byte_lines.h"
#include "base/result.h"

namespace penstock {

// What changes when a file's content does, unless someone takes care that it does not.
struct FileStamp {
  uint64_t size = 0, inode = 0;
  int64_t modified_ns = 0;
  bool operator==(const FileStamp&) const = default;
};

// Begins to read what of these bytes, which lie in a mapped file, is not in memory. How many bytes that is.
int64_t read_missing(std::span<const std::byte> part);

class MappedFile {
 public:
  // Errors: kNotFound, kIo. An empty file maps to an empty span.
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const FileStamp& stamp() const { return stamp_; }  // when it was opened

  // Tells the system that these bytes will not be read again soon (they may be read again, at the price of disk).
  void drop(std::span<const std::byte> part) const;
  // From now on no more is read than what is touched, page by page, and what read_ahead() names.
  void expect_parts() const;
  // Begins to read these lines, with what shares their pages.
  void read_ahead(const ByteLines& lines) const;
  // Enters the part's pages into the page table at once, which costs less than one by one as they are touched.
  void populate(std::span<const std::byte> part) const;

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  FileStamp stamp_;
};

}  // namespace penstock
