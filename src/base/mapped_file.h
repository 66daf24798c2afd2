// A read-only memory map of a whole file.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/byte_lines.h"
#include "base/result.h"

namespace penstock {

// Stamp of a file, which changes with its content unless somebody resets the time on purpose.
struct FileStamp {
  uint64_t size = 0, inode = 0;
  int64_t modified_ns = 0;
  bool operator==(const FileStamp&) const = default;
};

// Begins to read those of the bytes that are not in memory; returns their number. REQUIRES: `part`
// is in a mapped file.
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
  const FileStamp& stamp() const { return stamp_; }  // stamp of the file when it was opened

  // Tells the system that these bytes will not be read again soon (they may be read again, at the
  // price of disk).
  void drop(std::span<const std::byte> part) const;
  // Turns off the system's own read-ahead: from now on only pages that are touched or passed to
  // read_ahead() are read.
  void expect_parts() const;
  // Begins to read the pages of these lines.
  void read_ahead(const ByteLines& lines) const;
  // Maps all pages of the part at once, which costs less than a page fault for each of them.
  void populate(std::span<const std::byte> part) const;

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  FileStamp stamp_;
};

}  // namespace penstock
