// A rank-2 view into device memory. Rows are tokens, columns features.
#pragma once
#include <cstddef>
#include <cstdint>

namespace penstock {

enum class DType : uint8_t { kF32, kF16, kBF16, kI8, kI32 };

struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int rows = 0;
  int cols = 0;
  ptrdiff_t row_stride = 0;  // elements between rows

  float* f32(int row = 0) const { return static_cast<float*>(data) + row * row_stride; }
  // Columns [first, first + count) of an F32 tensor.
  Tensor columns(int first, int count) const {
    return {static_cast<float*>(data) + first, dtype, rows, count, row_stride};
  }
  // Rows [first, first + count) of an F32 tensor.
  Tensor row_range(int first, int count) const {
    return {static_cast<float*>(data) + first * row_stride, dtype, count, cols, row_stride};
  }
  // The same contiguous elements as rows of `new_cols` (row_stride must equal cols): heads as rows, for example.
  Tensor reshaped(int new_cols) const {
    return {data, dtype, static_cast<int>(static_cast<int64_t>(rows) * cols / new_cols), new_cols, new_cols};
  }
};

}  // namespace penstock
