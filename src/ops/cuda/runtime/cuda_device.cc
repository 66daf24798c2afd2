// The CUDA runtime as a Device: one GPU, one stream. The runtime is linked statically and loads the
// driver on its first call, so the program starts on machines without one.
#include <cuda_runtime_api.h>

#include <spdlog/spdlog.h>

#include <cstring>
#include <deque>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "ops/cuda/device.h"

namespace penstock::cuda {
namespace {

class CudaGraph final : public Recording {
 public:
  CudaGraph(cudaGraphExec_t graph, cudaStream_t stream) : graph_(graph), stream_(stream) {}
  ~CudaGraph() override {
    cudaStreamSynchronize(stream_);
    cudaGraphExecDestroy(graph_);
  }
  cudaGraphExec_t get() const { return graph_; }

 private:
  cudaGraphExec_t graph_;
  cudaStream_t stream_;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const cudaDeviceProp& properties, cudaStream_t stream)
      : Device(fmt::format("cuda/{}", properties.name), false) {
    stream_ = stream;
    can_start_early_ = properties.major >= 9, has_wgmma_ = properties.major == 9;
    n_multiprocessors_ = properties.multiProcessorCount;
    most_shared_bytes_ = static_cast<int>(properties.sharedMemPerBlockOptin);
    shared_bytes_of_multiprocessor_ = static_cast<int>(properties.sharedMemPerMultiprocessor);
  }
  ~CudaDevice() override {
    cudaStreamSynchronize(stream());
    if (beside_ != nullptr) cudaStreamSynchronize(beside_), cudaStreamDestroy(beside_);
    for (const Mark& copy : copies_) cudaEventDestroy(copy.event);
    for (const Mark& mark : marks_) cudaEventDestroy(mark.event);
    for (cudaEvent_t event : free_events_) cudaEventDestroy(event);
    cudaStreamDestroy(stream());
  }

  MemoryState memory() const override {
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) return {};
    return {static_cast<int64_t>(total), static_cast<int64_t>(free)};
  }

  Result<void*> allocate(size_t bytes) override {
    spoil();
    if (failed()) return tl::unexpected(status().error());
    void* data = nullptr;
    const cudaError_t code = cudaMalloc(&data, bytes);
    if (code == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();  // clears the runtime's last error
      return errorf(ErrorCode::kResourceExhausted,
                    "{}: {} bytes of memory wanted, {} of {} are free", name(), bytes,
                    memory().free, memory().total);
    }
    check(code, "cudaMalloc");
    if (failed()) return tl::unexpected(status().error());
    return data;
  }
  void release(void* data) override {
    spoil();
    check(cudaFree(data), "cudaFree");
  }

