// Collective operations of a step over several ranks. Callers check the communicator for errors.
#pragma once
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/scan_kernels.h"
#include "ops/tensor.h"
#include "parallel/communicator.h"

namespace penstock {

// As Ops::all_reduce() and all_gather().
void cpu_all_reduce(Communicator& ranks, WireType wire, Tensor x);
void cpu_all_gather(Communicator& ranks, Tensor x);
// As Ops::gather_logits(). row_tops: the batch's.
void cpu_gather_logits(Communicator& ranks, ThreadPool& pool, const ScanKernels& scans,
                       std::span<const int32_t> row_tops, Tensor x);

}  // namespace penstock
