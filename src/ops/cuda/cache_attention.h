// Attention over a cache: chooses and launches the kernels.
#pragma once
#include "ops/cuda/batch_upload.h"
#include "ops/cuda/device.h"
#include "ops/cuda/kernels/attention.h"
#include "ops/cuda/sparse_attention.h"
#include "ops/cuda/step_memory.h"
#include "ops/ops.h"

namespace penstock::cuda {

class CacheAttention {
 public:
  // invariant: the bits of a row depend neither on the rest of the batch nor on how its prompt was
  // cut.
  CacheAttention(Device& device, StepMemory& memory, const BatchUpload& upload, bool invariant)
      : device_(device),
        memory_(memory),
        upload_(upload),
        sparse_(device, memory, upload, invariant),
        invariant_(invariant),
        wide_(device.has_wgmma()) {}

  // Enables the flash kernels for caches of 16, 8 and 4 bits; otherwise they use the kernels of F32.
  void flash(bool on) { flash_ = on; }
  // Enables products of warp groups (FlashWide) for prompts, if the device has them; otherwise
  // products of warps (FlashTiles) are used.
  void flash_wide(bool on) { wide_ = on && (device_.has_wgmma() || device_.emulated()); }
  // Enables fusion of rotating and storing with attention; the results are the same bits.
  void fuse_stores(bool on) { fuses_stores_ = on; }
  void begin_step() { sparse_.begin_step(); }
  SparseAttention& sparse() { return sparse_; }
  void attend(Tensor q, const KvCache& cache, const AttentionParams& params, Tensor out);
  // Ops::store_and_attend() by one kernel. Returns false, and does nothing, if no kernel fuses
  // both.
  bool store_and_attend(Tensor q, const NewTokens& own, KvCache& cache,
                        const AttentionParams& params, Tensor out);

 private:
  AttentionOnDevice attention_of(Tensor q, const KvCache& cache, const AttentionParams& params,
                                 Tensor out) const;
  void launch(const AttentionOnDevice& attention);
  // Kernels that compute a token at a time.
  template <class Whole, class Pieces, class Join>
  void attend_tokens(const AttentionOnDevice& attention);
  // Launches the flash kernels. own: new tokens to rotate and store; null: all are stored.
  void flash(const AttentionOnDevice& attention, const NewTokens* own);
  void flash_turned(AttentionOnDevice attention);
  bool flashes(const AttentionOnDevice& attention) const;
  template <int kDim, KvCode kCode>
  void attend_flash(const AttentionOnDevice& attention, const NewTokens* own);
  template <class K>
  void attend_pieces(K pieces);
  // Returns memory for partial sums [pieces][query heads][value_dim + 2], valid until the next
  // step; null after a failure.
  float* sums_of_pieces(const AttentionOnDevice& attention, int n_pieces);

  Device& device_;
  StepMemory& memory_;
  const BatchUpload& upload_;
  SparseAttention sparse_;
  bool invariant_, wide_, flash_ = true, fuses_stores_ = true;
};

}  // namespace penstock::cuda
