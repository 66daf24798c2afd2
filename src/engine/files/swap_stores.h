// The implementations of SwapStore: slots in host memory, or in a file.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "engine/compute/swap_store.h"

namespace penstock {

struct SwapLayout {
  std::vector<int64_t> block_bytes;  // [n_groups]
  std::vector<int> n_slots;          // [n_groups]
  int64_t bytes() const;
};
// Divides `bytes` into slots, with the groups in the proportion of the cache's n_blocks.
SwapLayout swap_layout(int64_t bytes, std::span<const int64_t> block_bytes,
                       std::span<const int> n_blocks);

// Makes a swap space in host memory, which is taken from the system as slots are first written.
// Errors: kResourceExhausted.
Result<std::unique_ptr<SwapStore>> make_memory_swap(const SwapLayout& layout);
// Makes a swap space in an unnamed file in `folder`, which vanishes with the process. Disk space is
// taken as slots are first written. Errors: kIo.
Result<std::unique_ptr<SwapStore>> make_file_swap(const SwapLayout& layout,
                                                  const std::filesystem::path& folder);

}  // namespace penstock
