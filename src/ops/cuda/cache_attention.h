// Attention over a cache: which kernels, and what they need beside what they are asked for.
#pragma once
#include "ops/cuda/batch_upload.h"
#include "ops/cuda/device.h"
#include "ops/cuda/kernels/attention.h"
#include "ops/cuda/step_memory.h"
#include "ops/ops.h"

namespace penstock::cuda {

class CacheAttention {
 public:
  // invariant: a row's bits are the same whatever else is in the batch, and however its prompt was cut.
  CacheAttention(Device& device, StepMemory& memory, const BatchUpload& upload, bool invariant)
      : device_(device), memory_(memory), upload_(upload), invariant_(invariant) {}

  // Off: caches of 16 bits are attended as those of other types.
  void flash(bool on) { flash_ = on; }
  void attend(Tensor q, const KvCache& cache, const AttentionParams& params, Tensor out);

 private:
  void launch(const AttentionOnDevice& attention);
  bool flashes(const KvLayerOnDevice& layer) const;
  template <int kDim, KvCode kCode>
  void attend_flash(const AttentionOnDevice& attention);
  // [pieces][query heads][value_dim + 2], until the next step. Null after a failure.
  float* sums_of_pieces(const AttentionOnDevice& attention, int n_pieces);

  Device& device_;
  StepMemory& memory_;
  const BatchUpload& upload_;
  bool invariant_, flash_ = true;
};

}  // namespace penstock::cuda
