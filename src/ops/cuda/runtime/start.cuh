// Launches kernels on a GPU (nvcc).
#pragma once
#include <cuda_runtime.h>

#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {

// Returns the least number of blocks per multiprocessor, which limits registers: K::kBlocks or 1.
template <class K>
constexpr int blocks_of() {
  if constexpr (requires { K::kBlocks; }) return K::kBlocks;
  return 1;
}

// __grid_constant__: parameters stay in constant memory, even if they are indexed at run time.
template <class K>
__global__ void __launch_bounds__(K::kThreads, blocks_of<K>())
    run_kernel(const __grid_constant__ K kernel) {
  extern __shared__ __align__(128) std::byte shared[];
  const Thread thread{static_cast<int>(threadIdx.x), static_cast<int>(blockIdx.x),
                      static_cast<int>(blockIdx.y), static_cast<int>(gridDim.x), shared};
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  // Programmatic dependent launch: the next kernel may start, and this one waits for the end of its
  // predecessor, and so of all earlier ones. Both have no effect on ordinary launches.
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  if constexpr (requires { kernel.prefetch(thread); }) kernel.prefetch(thread);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  kernel(thread);
}

template <class K>
int OnCuda<K>::launch(const K& kernel, Grid grid, void* stream, bool early) {
  if (grid.x <= 0 || grid.y <= 0) return cudaSuccess;
  if (grid.shared_bytes > 48 * 1024) {  // beyond the default limit of a kernel
    const cudaError_t asked = cudaFuncSetAttribute(
        run_kernel<K>, cudaFuncAttributeMaxDynamicSharedMemorySize, grid.shared_bytes);
    if (asked != cudaSuccess) return asked;
  }
  cudaLaunchAttribute overlaps{};
  overlaps.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlaps.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y));
  config.blockDim = dim3(K::kThreads);
  config.dynamicSmemBytes = static_cast<size_t>(grid.shared_bytes);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &overlaps, config.numAttrs = early ? 1 : 0;
  const cudaError_t code = cudaLaunchKernelEx(&config, run_kernel<K>, kernel);
  (void)cudaGetLastError();  // clears the runtime's last error
  return code;
}

}  // namespace penstock::cuda

#define PENSTOCK_KERNEL(...) template struct OnCuda<__VA_ARGS__>;
