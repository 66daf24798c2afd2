#include "ops/cuda/staged_copies.h"

#include <algorithm>

namespace penstock::cuda {

StagedCopies::~StagedCopies() {
  for (Buffer& buffer : buffers_) release(buffer);
}

void StagedCopies::release(Buffer& buffer) {
  if (buffer.data == nullptr) return;
  device_.wait(buffer.sent);
  device_.release_host(buffer.data);
  buffer = {};
}

Result<std::span<std::byte>> StagedCopies::next(size_t bytes) {
  now_ = 1 - now_;
  Buffer& buffer = buffers_[now_];
  if (buffer.capacity < bytes) {
    release(buffer);
    const size_t capacity = std::max(bytes, least_);
    ASSIGN_OR_RETURN(buffer.data, device_.allocate_host(capacity));
    buffer.capacity = capacity;
  }
  device_.wait(buffer.sent);
  bytes_ = bytes;
  return std::span(static_cast<std::byte*>(buffer.data), bytes);
}

void StagedCopies::send(void* to) {
  Buffer& buffer = buffers_[now_];
  device_.copy_in_behind(to, buffer.data, bytes_);
  buffer.sent = device_.mark();
}

}  // namespace penstock::cuda
