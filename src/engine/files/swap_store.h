// Where the blocks of preempted sequences are kept: host memory, or a file. The scheduler says which slot
// holds what; this only moves bytes. Belongs to the engine thread.
#pragma once
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"

namespace penstock {

class SwapStore {
 public:
  virtual ~SwapStore() = default;
  // bytes.size() is the group's block_bytes. Errors: kIo, kResourceExhausted (the disk is full); the slot's
  // content is then undefined.
  virtual Status write(int group, int slot, std::span<const std::byte> bytes) = 0;
  // What was written last. Errors: kIo, kCorruptFile (the checksum of a file's block is wrong).
  virtual Status read(int group, int slot, std::span<std::byte> bytes) = 0;
};

struct SwapLayout {
  std::vector<int64_t> block_bytes;  // [n_groups]
  std::vector<int> n_slots;          // [n_groups]
  int64_t bytes() const;
};
// As many slots per group as `bytes` hold, in the proportion of the cache's own blocks.
SwapLayout swap_layout(int64_t bytes, std::span<const int64_t> block_bytes, std::span<const int> n_blocks);

// Memory is taken from the system as slots are first written. Errors: kResourceExhausted.
Result<std::unique_ptr<SwapStore>> make_memory_swap(const SwapLayout& layout);
// A file without a name in the folder: it vanishes with the process. Disk space is taken as slots are first
// written. Errors: kIo.
Result<std::unique_ptr<SwapStore>> make_file_swap(const SwapLayout& layout,
                                                  const std::filesystem::path& folder);

}  // namespace penstock
