// Attention with AMX: one kernel for the few rows of decoding and for batch-invariant runs, another
// for many rows. F32 caches, and F16 caches with few rows, use the vector kernels of generic/.
#include <algorithm>
#include <cstring>

#include "kernels/amx/tables.h"
#include "kernels/attention_kernels.h"

#include "kernels/avx512/simd.h"

#include "kernels/generic/attention.inl"

namespace penstock {
namespace {

#include "kernels/amx/tiles.h"

#include "kernels/avx512bf16/attention_flash.inl"

#include "kernels/amx/attention_rows.inl"

#include "kernels/amx/attention_tiles.inl"

constexpr int kMinRows =
    kMaxSharedRows + 1;  // with fewer, decoding is bound by memory and passes stream better

template <KvFormat K>
void attend_tiles(const AttentionTile& tile, const AttentionState& state) {
  if (tile.has_terms || !tile.layout->has_equal_values()) return attend<K>(tile, state);
  if (!tile.exact_rows && tile.n_rows >= kMinRows) return attend_flash<TileUnits, K>(tile, state);
  if constexpr (K == KvFormat::kBF16 || K == KvFormat::kI8)
    return attend_row_passes<K>(tile, state);
  return attend<K>(tile, state);
}

}  // namespace

constinit const AttentionKernels tiles_here::kAttentionKernels = {
    {attend<KvFormat::kF32>, attend_tiles<KvFormat::kF16>, attend_tiles<KvFormat::kBF16>,
     attend_tiles<KvFormat::kI8>, attend_tiles<KvFormat::kI4>},
    merge_states,
    scale_row,
    {store_token<KvFormat::kF32>, store_token<KvFormat::kF16>, store_token<KvFormat::kBF16>,
     store_token<KvFormat::kI8>, store_narrow},
    {score_index<KvFormat::kF32>, score_index<KvFormat::kF16>, score_index<KvFormat::kBF16>,
     score_index<KvFormat::kI8>},
    rotate_row,
    widen_unit};

}  // namespace penstock
