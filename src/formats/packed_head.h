// The head of a file of packed weights, for its reader and its writer.
#pragma once
#include <cstddef>
#include <cstdint>

namespace penstock {

inline constexpr char kPackedMagic[8] = {'P', 'E', 'N', 'P', 'A', 'C', 'K', '\n'};
inline constexpr uint32_t kPackedVersion = 2;

struct PackedHead {
  char magic[8];
  // checksum of the head's bytes after this field
  uint64_t checksum;
  uint32_t version;
  uint32_t unused;
  uint64_t n_parts;
  uint64_t file_bytes;
  // Size of the whole head: this struct, two texts, the parts' names, descriptions, offsets and
  // sizes, the chunks' checksums.
  uint64_t head_bytes;
};
inline constexpr size_t kPackedSumEnd = 16;
static_assert(sizeof(PackedHead) == 48);

}  // namespace penstock
