// Zip archives of files that are stored as they are, without compression, as torch writes them.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace penstock {

struct ZipEntry {
  std::string_view name;             // points into the archive, as `bytes` do
  std::span<const std::byte> bytes;  // empty where compressed
  bool compressed = false;
};

bool is_zip(std::span<const std::byte> bytes);

// What the archive's directory lists, in its order; zip64 too. Every entry lies within the archive. `where` names the file in messages.
// Errors: kCorruptFile; kUnsupported for archives in several parts.
Result<std::vector<ZipEntry>> list_zip(std::span<const std::byte> bytes, const std::string& where);

}  // namespace penstock
