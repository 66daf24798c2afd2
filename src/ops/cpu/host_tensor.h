// The elements of a tensor of the CPU backend, whose memory is the host's.
#pragma once
#include "ops/tensor.h"

namespace penstock {

// REQUIRES: an F32 tensor of the CPU backend.
inline float* f32(const Tensor& tensor, int row = 0) {
  return static_cast<float*>(tensor.data) + row * tensor.row_stride;
}

}  // namespace penstock
