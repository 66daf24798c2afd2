// What the host makes piece by piece for the device: two buffers of pinned memory, so that one is filled while the other is on
// its way.
#pragma once
#include <cstddef>
#include <span>

#include "ops/cuda/device.h"

namespace penstock::cuda {

class StagedCopies {
 public:
  static constexpr size_t kPieceBytes = size_t{16} << 20;  // what a piece should have at most

  // least: bytes that a buffer has at least.
  explicit StagedCopies(Device& device, size_t least = kPieceBytes) : device_(device), least_(least) {}
  ~StagedCopies();
  StagedCopies(const StagedCopies&) = delete;
  StagedCopies& operator=(const StagedCopies&) = delete;

  // Where the next piece goes; when this returns, what was there before is on the device. Error: kResourceExhausted.
  Result<std::span<std::byte>> next(size_t bytes);
  // The piece that next() gave, to where it belongs.
  void send(void* to);

 private:
  struct Buffer {
    void* data = nullptr;
    size_t capacity = 0;
    StepTicket sent = 0;
  };
  void release(Buffer& buffer);

  Device& device_;
  const size_t least_;
  Buffer buffers_[2];
  int now_ = 0;
  size_t bytes_ = 0;
};

}  // namespace penstock::cuda
