// Conversion of tensors for kernels, and common grids.
#pragma once
#include "ops/cuda/kernels/launch.h"
#include "ops/cuda/kernels/rows.h"
#include "ops/tensor.h"

namespace penstock::cuda {

inline Rows rows_of(Tensor x) {
  return {static_cast<float*>(x.data), x.row_stride, x.rows, x.cols};
}
// Grid of a kernel with a block per row and 16 doubles of scratch for sums over it.
inline Grid a_block_per_row(Tensor x) { return {x.rows, 1, 16 * static_cast<int>(sizeof(double))}; }
// Grid of a kernel with a thread per element.
template <class K>
Grid a_thread_per_element(Tensor x) {
  return {x.rows, (x.cols + K::kThreads - 1) / K::kThreads, 0};
}

}  // namespace penstock::cuda
