// Disk space for files of packed weights: together they take at most half of the sum of their size
// and the free space.
#pragma once
#include <cstdint>
#include <filesystem>

namespace penstock {

// Returns the bytes that all packed files of the folder may take.
uint64_t packed_limit(const std::filesystem::path& folder);

// Removes packed files of the folder, the least recently created or mapped first (eviction
// victims), until the others and a file of `bytes` in the place of `own` take at most `limit`.
// Returns false, and removes nothing, if that file alone takes more. Other files are neither
// removed nor counted.
bool make_packed_room(const std::filesystem::path& folder, const std::filesystem::path& own,
                      uint64_t bytes, uint64_t limit);

}  // namespace penstock
