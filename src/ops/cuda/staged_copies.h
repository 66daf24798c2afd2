// Copies data that the host produces piece by piece to the device through two pinned buffers: one
// is filled while the other is copied.
#pragma once
#include <cstddef>
#include <span>

#include "ops/cuda/device.h"

namespace penstock::cuda {

class StagedCopies {
 public:
  static constexpr size_t kPieceBytes = size_t{16} << 20;  // recommended maximum of a piece

  // least: minimum size of a buffer, in bytes.
  explicit StagedCopies(Device& device, size_t least = kPieceBytes)
      : device_(device), least_(least) {}
  ~StagedCopies();
  StagedCopies(const StagedCopies&) = delete;
  StagedCopies& operator=(const StagedCopies&) = delete;

  // Returns the buffer for the next piece; its previous content has been copied when this returns.
  // Error: kResourceExhausted.
  Result<std::span<std::byte>> next(size_t bytes);
  // Copies the piece from next() to its place.
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
