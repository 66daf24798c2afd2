// Memory of one step, allocated piece by piece and freed at once. Once a step's memory fits one
// block, equal sequences of pieces have equal addresses in all steps.
#pragma once
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "ops/cuda/device.h"

namespace penstock::cuda {

class StepMemory {
 public:
  explicit StepMemory(Device& device) : device_(device) {}

  // Frees everything. Returns whether the following pieces may have other addresses than before.
  bool reset() {
    used_ = taken_ = 0;
    if (pieces_.size() <= 1) return false;
    size_t total = 0;
    for (const Memory& piece : pieces_) total += piece.bytes();
    pieces_.clear();
    (void)grow(total);
    return true;
  }
  // Frees everything and returns the memory to the device.
  void give_back() { pieces_.clear(), used_ = taken_ = 0; }
  // Bytes allocated since reset(); and functions that free everything after such a position (within
  // one block), or allocate up to it.
  size_t taken() const { return taken_; }
  void rewind(size_t taken) {
    if (pieces_.size() == 1) used_ = taken_ = taken;
  }
  void skip(size_t bytes) { PENSTOCK_CHECK(holds(bytes)), used_ += bytes, taken_ += bytes; }
  // Whether this many more bytes fit the block that holds everything allocated since reset().
  bool holds(size_t bytes) const {
    return pieces_.size() == 1 && used_ + bytes <= pieces_.back().bytes();
  }

  // Allocates memory, 256-byte aligned. Error: kResourceExhausted.
  Result<void*> take(size_t bytes) {
    bytes = (std::max<size_t>(bytes, 1) + kAlign - 1) / kAlign * kAlign;
    if (pieces_.empty() || used_ + bytes > pieces_.back().bytes()) {
      RETURN_IF_ERROR(grow(std::max(bytes, kLeastPiece)));
      used_ = 0;
    }
    void* const taken = pieces_.back().as<std::byte>() + used_;
    used_ += bytes, taken_ += bytes;
    return taken;
  }

 private:
  static constexpr size_t kAlign = 256, kLeastPiece = size_t{4} << 20;
  Status grow(size_t bytes) {
    ASSIGN_OR_RETURN(Memory piece, Memory::make(device_, bytes));
    pieces_.push_back(std::move(piece));
    return {};
  }
  Device& device_;
  std::vector<Memory> pieces_;
  size_t used_ = 0;  // bytes used of the last block
  // bytes used of all blocks, without unused ends
  size_t taken_ = 0;
};

}  // namespace penstock::cuda