  Result<void*> allocate_host(size_t bytes) override {
    spoil();
    if (failed()) return tl::unexpected(status().error());
    void* data = nullptr;
    if (const cudaError_t code = cudaMallocHost(&data, bytes); code != cudaSuccess) {
      (void)cudaGetLastError();
      return errorf(ErrorCode::kResourceExhausted, "{}: {} bytes of pinned memory of the host: {}",
                    name(), bytes, cudaGetErrorString(code));
    }
    return data;
  }
  void release_host(void* data) override {
    spoil();
    check(cudaFreeHost(data), "cudaFreeHost");
  }
  void copy_in_behind(void* to, const void* from, size_t bytes) override {
    spoil();
    if (!failed() && bytes > 0)
      check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream()),
            "copy to the device");
  }

  void copy_in(void* to, const void* from, size_t bytes) override {
    spoil();
    // From pageable memory, the runtime returns after it has read the source.
    if (!failed() && bytes > 0)
      check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream()),
            "copy to the device");
  }
  void copy_out(void* to, const void* from, size_t bytes) override {
    spoil();
    if (!failed() && bytes > 0) {
      check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream()),
            "copy from the device");
      check(cudaStreamSynchronize(stream()), "what was computed before a copy from the device");
    }
    if (failed()) std::memset(to, 0, bytes);
  }
  void copy_within(void* to, const void* from, size_t bytes) override {
    if (does(bytes))
      check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream()),
            "copy on the device");
  }
  void clear(void* at, size_t bytes) override {
    if (does(bytes)) check(cudaMemsetAsync(at, 0, bytes, stream()), "clearing memory");
  }

  StepTicket copy_in_beside(void* to, const void* from, size_t bytes) override {
    spoil();
    if (!failed() && beside_ == nullptr)
      check(cudaStreamCreateWithFlags(&beside_, cudaStreamNonBlocking), "cudaStreamCreate");
    cudaEvent_t event = nullptr;
    if (!failed())
      check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    // The event is of the work so far, then of the copy.
    if (!failed()) check(cudaEventRecord(event, stream()), "cudaEventRecord");
    if (!failed()) check(cudaStreamWaitEvent(beside_, event, 0), "cudaStreamWaitEvent");
    if (!failed())
      check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, beside_),
            "copy to the device beside a step");
    if (!failed()) check(cudaEventRecord(event, beside_), "cudaEventRecord");
    if (event != nullptr) copies_.push_back({n_copies_ + 1, event});
    return ++n_copies_;
  }
  // Copies are done in their order.
  bool is_there(StepTicket copy) override {
    while (!failed() && !copies_.empty() && copies_.front().ticket <= copy) {
      const cudaError_t code = cudaEventQuery(copies_.front().event);
      if (code == cudaErrorNotReady) return false;
      check(code, "a copy beside a step");
      cudaEventDestroy(copies_.front().event);
      copies_.pop_front();
    }
    return true;
  }
  void wait_beside() override {
    if (beside_ != nullptr && !failed())
      check(cudaStreamSynchronize(beside_), "copies beside a step");
  }

  void play(const Recording& recording) override {
    if (!failed())
      check(cudaGraphLaunch(static_cast<const CudaGraph&>(recording).get(), stream()),
            "a recorded step");
  }

  StepTicket mark() override {
    cudaEvent_t event = nullptr;
    if (!failed()) {
      if (free_events_.empty()) {
        check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
      } else {
        event = free_events_.back();
        free_events_.pop_back();
      }
      if (event != nullptr) check(cudaEventRecord(event, stream()), "cudaEventRecord");
    }
    if (event != nullptr) marks_.push_back({n_marks_ + 1, event});
    return ++n_marks_;
  }
  void wait(StepTicket ticket) override {
    while (!marks_.empty() && marks_.front().ticket <= ticket) {
      if (!failed()) check(cudaEventSynchronize(marks_.front().event), "a step");
      free_events_.push_back(marks_.front().event);
      marks_.pop_front();
    }
  }

 protected:
  void check(int code, const char* what) override {
    if (code == cudaSuccess) return;
    const auto error = static_cast<cudaError_t>(code);
    // the runtime itself lacks memory for the launch
    if (error == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      return fail({ErrorCode::kResourceExhausted,
                   fmt::format("{}: memory for {} refused, {} of {} bytes are free", name(), what,
                               memory().free, memory().total)});
    }
    fail({ErrorCode::kInternal,
          fmt::format("the GPU is lost to this process: {} failed in {}: {} ({})", name(), what,
                      cudaGetErrorString(error), cudaGetErrorName(error))});
  }
  // Relaxed mode lets other threads call the runtime during the capture.
  void begin_capture() override {
    check(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
  }
  std::unique_ptr<Recording> end_capture() override {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    // A refused capture is no failure of the device: the step is computed without a recording. A
    // lost device shows at the next call.
    cudaError_t code = cudaStreamEndCapture(stream(), &graph);
    if (code == cudaSuccess) code = cudaGraphInstantiate(&executable, graph, 0);
    if (graph != nullptr) cudaGraphDestroy(graph);
    if (code != cudaSuccess) {
      (void)cudaGetLastError();
      log().warn("{}: a step could not be recorded: {}", name(), cudaGetErrorString(code));
      return nullptr;
    }
    return std::make_unique<CudaGraph>(executable, stream());
  }

 private:
  // Whether copies within the device and clears, which are recorded like kernels, are performed.
  bool does(size_t bytes) const { return !failed() && mode() != Mode::kSpoiled && bytes > 0; }
  struct Mark {
    StepTicket ticket;
    cudaEvent_t event;
  };
  cudaStream_t stream() const { return static_cast<cudaStream_t>(stream_); }
  cudaStream_t beside_ = nullptr;  // made by the first copy that takes it
  std::deque<Mark> copies_;        // on it
  StepTicket n_copies_ = 0;
  std::deque<Mark> marks_;
  std::vector<cudaEvent_t> free_events_;
  StepTicket n_marks_ = 0;
};

}  // namespace

Result<std::unique_ptr<Device>> open_cuda_device() {
  const auto refuse = [](std::string_view what) {
    return errorf(ErrorCode::kInvalidArgument, "backend cuda: {}", what);
  };
  int n_devices = 0, driver = 0;
  cudaDriverGetVersion(&driver);
  const cudaError_t counted = cudaGetDeviceCount(&n_devices);
  if (driver == 0) return refuse("no NVIDIA driver is installed on this machine");
  if (counted == cudaErrorInsufficientDriver) {
    return refuse(fmt::format("the driver is for CUDA {}.{}, expected {}.{} or newer",
                              driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                              CUDART_VERSION % 1000 / 10));
  }
  if (counted != cudaSuccess || n_devices == 0)
    return refuse(fmt::format("no GPU is visible ({})", cudaGetErrorString(counted)));
  cudaDeviceProp properties;
  cudaStream_t stream = nullptr;
  if (const cudaError_t code = cudaGetDeviceProperties(&properties, 0); code != cudaSuccess)
    return refuse(cudaGetErrorString(code));
  const bool has_code = properties.major == 8 || (properties.major == 9 && properties.minor == 0);
  if (!has_code) {
    return refuse(fmt::format("{} has compute capability {}.{}, expected 8.x or 9.0",
                              properties.name, properties.major, properties.minor));
  }
  if (const cudaError_t code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      code != cudaSuccess)
    return refuse(cudaGetErrorString(code));
  return std::make_unique<CudaDevice>(properties, stream);
}

}  // namespace penstock::cuda
