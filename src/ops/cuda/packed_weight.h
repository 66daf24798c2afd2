// Packs weights for the device: the layout (kernels/weight.h) is made on the host, by all threads,
// tile by tile.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "ops/cuda/device.h"
#include "ops/cuda/kernels/weight.h"
#include "ops/cuda/staged_copies.h"
#include "ops/ops.h"

namespace penstock::cuda {

inline constexpr int kTileRows = WeightOnDevice::kTileRows, kUnitCols = WeightOnDevice::kUnitCols;

// Rounding of a product's inputs (ActivationCoding).
struct InputRounding {
  bool to_int8 = false;
  float fixed_scale = 0.0f;  // 0: one scale for each row
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

// Parts of a weight on the device, in order: tiles, levels of its codes, order of its inputs.
class WeightParts {
 public:
  WeightParts(const WeightOnDevice& shape, bool has_order);
  size_t levels_at() const { return tiles_; }
  size_t order_at() const { return tiles_ + levels_; }
  size_t bytes() const { return tiles_ + levels_ + order_; }

 private:
  size_t tiles_, levels_, order_;  // bytes
};

// A weight in the device's form that lies in the host's memory.
struct WeightImage {
  WeightOnDevice shape;  // without addresses
  WeightParts parts;
  InputRounding rounding;
  std::unique_ptr<std::byte[]> bytes;  // parts.bytes()

  // Returns the weight whose bytes were copied to `data` on the device.
  WeightOnDevice at(const std::byte* data) const;
};

class ImageWeight final : public Weight {
 public:
  explicit ImageWeight(std::shared_ptr<const WeightImage> image) : image_(std::move(image)) {}
  int rows() const override { return image_->shape.rows; }
  int cols() const override { return image_->shape.cols; }
  int64_t packed_bytes() const override { return static_cast<int64_t>(image_->parts.bytes()); }
  const std::shared_ptr<const WeightImage>& image() const { return image_; }

 private:
  std::shared_ptr<const WeightImage> image_;
};

// Sets padded_cols, unit_bytes and tile_bytes from the other members.
void set_layout(WeightOnDevice& shape);

// Codes and scales of one row, before packing.
struct RowCodes {
  std::vector<uint8_t> codes;                // [cols], in the order of the columns
  std::vector<float> scales, offsets;        // [cols / group]
  std::vector<int16_t> zeros;                // the same
  std::vector<int8_t> sub_scales, sub_mins;  // the same
  std::vector<float> factors, min_factors;   // [cols / 256]
};

// A matrix for the packer: its layout without addresses, and access to rows by index. Float rows
// are given in their final form.
struct WeightSource {
  WeightOnDevice shape;
  std::vector<float> levels;
  std::vector<int32_t> input_order;
  InputRounding rounding;
  std::function<void(int row, RowCodes& out)> codes;
  std::function<void(int row, std::byte* out)> floats;
};

// Error: kInvalidArgument (no such shape).
Result<WeightSource> source_of(const QuantizedMatrix& matrix);
Result<WeightSource> source_of(const GroupedMatrix& matrix, int first_row, int n_rows);

class WeightPacker {
 public:
  WeightPacker(Device& device, ThreadPool& pool) : device_(device), pool_(pool), copies_(device) {}
  // Error: kResourceExhausted.
  Result<std::unique_ptr<Weight>> pack(const WeightSource& source);
  // As pack(), into the host's memory. Error: kResourceExhausted.
  Result<std::unique_ptr<Weight>> pack_image(const WeightSource& source);
  // See Ops::describe and Ops::store (stored_weight.cc).
  static std::string describe(const CudaWeight& weight);
  OwnedBytes store(const CudaWeight& weight) const;
  Result<std::unique_ptr<Weight>> restore(const StoredWeight& stored);

 private:
  // Restores stored bytes. REQUIRES: they have the size of `parts`.
  Result<std::unique_ptr<Weight>> put_back(const WeightOnDevice& shape, const WeightParts& parts,
                                           InputRounding rounding,
                                           std::span<const std::byte> bytes);

  Device& device_;
  ThreadPool& pool_;
  StagedCopies copies_;
};

}  // namespace penstock::cuda
