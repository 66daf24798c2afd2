// Launching of kernels, and the compiler they are built by: the interface between .cu files and the
// rest of the backend.
//
// A kernel is a struct of plain data: fields are its parameters, kThreads is the number of threads
// of a block, and operator()(const Thread&), marked PENSTOCK_BODY, is the work of one thread. The
// header declares it; the .cu file has its body and a line PENSTOCK_KERNEL(Name), from which nvcc
// makes OnCuda<Name>, and g++ Emulated<Name>.
//
// A kernel may be started while earlier ones run. It then waits for them before operator(), and
// may have a prefetch(const Thread&) for that time, which reads nothing that a step writes: it
// prefetches weights, possibly into shared memory. prefetch() is always called before
// operator().
#pragma once
#include <cstddef>

namespace penstock::cuda {

struct Thread;

// Number of blocks, of K::kThreads threads each.
struct Grid {
  int x = 1, y = 1;
  int shared_bytes = 0;  // per block; Thread::shared
};

template <class K>
struct OnCuda {
  // early: start while earlier kernels run, which compute capability 9.0 supports. Returns a
  // cudaError_t.
  static int launch(const K& kernel, Grid grid, void* stream, bool early);
};

template <class K>
struct Emulated {
  static void launch(const K& kernel, Grid grid);
};

// Name of a kernel for messages: "… with K = penstock::cuda::NormRows…".
template <class K>
const char* kernel_name() {
  return __PRETTY_FUNCTION__;
}

}  // namespace penstock::cuda

// PENSTOCK_DEVICE: functions called by kernels. PENSTOCK_BODY: a kernel's operator().
#if defined(__CUDACC__)
#define PENSTOCK_DEVICE __device__ __forceinline__
#define PENSTOCK_BODY __device__ inline  // inline: nvcc's host code also defines it
#else
#define PENSTOCK_DEVICE inline
#define PENSTOCK_BODY
#endif
