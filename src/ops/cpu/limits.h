// Measures the bandwidth of memory by pure reads, in samples of a few milliseconds.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <memory>

#include "base/thread_pool.h"

namespace penstock {

struct KernelTable;

class ReadSampler {
 public:
  // Allocates the memory that is read, unless it exists. Returns false if there is not enough.
  bool prepare(ThreadPool& pool, size_t bytes);
  // Returns bytes per second of n_threads threads, 1 or all: the best of a few rounds of a few
  // milliseconds with every order of reading.
  double sample(ThreadPool& pool, const KernelTable& kernels, int n_threads);

 private:
  std::unique_ptr<char, decltype(&std::free)> buffer_{nullptr, &std::free};
  size_t part_ = 0;  // bytes of one thread's part
  // offset in its part at which a thread reads next
  size_t next_ = 0;
};

}  // namespace penstock
