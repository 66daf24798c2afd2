#include "engine/files/block_file.h"

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "base/file_error.h"

namespace penstock {

uint64_t checksum(std::span<const std::byte> bytes, uint64_t seed) {
  uint64_t hash = seed ^ (bytes.size() * 0x9E3779B97F4A7C15ull);
  for (size_t i = 0; i < bytes.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min<size_t>(8, bytes.size() - i));
    hash = (hash ^ word) * 0xD6E8FEB86659FD93ull;
    hash ^= hash >> 32;
  }
  return hash;
}

Status write_whole_file(const std::filesystem::path& path, const char* what,
                        const std::function<void(std::ostream&)>& write) {
  std::filesystem::path temporary = path;
  temporary += ".part";
  std::error_code error;
  errno = 0;
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  if (out) write(out);
  out.close();
  if (!out) {
    const int code = errno != 0 ? errno : EIO;
    std::filesystem::remove(temporary, error);
    return errorf(file_error(code), "{}: cannot write the {}: {}", path.string(), what,
                  std::strerror(code));
  }
  std::filesystem::rename(temporary, path, error);
  if (error) return errorf(ErrorCode::kIo, "{}: {}", path.string(), error.message());
  return {};
}

}  // namespace penstock
