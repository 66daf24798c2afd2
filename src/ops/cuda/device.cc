#include "ops/cuda/device.h"

#include <spdlog/spdlog.h>

#include "base/log.h"

namespace penstock::cuda {

Status Device::status() const {
  if (!failed()) return {};
  const std::lock_guard lock(mutex_);
  if (failed()) return tl::unexpected(error_);
  return {};
}

void Device::fail(Error error) {
  const std::lock_guard lock(mutex_);
  if (failed()) return;
  log().error("{}", error.message);
  error_ = std::move(error);
  failed_ = true;
}

void Device::refuse(int shared_bytes, const char* kernel) {
  fail({ErrorCode::kInternal, fmt::format("{}: expected at most {} bytes of shared memory, got {}",
                                          kernel, most_shared_bytes_, shared_bytes)});
}

bool Device::recover() {
  const std::lock_guard lock(mutex_);
  if (failed() && error_.code == ErrorCode::kResourceExhausted) failed_ = false;
  return !failed();
}

void Device::begin_recording() {
  mode_ = Mode::kRecording;
  captures_ = !failed();
  if (captures_) begin_capture();
}

std::unique_ptr<Recording> Device::end_recording() {
  mode_ = Mode::kDoing;
  if (!std::exchange(captures_, false)) return nullptr;
  std::unique_ptr<Recording> recording = end_capture();
  return failed() ? nullptr : std::move(recording);
}

void Device::spoil() {
  if (mode_ != Mode::kRecording) return;
  mode_ = Mode::kSpoiled;
  if (std::exchange(captures_, false)) (void)end_capture();
}

Result<Memory> Memory::make(Device& device, size_t bytes) {
  Memory memory;
  if (bytes == 0) return memory;
  ASSIGN_OR_RETURN(memory.data_, device.allocate(bytes));
  memory.device_ = &device, memory.bytes_ = bytes;
  return memory;
}

void Memory::reset() {
  if (data_ != nullptr) device_->release(data_), ++device_->n_released_;
  data_ = nullptr, bytes_ = 0;
}

}  // namespace penstock::cuda
