// Memory of one step: taken piece by piece, all given back at once. The same pieces in the same order lie where they lay in
// the step before, once a step has found all it needs in one place.
#pragma once
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "ops/cuda/device.h"

namespace penstock::cuda {

class StepMemory {
 public:
  explicit StepMemory(Device& device) : device_(device) {}

  // Everything taken before is free again. Returns whether what will be taken may lie elsewhere than before.
  bool reset() {
    used_ = taken_ = 0;
    if (pieces_.size() <= 1) return false;
    size_t total = 0;
    for (const Memory& piece : pieces_) total += piece.bytes();
    pieces_.clear();
    (void)grow(total);
    return true;
  }
  // The same, and all of it is given back to the device.
  void give_back() { pieces_.clear(), used_ = taken_ = 0; }
  // How much was taken since reset(), and all behind such a place is free again (as far as it is in one), or taken.
  size_t taken() const { return taken_; }
  void rewind(size_t taken) {
    if (pieces_.size() == 1) used_ = taken_ = taken;
  }
  void skip(size_t bytes) { PENSTOCK_CHECK(holds(bytes)), used_ += bytes, taken_ += bytes; }
  // Whether so much more can be taken from the place in which everything was taken since reset().
  bool holds(size_t bytes) const { return pieces_.size() == 1 && used_ + bytes <= pieces_.back().bytes(); }

  // 256-byte aligned. Error: kResourceExhausted.
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
  size_t used_ = 0;   // of the last one
  size_t taken_ = 0;  // of all, but for what is left over at their ends
};

}  // namespace penstock::cuda
