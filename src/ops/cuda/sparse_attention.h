// Sparse attention: selection by an indexer, and attention to what was selected or to entries
// (kernels/select.h, kernels/sparse.h).
#pragma once
#include "ops/cuda/batch_upload.h"
#include "ops/cuda/device.h"
#include "ops/cuda/kernels/select.h"
#include "ops/cuda/kernels/sparse.h"
#include "ops/cuda/kernels/sparse_flash.h"
#include "ops/cuda/step_memory.h"
#include "ops/ops.h"

namespace penstock::cuda {

// Memory that operations of a step use one after the other, as large as the largest of them needs.
class SharedScratch {
 public:
  SharedScratch(Device& device, StepMemory& memory) : device_(device), memory_(memory) {}
  // Begins a step, whose memory is new.
  void begin_step() { data_ = nullptr; }
  // Returns memory that is undefined after the next call; null after a failure.
  template <class T>
  T* take(size_t n) {
    return static_cast<T*>(take_bytes(n * sizeof(T)));
  }

 private:
  void* take_bytes(size_t bytes);

  Device& device_;
  StepMemory& memory_;
  void* data_ = nullptr;
  // its end in the step's memory, which is rewound where a recording is given up
  size_t bytes_ = 0, end_ = 0;
};

class SparseAttention {
 public:
  // invariant: see CacheAttention.
  SparseAttention(Device& device, StepMemory& memory, const BatchUpload& upload, bool invariant)
      : device_(device), upload_(upload), invariant_(invariant), scratch_(device, memory) {}

  // Enables FlashChosen; otherwise kernels of other types of caches serve all.
  void flash(bool on) { flash_ = on; }
  void begin_step() { scratch_.begin_step(); }
  // Ops::select().
  void select(Tensor q, Tensor weights, const KvCache& cache, const SelectParams& params,
              Tensor out);
  // Whether attend() computes this attention; otherwise all tokens attend to all that they see.
  bool takes(const KvCache& cache, const AttentionParams& params) const;
  // REQUIRES: takes().
  void attend(const AttentionOnDevice& attention, const KvCache& cache,
              const AttentionParams& params);

 private:
  IndexOnDevice index_of(Tensor q, Tensor weights, const KvCache& cache,
                         const SelectParams& params) const;
  void score(const IndexOnDevice& index);
  template <int kThreads>
  void pick(const IndexOnDevice& index, int n_candidates, Tensor out);
  ChosenOnDevice chosen_of(const KvCache& cache, const AttentionParams& params) const;
  // The most places of a token's list.
  int longest_list(const ChosenOnDevice& chosen, int window) const;
  template <class Pieces, class Whole>
  void attend_by(const AttentionOnDevice& attention, const ChosenOnDevice& chosen, int head_tiles,
                 int shared_bytes);
  // Attention by FlashChosen, if its memory fits.
  template <KvCode kCode, int kTiles>
  bool attend_by_products(const AttentionOnDevice& attention, const ChosenOnDevice& chosen);

  Device& device_;
  const BatchUpload& upload_;
  bool invariant_, flash_ = true;
  SharedScratch scratch_;
};

}  // namespace penstock::cuda
