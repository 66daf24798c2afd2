// A rank-2 view into a backend's memory. Rows are tokens, columns features.
//
// A handle for callers of Ops: its shape may be read; its memory belongs to the backend and may not
// be host memory. Ops::read_rows and write_rows copy from and to the host.
#pragma once
#include <cstddef>
#include <cstdint>

namespace penstock {

enum class DType : uint8_t { kF32, kF16, kBF16, kI8, kI32 };

constexpr int dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kI8: return 1;
    case DType::kF16:
    case DType::kBF16: return 2;
    default: return 4;
  }
}

// Role of a tensor, by which a backend may choose its type.
enum class TensorRole : uint8_t {
  kActivation,  // input or output of a sub-layer
  kStream,      // the residual stream, which every layer adds to
  kLogits,      // scores; always F32
};

struct Tensor {
  void* data = nullptr;  // memory of the backend
  DType dtype = DType::kF32;
  int rows = 0;
  int cols = 0;
  ptrdiff_t row_stride = 0;  // elements between rows

  // Columns [first, first + count).
  Tensor columns(int first, int count) const { return {at(first), dtype, rows, count, row_stride}; }
  // Rows [first, first + count).
  Tensor row_range(int first, int count) const {
    return {at(first * row_stride), dtype, count, cols, row_stride};
  }
  // Rows first, first + step, ...
  Tensor every(int first, int step) const {
    return {at(first * row_stride), dtype, (rows - first + step - 1) / step, cols,
            step * row_stride};
  }
  // As many rows with fewer columns, contiguous in the same memory: for layers that need less of a
  // step's tensors.
  Tensor narrowed(int new_cols) const { return {data, dtype, rows, new_cols, new_cols}; }
  // The same contiguous elements as rows of `new_cols` (row_stride must equal cols): heads as rows,
  // for example.
  Tensor reshaped(int new_cols) const {
    return {data, dtype, static_cast<int>(static_cast<int64_t>(rows) * cols / new_cols), new_cols,
            new_cols};
  }

 private:
  void* at(ptrdiff_t element) const {
    return static_cast<std::byte*>(data) + element * dtype_bytes(dtype);
  }
};

}  // namespace penstock
