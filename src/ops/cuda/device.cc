#include "ops/cuda/device.h"

#include <spdlog/spdlog.h>

#include "base/log.h"

namespace penstock::cuda {

Status Device::status() const {
  if (failed_ != nullptr) return tl::unexpected(*failed_);
  return {};
}

void Device::fail(Error error) {
  if (failed_ != nullptr) return;
  log().error("{}", error.message);
  failed_ = std::make_unique<const Error>(std::move(error));
}

void Device::begin_recording() {
  mode_ = Mode::kRecording;
  if (!failed()) begin_capture();
}

std::unique_ptr<Recording> Device::end_recording() {
  const Mode mode = std::exchange(mode_, Mode::kDoing);
  return mode == Mode::kRecording && !failed() ? end_capture() : nullptr;
}

void Device::spoil() {
  if (mode_ != Mode::kRecording) return;
  mode_ = Mode::kSpoiled;
  if (!failed()) (void)end_capture();
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
