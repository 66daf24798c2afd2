// Pure reads of memory, in samples of a few milliseconds.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <memory>

#include "base/thread_pool.h"

namespace penstock {

struct KernelTable;

class ReadSampler {
 public:
  // Makes the memory to be read, unless it is there. False: there is not that much.
  bool prepare(ThreadPool& pool, size_t bytes);
  // Bytes per second of so many threads, 1 or all: the best of a few rounds of a few milliseconds in every order.
  double sample(ThreadPool& pool, const KernelTable& kernels, int n_threads);

 private:
  std::unique_ptr<char, decltype(&std::free)> buffer_{nullptr, &std::free};
  size_t part_ = 0;  // of a thread
  size_t next_ = 0;  // where in its part a thread reads
};

}  // namespace penstock
