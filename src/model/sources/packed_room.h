// Room on a disk for files of packed weights: together they take half at most of what they take and the disk has free.
#pragma once
#include <cstdint>
#include <filesystem>

namespace penstock {

// Bytes that all packed files of the folder may take.
uint64_t packed_limit(const std::filesystem::path& folder);

// Removes packed files of the folder, those first that were made or mapped longest ago, until the others and one of `bytes` in
// the place of `own` take no more than `limit`. False: it alone takes more; then nothing is removed. What is no packed file is
// left alone, and not counted.
bool make_packed_room(const std::filesystem::path& folder, const std::filesystem::path& own, uint64_t bytes,
                      uint64_t limit);

}  // namespace penstock
