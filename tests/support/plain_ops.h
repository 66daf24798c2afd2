// What a backend's packed weights are held against.
#pragma once
#include <list>
#include <vector>

#include "support/device_ops.h"

namespace penstock {

// The CPU with every matrix in F32.
class PlainOps final : public DeviceOps {
 public:
  PlainOps() : DeviceOps(make_ops("cpu", {.n_threads = 1, .batch_invariant = true}).value()) {}
  Result<std::unique_ptr<Weight>> pack(const QuantizedMatrix& matrix) override {
    std::vector<float>& values = new_values(matrix.rows, matrix.cols);
    for (int row = 0; row < matrix.rows; ++row) {
      dequantize_row(matrix.type, matrix.bytes.data() + static_cast<size_t>(row) * matrix.stride(),
                     values.data() + static_cast<size_t>(row) * static_cast<size_t>(matrix.cols),
                     matrix.cols);
    }
    return DeviceOps::pack(
        {QuantType::kF32, matrix.rows, matrix.cols, std::as_bytes(std::span(values))});
  }
  Result<std::unique_ptr<Weight>> pack_grouped(const GroupedMatrix& matrix, int first_row,
                                               int n_rows) override {
    // Where activations are rounded, they are so on the CPU.
    if (matrix.activations.kind != ActivationCoding::Kind::kNone)
      return DeviceOps::pack_grouped(matrix, first_row, n_rows);
    std::vector<float>& values = new_values(n_rows, matrix.cols);
    matrix.dequantize(first_row, n_rows, values.data());
    return DeviceOps::pack(
        {QuantType::kF32, n_rows, matrix.cols, std::as_bytes(std::span(values))});
  }

 private:
  std::vector<float>& new_values(int rows, int cols) {
    return values_.emplace_back(static_cast<size_t>(rows) * static_cast<size_t>(cols));
  }
  std::list<std::vector<float>> values_;  // weights may refer to them
};

}  // namespace penstock
