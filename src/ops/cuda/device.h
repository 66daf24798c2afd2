// Device: memory, copies and kernels in one order. There are two: the CUDA runtime (runtime/), and,
// for tests, this machine's processor, on which kernels of the same source run as fibers
// (tests/emulation/cuda/).
//
// Calls take effect in their order. Copies and kernels may return before they are done; copy_out()
// and wait() wait for all earlier ones. The first failure is kept (status()), and nothing is done
// after it, unless memory was refused and recover() is called.
//
// Kernels, and copies and clearing on the device, can be recorded instead of done and replayed any
// number of times.
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

// A sequence of launches with their parameters.
class Recording {
 public:
  virtual ~Recording() = default;  // waits for replays
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
  // Bytes of shared memory that a block may use, and that all blocks of a multiprocessor share;
  // each block takes 1 KiB more.
  int most_shared_bytes() const { return most_shared_bytes_; }
  int shared_bytes_of_multiprocessor() const { return shared_bytes_of_multiprocessor_; }
  // Returns how many blocks with so much shared memory run at once, up to three for each
  // multiprocessor; three on the emulated device, so that tests see blocks with several tiles.
  int n_blocks_at_once(int shared_bytes) const {
    if (emulated()) return 3;
    const int each = shared_bytes_of_multiprocessor() / (shared_bytes + 1024);
    return n_multiprocessors() * (each < 1 ? 1 : each > 3 ? 3 : each);
  }
  // Number of launches so far.
  uint64_t n_launches() const { return n_launches_; }
  // For tests: gives the emulated device the limit of other GPUs.
  void limit_shared_bytes(int of_block) { most_shared_bytes_ = of_block; }
  Status status() const;  // from any thread
  // Returns the cudaStream_t, for callers that enqueue work after that of the device; null for the
  // emulated device, which has then done everything.
  virtual void* raw_stream() { return stream_; }
  // Records a failure of the caller like one of the device.
  void give_up(Error error) { fail(std::move(error)); }
  // Starts kernels while earlier ones still run (kernels/launch.h). Initially off; without effect
  // on devices that cannot. Recordings keep the mode in which they were made.
  void start_early(bool on) { early_ = on && can_start_early_; }
  // Resumes work after memory was refused (kResourceExhausted). Returns false if the device is
  // lost.
  bool recover();
  virtual MemoryState memory() const = 0;

  // Allocates device memory, 256-byte aligned, not cleared. Error: kResourceExhausted with both
  // sizes, or that of status().
  virtual Result<void*> allocate(size_t bytes) = 0;
  virtual void release(void* memory) = 0;  // waits for its users
  // Number of releases so far: earlier recordings may refer to released memory.
  int64_t n_released() const { return n_released_; }

  // Allocates pinned host memory, from which copies are asynchronous and which kernels can write.
  // What they wrote is visible after a wait for a later mark(); undefined after a failure. Error:
  // kResourceExhausted.
  virtual Result<void*> allocate_host(size_t bytes) = 0;
  virtual void release_host(void* memory) = 0;
  // Copies from pinned memory asynchronously. REQUIRES: `from` is unchanged until a later mark()
  // was waited for.
  virtual void copy_in_behind(void* to, const void* from, size_t bytes) = 0;

  // Copies to the device. `from` may be reused when this returns.
  virtual void copy_in(void* to, const void* from, size_t bytes) = 0;
  // Copies to the host and waits; zeros after a failure.
  virtual void copy_out(void* to, const void* from, size_t bytes) = 0;
  virtual void copy_within(void* to, const void* from, size_t bytes) = 0;  // REQUIRES: no overlap
  virtual void clear(void* at, size_t bytes) = 0;

  // Copies from pinned memory beside the work that follows, when all work so far is done. REQUIRES:
  // nobody uses `to` or changes `from` until is_there() of the ticket, or wait_beside().
  virtual StepTicket copy_in_beside(void* to, const void* from, size_t bytes) = 0;
  virtual bool is_there(StepTicket copy) = 0;  // true after a failure
  virtual void wait_beside() = 0;              // for all such copies

  // Returns a mark after all work so far; wait() waits for all work before a mark.
  virtual StepTicket mark() = 0;
  virtual void wait(StepTicket ticket) = 0;

  // Records the following work instead of doing it. What cannot be replayed (allocation, release,
  // copies from or to the host) is done at once and spoils the recording: launches are then neither
  // done nor recorded until its end.
  void begin_recording();
  // Returns null if the recording was spoiled or the device has failed.
  std::unique_ptr<Recording> end_recording();
  virtual void play(const Recording& recording) = 0;

  template <class K>
  void launch(const K& kernel, Grid grid) {
    (void)kernel, (void)grid;  // in a build with neither device
    ++n_launches_;
    if (failed() || mode_ == Mode::kSpoiled || !may_launch()) return;
    if (emulated_) {
      if (grid.shared_bytes > most_shared_bytes_)
        return refuse(grid.shared_bytes, kernel_name<K>());
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
  // Returns false if a launch has failed.
  virtual bool may_launch() { return true; }
  // Called by operations that cannot be recorded.
  void spoil();
  virtual void begin_capture() = 0;
  virtual std::unique_ptr<Recording> end_capture() = 0;  // null after a failure
  // Runs a launch on the emulated device, or records it.
  virtual void emulate(std::function<void()> launch) { (void)launch; }
  // Fails a launch that needs more shared memory than a block may have.
  void refuse(int shared_bytes, const char* kernel);
  // Checks a cudaError_t; a failure is kept and logged.
  virtual void check(int code, const char* what) = 0;

  void* stream_ = nullptr;
  bool can_start_early_ = false, has_wgmma_ = false;
  uint64_t n_launches_ = 0;
  int n_multiprocessors_ = 1;
  // compute capability 9.0
  int most_shared_bytes_ = 227 << 10, shared_bytes_of_multiprocessor_ = 228 << 10;

 private:
  friend class Memory;
  std::string name_;
  bool emulated_, early_ = false;
  Mode mode_ = Mode::kDoing;
  bool captures_ = false;
  int64_t n_released_ = 0;
  std::atomic<bool> failed_ = false;
  mutable std::mutex mutex_;  // guards the error
  Error error_;
};

// Device memory, released with its owner.
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
    std::swap(device_, other.device_), std::swap(data_, other.data_),
        std::swap(bytes_, other.bytes_);
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

// Pinned host memory that kernels write, released with its owner.
class PinnedMemory {
 public:
  explicit PinnedMemory(Device& device) : device_(device) {}
  ~PinnedMemory() { reset(); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  // Ensures at least `bytes`, with undefined content. Waits for writers of earlier memory. Error:
  // kResourceExhausted.
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

// Opens the GPU. Error: kInvalidArgument (no driver, no GPU, or none that this program has code
// for).
Result<std::unique_ptr<Device>> open_cuda_device();
// capacity: bytes of memory; 0: that of the machine.
// emulation/cuda/trouble.h makes it fail
std::unique_ptr<Device> make_emulated_device(int64_t capacity = 0);

}  // namespace penstock::cuda
