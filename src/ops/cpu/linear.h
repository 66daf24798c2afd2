// Matrix products of the CPU backend. Called by CpuOps from one thread; they use the whole pool.
#pragma once
#include <atomic>
#include <cstdint>
#include <span>

#include "base/arena.h"
#include "base/thread_pool.h"
#include "kernels/gemm_plan.h"
#include "kernels/kernel_table.h"
#include "ops/ops.h"

namespace penstock {

// Memory of one call, reused by the next; not the step's arena.
struct LinearScratch {
  Arena linear;                                // quantized activations, workers' buffers
  Arena moe;                                   // tokens gathered by expert
  std::atomic<int64_t> expert_bytes_read = 0;  // see Ops::expert_bytes_read()
  // of LatePanels, that this step still packs into their place
  int64_t bytes_to_keep = 0;
};

class AdapterRows;  // adapters.h

struct LinearContext {
  ThreadPool& pool;
  LinearScratch& scratch;
  const KernelTable& kernels;
  GemmTraits traits;                      // gemm_traits()
  const AdapterRows* adapters = nullptr;  // of the step
  std::span<const int32_t> tokens = {};   // of the step; tensors may have more rows
};

// targets[i].out = x weight_i^T + bias_i + (x a_i^T) b_i^T, a_i and b_i those of the row's adapter.
void cpu_linear(const LinearContext& context, Tensor x, std::span<const LinearTarget> targets);

// See Ops::linear_by_head. One region where few rows are multiplied with each weight; else one
// after the other.
void cpu_linear_by_head(const LinearContext& context, Tensor x,
                        std::span<const std::unique_ptr<Weight>> weights, Tensor out);

// See Ops::gated_linear. One region: what a worker has made of both is still in its cache.
void cpu_gated_linear(const LinearContext& context, Tensor x, const LinearTarget& gate,
                      const LinearTarget& up, const ActivationFunction& f, Tensor out);

// out[t] = (add ? out[t] : 0) + table[ids[t]] * scale.
void cpu_embed(const LinearContext& context, const Weight& table, std::span<const int32_t> ids,
               float scale, Tensor out, bool add);

// See Ops::moe.
void cpu_moe(const LinearContext& context, Tensor x, Tensor router_logits, const MoeParams& params,
             Tensor out);

}  // namespace penstock
