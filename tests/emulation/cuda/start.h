// Starting a kernel on fibers (g++).
#pragma once
#include "emulation/cuda/fibers.h"
#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {

template <class K>
void Emulated<K>::launch(const K& kernel, Grid grid) {
  Fibers::run(
      &kernel,
      [](const void* k, const Thread& thread) {
        const K& of_thread = *static_cast<const K*>(k);
        if constexpr (requires { of_thread.prefetch(thread); }) of_thread.prefetch(thread);
        of_thread(thread);
      },
      kernel_name<K>(), K::kThreads, grid);
}

}  // namespace penstock::cuda

#define PENSTOCK_KERNEL(...) template struct Emulated<__VA_ARGS__>;
