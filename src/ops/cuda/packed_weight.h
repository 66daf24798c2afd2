// Weights on their way to the device: laid out on the host (kernels/weight.h), by all threads, tile by tile.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/thread_pool.h"
#include "ops/cuda/device.h"
#include "ops/cuda/kernels/weight.h"
#include "ops/ops.h"

namespace penstock::cuda {

inline constexpr int kTileRows = WeightOnDevice::kTileRows, kUnitCols = WeightOnDevice::kUnitCols;

// How products round what they read (ActivationCoding).
struct InputRounding {
  bool to_int8 = false;
  float fixed_scale = 0.0f;  // 0: each row its own
  bool operator==(const InputRounding&) const = default;
};

class CudaWeight final : public Weight {
 public:
  CudaWeight(const WeightOnDevice& shape, Memory memory, InputRounding rounding)
      : shape_(shape), memory_(std::move(memory)), rounding_(rounding) {}
  int rows() const override { return shape_.rows; }
  int cols() const override { return shape_.cols; }
  int64_t packed_bytes() const override { return static_cast<int64_t>(memory_.bytes()); }
  const WeightOnDevice& on_device() const { return shape_; }
  const InputRounding& rounding() const { return rounding_; }

 private:
  WeightOnDevice shape_;
  Memory memory_;
  InputRounding rounding_;
};

// Codes and scales of one row, before they are laid out.
struct RowCodes {
  std::vector<uint8_t> codes;                // [cols], in the order of the columns
  std::vector<float> scales, offsets;        // [cols / group]
  std::vector<int16_t> zeros;                // the same
  std::vector<int8_t> sub_scales, sub_mins;  // the same
  std::vector<float> factors, min_factors;   // [cols / 256]
};

// A matrix as the packer sees it: its layout but for the addresses, and its rows by number. Rows that are floats are given as
// they will lie.
struct WeightSource {
  WeightOnDevice shape;
  std::vector<float> levels;
  std::vector<int32_t> input_order;
  InputRounding rounding;
  std::function<void(int row, RowCodes& out)> codes;
  std::function<void(int row, std::byte* out)> floats;
};

// Errors: kInvalidArgument, no such shape.
Result<WeightSource> source_of(const QuantizedMatrix& matrix);
Result<WeightSource> source_of(const GroupedMatrix& matrix, int first_row, int n_rows);

class WeightPacker {
 public:
  WeightPacker(Device& device, ThreadPool& pool) : device_(device), pool_(pool) {}
  // Error: kResourceExhausted.
  Result<std::unique_ptr<Weight>> pack(const WeightSource& source);

 private:
  Device& device_;
  ThreadPool& pool_;
  std::vector<std::byte> staged_;
};

}  // namespace penstock::cuda
