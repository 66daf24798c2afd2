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
      : device_(device), memory_(memory), upload_(upload), invariant_(invariant), wide_(device.has_wgmma()) {}

  // Off: caches of 16 bits are attended as those of other types.
  void flash(bool on) { flash_ = on; }
  // Prompts by products of warp groups (FlashWide), if there are any, or of warps (FlashTiles).
  void flash_wide(bool on) { wide_ = on && (device_.has_wgmma() || device_.emulated()); }
  // Off: rotating and storing is a kernel by itself, which gives the same bits.
  void fuse_stores(bool on) { fuses_stores_ = on; }
  void attend(Tensor q, const KvCache& cache, const AttentionParams& params, Tensor out);
  // Ops::store_and_attend(). False: not done, for it is not for one kernel.
  bool store_and_attend(Tensor q, const NewTokens& own, KvCache& cache, const AttentionParams& params,
                        Tensor out);

 private:
  AttentionOnDevice attention_of(Tensor q, const KvCache& cache, const AttentionParams& params,
                                 Tensor out) const;
  void launch(const AttentionOnDevice& attention);
  // By the kernels for caches of 16 bits; own: null where all is rotated and stored.
  void flash(const AttentionOnDevice& attention, const NewTokens* own);
  bool flashes(const KvLayerOnDevice& layer) const;
  template <int kDim, KvCode kCode>
  void attend_flash(const AttentionOnDevice& attention, const NewTokens* own);
  template <class K>
  void attend_pieces(K pieces);
  // [pieces][query heads][value_dim + 2], until the next step. Null after a failure.
  float* sums_of_pieces(const AttentionOnDevice& attention, int n_pieces);

  Device& device_;
  StepMemory& memory_;
  const BatchUpload& upload_;
  bool invariant_, wide_, flash_ = true, fuses_stores_ = true;
};

}  // namespace penstock::cuda
