#include "ops/cuda/device_rates.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "ops/cuda/cuda_ops.h"

namespace penstock::cuda {
namespace {

constexpr int kRounds = 5;
constexpr int kBlocks = 1056;  // 8 for each of an H200's 132 multiprocessors

}  // namespace

template <class Fn>
double DeviceRates::seconds_of(Fn&& fn) {
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    device_.wait(device_.mark());
    const auto start = std::chrono::steady_clock::now();
    fn();
    device_.wait(device_.mark());
    least = std::min(
        least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return std::max(least, 1e-9);
}

double DeviceRates::move(int64_t bytes, bool copies) {
  const bool small = device_.emulated();
  const int64_t n = (small ? int64_t{1} << 16 : bytes) / int64_t{sizeof(FourWords)};
  const int blocks = small ? 2 : kBlocks;
  auto from = Memory::make(device_, static_cast<size_t>(n) * sizeof(FourWords));
  auto to = Memory::make(
      device_, copies ? static_cast<size_t>(n) * sizeof(FourWords)
                      : sizeof(uint32_t) * static_cast<size_t>(blocks) * ReadMemory::kThreads);
  if (!from || !to) return 0;
  device_.clear(from->data(), from->bytes());
  const double seconds = seconds_of([&] {
    if (copies) {
      device_.launch(CopyMemory{from->as<const FourWords>(), n, to->as<FourWords>()}, Grid{blocks});
    } else {
      device_.launch(ReadMemory{from->as<const FourWords>(), n, to->as<uint32_t>()}, Grid{blocks});
    }
  });
  return static_cast<double>(n) * sizeof(FourWords) * (copies ? 2 : 1) / seconds;
}

template <Operand kOperand>
double DeviceRates::multiply() {
  using Kernel = MultiplyInRegisters<kOperand>;
  const int blocks = device_.emulated() ? 1 : kBlocks, n = device_.emulated() ? 1 : 2048;
  auto out = Memory::make(device_, sizeof(float) * static_cast<size_t>(blocks) * Kernel::kThreads);
  if (!out) return 0;
  const double seconds =
      seconds_of([&] { device_.launch(Kernel{n, out->template as<float>()}, Grid{blocks}); });
  float first = 0;
  device_.copy_out(&first, out->data(), sizeof first);
  return first != 0 ? Kernel::operations(blocks, n) / seconds : 0;
}

double DeviceRates::launch() {
  const int n = device_.emulated() ? 10 : 2000;
  return seconds_of([&] {
           for (int i = 0; i < n; ++i) device_.launch(DoNothing{}, Grid{});
         }) /
         n;
}

double DeviceRates::recorded_launch() {
  const int n = device_.emulated() ? 10 : 2000;
  device_.begin_recording();
  for (int i = 0; i < n; ++i) device_.launch(DoNothing{}, Grid{});
  const std::unique_ptr<Recording> recording = device_.end_recording();
  if (recording == nullptr) return 0;
  return seconds_of([&] { device_.play(*recording); }) / n;
}

double DeviceRates::early_launch() {
  device_.start_early(true);
  const double seconds = recorded_launch();
  device_.start_early(false);
  return seconds;
}

MachineLimits machine_limits(Device& device, int64_t read_bytes) {
  DeviceRates rates(device);
  constexpr int64_t kMostBytes = int64_t{512} << 20;
  const ComputeLimit floats{"BF16 by mma", rates.multiply<Operand::kBF16>()};
  const ComputeLimit integers{"INT8 by mma", rates.multiply<Operand::kInt8>()};
  return {rates.read(read_bytes > 0 ? std::min(read_bytes, kMostBytes) : kMostBytes), floats,
          faster(floats, integers)};
}

DeviceLimits device_limits(Device& device) {
  constexpr int64_t kBytes = int64_t{512} << 20;  // larger than every cache
  DeviceRates rates(device);
  const auto tera = [](double rate) { return rate / 1e12; };
  return {{{"read", rates.read(kBytes) / 1e9, "GB/s"},
           {"copy (read and written)", rates.copy(kBytes) / 1e9, "GB/s"},
           {"BF16 by mma", tera(rates.multiply<Operand::kBF16>()), "Tflop/s"},
           {"FP8 by mma", tera(rates.multiply<Operand::kF8>()), "Tflop/s"},
           {"INT8 by mma", tera(rates.multiply<Operand::kInt8>()), "Top/s"},
           {"launch", rates.launch() * 1e6, "us"},
           {"launch in a graph", rates.recorded_launch() * 1e6, "us"},
           {"early launch in a graph", rates.early_launch() * 1e6, "us"}},
          device.emulated()};
}

}  // namespace penstock::cuda

namespace penstock {

DeviceLimits sample_device(Ops& ops) {
  auto* const own = dynamic_cast<cuda::CudaOps*>(&ops);
  return own != nullptr ? cuda::device_limits(own->device()) : DeviceLimits{};
}

}  // namespace penstock
