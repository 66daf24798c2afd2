// Starting a kernel on a GPU (nvcc).
#pragma once
#include <cuda_runtime.h>

#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {

template <class K>
__global__ void __launch_bounds__(K::kThreads, 1) run_kernel(const K kernel) {
  extern __shared__ __align__(128) std::byte shared[];
  kernel(Thread{static_cast<int>(threadIdx.x), static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y),
                static_cast<int>(gridDim.x), shared});
}

template <class K>
int OnCuda<K>::launch(const K& kernel, Grid grid, void* stream) {
  if (grid.x <= 0 || grid.y <= 0) return cudaSuccess;
  if (grid.shared_bytes > 48 * 1024) {  // more than a kernel has unasked
    const cudaError_t asked =
        cudaFuncSetAttribute(run_kernel<K>, cudaFuncAttributeMaxDynamicSharedMemorySize, grid.shared_bytes);
    if (asked != cudaSuccess) return asked;
  }
  const dim3 blocks(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y));
  run_kernel<K>
      <<<blocks, K::kThreads, static_cast<size_t>(grid.shared_bytes), static_cast<cudaStream_t>(stream)>>>(
          kernel);
  return cudaGetLastError();
}

}  // namespace penstock::cuda

#define PENSTOCK_KERNEL(K) template struct OnCuda<K>;
