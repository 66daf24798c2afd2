// How a kernel is started, and where it is compiled for: what a .cu file gives and the rest of the
// backend calls.
//
// A kernel is a struct of plain data: its fields are what it reads and writes, kThreads the threads
// of a block, and operator()(const Thread&), marked PENSTOCK_BODY, what one thread does. The header
// declares it; the .cu file beside it has the body and one line PENSTOCK_KERNEL(Name). nvcc makes
// that OnCuda<Name>, g++ makes of the same file Emulated<Name>.
//
// A kernel may be started while those before it still run. Then it waits for them before its
// operator(), and may have a prefetch(const Thread&) for the time until then, which reads nothing
// that a step writes: it asks for weights to be brought near, perhaps into shared memory. It comes
// before operator() however the kernel is started.
#pragma once
#include <cstddef>

namespace penstock::cuda {

struct Thread;

// Blocks of K::kThreads threads.
struct Grid {
  int x = 1, y = 1;
  int shared_bytes = 0;  // of each block; Thread::shared
};

template <class K>
struct OnCuda {
  // early: started while those before it still run, which compute capability 9.0 can. Returns a
  // cudaError_t.
  static int launch(const K& kernel, Grid grid, void* stream, bool early);
};

template <class K>
struct Emulated {
  static void launch(const K& kernel, Grid grid);
};

// "… with K = penstock::cuda::NormRows…", for messages.
template <class K>
const char* kernel_name() {
  return __PRETTY_FUNCTION__;
}

}  // namespace penstock::cuda

// PENSTOCK_DEVICE: functions that kernels call. PENSTOCK_BODY: a kernel's operator().
#if defined(__CUDACC__)
#define PENSTOCK_DEVICE __device__ __forceinline__
#define PENSTOCK_BODY __device__ inline  // or the host part of what nvcc makes would define it, too
#else
#define PENSTOCK_DEVICE inline
#define PENSTOCK_BODY
#endif
