#include "model/sources/packed_room.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/log.h"
#include "formats/packed_file.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kShare = 2;

struct Kept {
  fs::path path;
  uint64_t bytes;
  fs::file_time_type used;
};

std::vector<Kept> packed_files(const fs::path& folder) {
  std::vector<Kept> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() != kPackedSuffix || !PackedFile::read_origin(entry->path()))
      continue;
    std::error_code gone;
    const uint64_t bytes = entry->file_size(gone);
    if (gone) continue;
    // A time that has no number (far in the future, as of a wrong clock) counts as the oldest.
    std::error_code no_time;
    const fs::file_time_type used = entry->last_write_time(no_time);
    files.push_back({entry->path(), bytes, no_time ? fs::file_time_type::min() : used});
  }
  return files;
}

}  // namespace

uint64_t packed_limit(const fs::path& folder) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error) return std::numeric_limits<uint64_t>::max();  // the write will fail with the reason
  uint64_t all = space.available;
  for (const Kept& file : packed_files(folder)) all += file.bytes;
  return all / kShare;
}

bool make_packed_room(const fs::path& folder, const fs::path& own, uint64_t bytes, uint64_t limit) {
  if (bytes > limit) return false;
  std::vector<Kept> others = packed_files(folder);
  std::erase_if(others, [&](const Kept& file) { return file.path == own; });
  std::ranges::sort(others, {}, &Kept::used);
  uint64_t taken = bytes;
  for (const Kept& file : others) taken += file.bytes;
  for (const Kept& file : others) {
    if (taken <= limit) break;
    std::error_code error;
    if (!fs::remove(file.path, error)) continue;
    log().info(
        "packed weights of {} are removed: all of them may take {} MiB, half of the disk's room",
        file.path.string(), limit >> 20);
    taken -= file.bytes;
  }
  return true;
}

}  // namespace penstock
