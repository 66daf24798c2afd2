// Attention of the CPU backend: cuts a step's work into tiles and runs them on the pool.
#pragma once
#include "base/arena.h"
#include "base/thread_pool.h"
#include "kernels/attention_kernels.h"
#include "ops/cpu/kv_cache.h"
#include "ops/ops.h"

namespace penstock {

struct AttentionContext {
  ThreadPool& pool;
  Arena& scratch;  // memory of one call, reused by the next
  const AttentionKernels& kernels;
  bool batch_invariant = false;
  // Most bytes of partial results in a call. Within it, the splits of a tile run in parallel and
  // are merged at the end; beyond it, one thread computes the splits of a tile one after the other.
  // The results are the same bits.
  int64_t most_state_bytes = int64_t{32} << 20;
};

// The sum of a head's weights in units of exp(max), with that of its sink, if there are sinks.
float total_with_sink(float sum, float max, const float* sinks, int head);

// Returns how many of a sequence's first new tokens see at most top_k tokens, and so attend to all
// of them.
int tokens_that_see_all(const Batch& batch, int seq, int top_k);

// See Ops::attend. With params.selected, of the tokens that see all only (sparse_attention.h has
// the others).
void cpu_attend(const AttentionContext& context, Tensor q, const Batch& batch,
                const CpuKvCache& cache, const AttentionParams& params, Tensor out);

// See Ops::store_encoded and Ops::attend_encoded. seq: of the batch.
void cpu_store_encoded(const AttentionContext& context, Tensor k, Tensor v, const Batch& batch,
                       int seq, const EncodedParams& params, CpuKvCache& cache);
void cpu_attend_encoded(const AttentionContext& context, Tensor q, const Batch& batch,
                        const EncodedParams& params, const CpuKvCache& cache, Tensor out);

}  // namespace penstock
