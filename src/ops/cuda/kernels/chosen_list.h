// The list of places that a token attends to (kernels/sparse.h).
#pragma once
#include "ops/cuda/kernels/attend_parts.h"
#include "ops/cuda/kernels/index_sight.h"
#include "ops/cuda/kernels/sparse.h"

namespace penstock::cuda {

struct ChosenList {
  static constexpr bool kIsNarrow = false;
  const AttentionOnDevice& k;
  const ChosenOnDevice& of;
  IndexSight sight;
  SequenceBlocks blocks, entry_blocks;
  const int32_t* selected;  // of the token and kv head; null: all
  int first = 0, end;       // of the list
  int n_in_window;          // tokens before the entries

  PENSTOCK_DEVICE ChosenList(const AttentionOnDevice& kernel, const ChosenOnDevice& chosen,
                             int token, int kv_head)
      : k(kernel),
        of(chosen),
        sight(*kernel.batch, token),
        blocks(*kernel.batch, kernel.group, sight.sequence, kernel.layer.block_size),
        entry_blocks(*kernel.batch, chosen.ratio > 0 ? chosen.entries_group : kernel.group,
                     sight.sequence, kernel.layer.block_size),
        selected(chosen.selected + token * chosen.stride) {
    n_in_window = 0;
    if (of.ratio > 0) {
      list_entries();
      return;
    }
    const int n = sight.n_visible;
    if (n <= of.most) {
      selected = nullptr, end = n;
    } else if (of.block > 0) {
      selected += kv_head * of.most;
      end = of.most - of.block + (n - 1) % of.block + 1;  // the last block may be open
    } else {
      end = of.most - (of.pool - 1) + n % of.pool;
    }
  }
  PENSTOCK_DEVICE void list_entries() {
    const int n_all = sight.end / of.ratio;
    const bool chooses = of.selected != nullptr && n_all > of.most;
    n_in_window = sight.end < k.window ? sight.end : k.window;
    end = n_in_window + (chooses ? of.most : n_all);
    if (!chooses) selected = nullptr;
  }
  PENSTOCK_DEVICE KeyPlace at(int i, int kv_head) const {
    if (of.ratio == 0) {
      const int token = selected != nullptr ? selected[i] : sight.place(i);
      return {k.layer, blocks.slot_of(token), kv_head};
    }
    if (i < n_in_window) return {k.layer, blocks.slot_of(sight.end - n_in_window + i), kv_head};
    const int entry = i - n_in_window;
    const int last = selected != nullptr ? selected[entry] : (entry + 1) * of.ratio - 1;
    return {of.entries, entry_blocks.slot_of(last), kv_head};
  }
  // No scores depend on distances.
  PENSTOCK_DEVICE int distance(int) const { return 0; }
};

}  // namespace penstock::cuda
