// Zip archives of uncompressed files, as torch writes them.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace penstock {

struct ZipEntry {
  std::string_view name;             // points into the archive, as `bytes` does
  std::span<const std::byte> bytes;  // content; empty when it is compressed
  bool compressed = false;
};

bool is_zip(std::span<const std::byte> bytes);

// Returns the entries of the archive's central directory in its order; reads zip64 too, and checks
// that every entry lies within the archive. where: name of the file in messages. Errors:
// kCorruptFile; kUnsupported for archives in several parts.
Result<std::vector<ZipEntry>> list_zip(std::span<const std::byte> bytes, const std::string& where);

}  // namespace penstock
