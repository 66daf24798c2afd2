// The threads of a block as fibers of one host thread. Each runs until it meets others
// (Thread::sync, shuffle, mma) and goes on when all are there; who goes first is drawn anew every
// time, so that a missing barrier shows.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ops/cuda/kernels/launch.h"

namespace penstock::cuda {

class Fibers {
 public:
  // What the last of a meeting does for all: `mine` of every thread, in the order of the threads.
  using Together = void (*)(void* const* mine, int n);
  using Body = void (*)(const void* kernel, const Thread& thread);

  // Runs every block of the grid, in a random order, block after block. A thread that waits for one
  // that has returned ends the program: a mistake in the kernel.
  static void run(const void* kernel, Body body, const char* name, int n_threads, Grid grid);
  // The order in which threads and blocks go; of this host thread, from now on.
  static void seed(uint64_t value);

  // Called by a kernel's threads.
  virtual void meet_warp(int thread, void* mine, Together together) = 0;
  virtual void meet_block(int thread, void* mine, Together together) = 0;

  // Copies of 16 bytes: made as late as can be, when the thread waits for all groups but the last
  // `most`.
  virtual void copy_later(int thread, std::byte* to, const std::byte* from) = 0;
  virtual void end_copies(int thread) = 0;
  virtual void make_copies(int thread, int most) = 0;

 protected:
  ~Fibers() = default;
};

}  // namespace penstock::cuda
