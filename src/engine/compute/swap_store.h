// Interface of the swap space, which keeps blocks of preempted sequences: slots of bytes, numbered
// by the scheduler.
// Engine thread only.
#pragma once
#include <cstddef>
#include <span>

#include "base/result.h"

namespace penstock {

class SwapStore {
 public:
  virtual ~SwapStore() = default;
  // Writes a block to a slot. bytes.size() is the group's block_bytes. Errors: kIo,
  // kResourceExhausted (the disk is full); the slot's content is then undefined.
  virtual Status write(int group, int slot, std::span<const std::byte> bytes) = 0;
  // Reads what was last written to the slot. Errors: kIo, kCorruptFile (the checksum of a file's
  // block is wrong).
  virtual Status read(int group, int slot, std::span<std::byte> bytes) = 0;
};

}  // namespace penstock
