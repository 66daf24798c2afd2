// What the backend needs of a device: memory, copies, kernels, in one order. Two do it: the CUDA runtime (runtime/), and
// this machine's processor (tests/emulation/cuda/), on which the kernels of the same source run as fibers, for tests.
//
// Everything happens in the order of the calls. Copies and kernels may return before they are done; copy_out() and wait()
// return when all before them is. The first failure stays (status()): from then on nothing is done any more, unless it was memory
// that was refused and recover() is called.
//
// Kernels, and copies and clearing on the device, can be recorded instead of done, and then be played as often as wanted.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/result.h"
#include "ops/cuda/kernels/launch.h"
#include "ops/ops.h"

namespace penstock::cuda {

// Launches in their order, with the parameters that they had.
class Recording {
 public:
  virtual ~Recording() = default;  // waits for what plays it
};

class Device {
 public:
  Device(std::string name, bool emulated) : name_(std::move(name)), emulated_(emulated) {}
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return name_; }
  bool emulated() const { return emulated_; }
  int n_multiprocessors() const { return n_multiprocessors_; }
  bool has_wgmma() const { return has_wgmma_; }
  // Bytes of shared memory that a block may ask for, and that all blocks of a multiprocessor have, each of which takes 1 KiB more.
  int most_shared_bytes() const { return most_shared_bytes_; }
  int shared_bytes_of_multiprocessor() const { return shared_bytes_of_multiprocessor_; }
  // Kernels that were asked for so far.
  uint64_t n_launches() const { return n_launches_; }
  // For tests, of the emulated device: as other GPUs have it.
  void limit_shared_bytes(int of_block) { most_shared_bytes_ = of_block; }
  Status status() const;  // from any thread
  // A cudaStream_t, for who asks for something behind what was asked of the device. Null of the emulated device, which has done all of
  // it then.
  virtual void* raw_stream() { return stream_; }
  // What was to be done cannot be done: a failure like the device's own.
  void give_up(Error error) { fail(std::move(error)); }
  // Kernels are started while those before them still run (kernels/launch.h). Off at first. Without effect on a
  // device that cannot. What was recorded stays as it is.
  void start_early(bool on) { early_ = on && can_start_early_; }
  // After memory was refused (kResourceExhausted) things are done again. False: the device is lost.
  bool recover();
  virtual MemoryState memory() const = 0;

  // 256-byte aligned, not cleared. Error: kResourceExhausted, with both sizes; or what status() says.
  virtual Result<void*> allocate(size_t bytes) = 0;
  virtual void release(void* memory) = 0;  // waits for what uses it
  // How often memory was given back: what was recorded before may point to it.
  int64_t n_released() const { return n_released_; }

  // Memory of the host from which copies go on by themselves, and which kernels can write (pinned). What they have written is
  // there when a later mark() was waited for; after a failure anything. Error: kResourceExhausted.
  virtual Result<void*> allocate_host(size_t bytes) = 0;
  virtual void release_host(void* memory) = 0;
  // From such memory, which stays as it is until a later mark() was waited for.
  virtual void copy_in_behind(void* to, const void* from, size_t bytes) = 0;

  // `from` may be used again when this returns.
  virtual void copy_in(void* to, const void* from, size_t bytes) = 0;
  // Waits. After a failure: zeros.
  virtual void copy_out(void* to, const void* from, size_t bytes) = 0;
  virtual void copy_within(void* to, const void* from, size_t bytes) = 0;  // they do not overlap
  virtual void clear(void* at, size_t bytes) = 0;

  // The present end of what was asked for, and returning when all up to one is done.
  virtual StepTicket mark() = 0;
  virtual void wait(StepTicket ticket) = 0;

  // From here on nothing is done but recorded. What cannot be played again (memory is asked for or given back, copies from or
  // to the host) is done at once and spoils the recording: then launches are neither done nor recorded until its end.
  void begin_recording();
  // Null: it was spoiled, or the device has failed.
  std::unique_ptr<Recording> end_recording();
  virtual void play(const Recording& recording) = 0;

  template <class K>
  void launch(const K& kernel, Grid grid) {
    (void)kernel, (void)grid;  // of a build with neither
    ++n_launches_;
    if (failed() || mode_ == Mode::kSpoiled || !may_launch()) return;
    if (emulated_) {
      if (grid.shared_bytes > most_shared_bytes_) return refuse(grid.shared_bytes, kernel_name<K>());
#ifdef PENSTOCK_CUDA_EMULATION
      emulate([kernel, grid] { Emulated<K>::launch(kernel, grid); });
#endif
    } else {
#ifdef PENSTOCK_CUDA
      check(OnCuda<K>::launch(kernel, grid, stream_, early_), kernel_name<K>());
#endif
    }
  }

 protected:
  enum class Mode : uint8_t { kDoing, kRecording, kSpoiled };
  void fail(Error error);
  bool failed() const { return failed_; }
  Mode mode() const { return mode_; }
  // False: a launch has failed.
  virtual bool may_launch() { return true; }
  // Called by what cannot be recorded.
  void spoil();
  virtual void begin_capture() = 0;
  virtual std::unique_ptr<Recording> end_capture() = 0;  // null after a failure
  // A launch on the emulated device: done in its turn, or recorded.
  virtual void emulate(std::function<void()> launch) { (void)launch; }
  // More shared memory than a block may have.
  void refuse(int shared_bytes, const char* kernel);
  // A cudaError_t of what was done; a failure is kept and logged.
  virtual void check(int code, const char* what) = 0;

  void* stream_ = nullptr;
  bool can_start_early_ = false, has_wgmma_ = false;
  uint64_t n_launches_ = 0;
  int n_multiprocessors_ = 1;
  int most_shared_bytes_ = 227 << 10, shared_bytes_of_multiprocessor_ = 228 << 10;  // compute capability 9.0

 private:
  friend class Memory;
  std::string name_;
  bool emulated_, early_ = false;
  Mode mode_ = Mode::kDoing;
  bool captures_ = false;
  int64_t n_released_ = 0;
  std::atomic<bool> failed_ = false;
  mutable std::mutex mutex_;  // of the error
  Error error_;
};

// Memory of a device, given back with its owner.
class Memory {
 public:
  Memory() = default;
  static Result<Memory> make(Device& device, size_t bytes);
  ~Memory() { reset(); }
  Memory(Memory&& other) noexcept
      : device_(other.device_),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(device_, other.device_), std::swap(data_, other.data_), std::swap(bytes_, other.bytes_);
    return *this;
  }

  void reset();
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Memory of the host that kernels write, given back with its owner.
class PinnedMemory {
 public:
  explicit PinnedMemory(Device& device) : device_(device) {}
  ~PinnedMemory() { reset(); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  // Of at least so many bytes, with anything in them; waits for who writes what was there. Error: kResourceExhausted.
  Status make_room(size_t bytes) {
    if (bytes <= bytes_) return {};
    reset();
    ASSIGN_OR_RETURN(data_, device_.allocate_host(2 * bytes));
    bytes_ = 2 * bytes;
    return {};
  }
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void reset() {
    if (data_ == nullptr) return;
    device_.wait(device_.mark());
    device_.release_host(std::exchange(data_, nullptr));
    bytes_ = 0;
  }
  Device& device_;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Error: kInvalidArgument, no driver, no GPU or none that this program has code for.
Result<std::unique_ptr<Device>> open_cuda_device();
bool cuda_device_available();
// capacity: bytes of memory; 0: what the machine has.
std::unique_ptr<Device> make_emulated_device(int64_t capacity = 0);  // emulation/cuda/trouble.h makes it fail

}  // namespace penstock::cuda
