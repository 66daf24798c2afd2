// Rows of n-grams (Ops::embed_ngrams), whose table stays in its file on the host: the device says
// which tokens a row has, the host hashes them and decodes rows in the middle of a step, and a kernel
// reads these from pinned memory. Recordings contain both ways (StepGraphs::between()).
#pragma once
#include <vector>

#include "base/thread_pool.h"
#include "ops/cuda/device.h"
#include "ops/cuda/kernels/recurrence.h"
#include "ops/cuda/step_graphs.h"
#include "ops/ops.h"

namespace penstock::cuda {

class HostNgrams {
 public:
  HostNgrams(Ops& ops, Device& device, StepGraphs& graphs, ThreadPool& pool)
      : ops_(ops), device_(device), graphs_(graphs), pool_(pool), pinned_(device) {}

  void begin_step(int n_tokens) { n_tokens_ = n_tokens; }
  // states: those of the tokens before the step. The table and the vectors of params outlive the
  // recordings.
  void embed(const NgramParams& params, const States& states, const BatchOnDevice* batch,
             Tensor out);

 private:
  // Memory of a lookup: decoded rows, then each row's last tokens.
  struct Pinned {
    Tensor out;
    int32_t* recent;
  };
  Pinned lay_out(Tensor out) const;
  void decode(const NgramParams& params, const Pinned& at);

  Ops& ops_;
  Device& device_;
  StepGraphs& graphs_;
  ThreadPool& pool_;
  PinnedMemory pinned_;
  int n_tokens_ = 0;           // of the step
  std::vector<int64_t> rows_;  // of the table
  StepTicket listed_ = 0;
};

}  // namespace penstock::cuda
