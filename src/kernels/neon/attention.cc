#include "kernels/attention_kernels.h"
#include "kernels/neon/tables.h"

#include "kernels/neon/simd.h"

#include "kernels/generic/attention.inl"

namespace penstock {

constinit const AttentionKernels kNeonAttentionKernels = {
    {attend<KvFormat::kF32>, attend<KvFormat::kF16>, attend<KvFormat::kBF16>, attend<KvFormat::kI8>,
     attend<KvFormat::kI4>},
    merge_states,
    scale_row,
    {store_token<KvFormat::kF32>, store_token<KvFormat::kF16>, store_token<KvFormat::kBF16>,
     store_token<KvFormat::kI8>, store_narrow},
    {score_index<KvFormat::kF32>, score_index<KvFormat::kF16>, score_index<KvFormat::kBF16>,
     score_index<KvFormat::kI8>},
    rotate_row,
    widen_unit};

}  // namespace penstock
