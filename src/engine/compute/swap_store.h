// The place for blocks of preempted sequences, as the steps see it: slots of bytes, numbered by the scheduler.
// Engine thread only.
#pragma once
#include <cstddef>
#include <span>

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

}  // namespace penstock
