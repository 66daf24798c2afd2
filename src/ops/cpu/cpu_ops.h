// The CPU backend: whole-batch operations on a pool of threads with the kernels of one instruction
// set.
#pragma once
#include <array>
#include <string>

#include "base/arena.h"
#include "base/memory.h"
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "ops/cpu/adapters.h"
#include "ops/cpu/attention.h"
#include "ops/cpu/cpu_ranks.h"
#include "ops/cpu/limits.h"
#include "ops/cpu/linear.h"
#include "ops/cpu/sparse_attention.h"
#include "ops/cpu/weight.h"
#include "ops/ops.h"

namespace penstock {

struct RecurrenceContext;

class CpuOps final : public Ops {
 public:
  CpuOps(const KernelTable& kernels, const OpsConfig& config);

  const char* name() const override { return name_.c_str(); }
  bool computes_here() const override { return true; }
  MemoryState memory() const override { return {total_memory(), available_memory()}; }
  MachineLimits limits(int64_t read_bytes) override;
  Result<std::unique_ptr<Weight>> pack(const QuantizedMatrix& matrix) override;
  Result<std::unique_ptr<Weight>> pack_grouped(const GroupedMatrix& matrix, int first_row,
                                               int n_rows) override;
  Result<std::unique_ptr<Vector>> pack_vector(std::span<const float> values) override;
  std::string stored_form() const override;
  std::string describe(const Weight& weight) const override;
  OwnedBytes store(const Weight& weight) const override;
  Result<std::unique_ptr<Weight>> restore(const StoredWeight& stored,
                                          std::shared_ptr<const void> owner) override;
  bool restores_in_place() const override { return true; }
  int64_t expert_bytes_read() const override { return linear_scratch_.expert_bytes_read; }
  Result<std::unique_ptr<KvCache>> make_cache(const CacheSpec& spec,
                                              std::span<const int> n_blocks) override;

  int n_host_threads() const override { return pool_.size(); }
  void for_each(int n_items, void (*fn)(void* ctx, int item, int thread), void* ctx) override {
    pool_.for_ranges(n_items, 1, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t i = begin; i < end; ++i) fn(ctx, static_cast<int>(i), thread);
    });
  }

  StepShape begin_step(const Batch* batch) override;
  Tensor new_tensor(int rows, int cols, TensorRole role) override;
  void read_rows(Tensor x, std::span<float> out) override;
  void write_rows(std::span<const float> values, Tensor x) override;
  float* in_place(Tensor x) override;
  void embed_tokens(const Weight& table, float scale, Tensor out) override;
  void embed_share(const Weight& table, int first, float scale, Tensor out) override;
  void embed_positions(const Weight& table, Tensor out) override;
  void embed_token_types(const Weight& table, Tensor out) override;
  void put_given(Tensor x) override;
  void add_given(int level, Tensor x) override;
  void gather_outputs(Tensor x, Tensor out) override;
  void norm(Tensor x, const NormParams& params, Tensor out) override;
  void add_norm(Tensor x, Tensor delta, float delta_scale, const NormParams& params,
                Tensor out) override;
  void add(Tensor x, Tensor delta, float delta_scale) override;
  void scale(Tensor x, float factor, float softcap) override;
  void linear(Tensor x, std::span<const LinearTarget> targets) override;
  void gated_linear(const NormedInput& h, const LinearTarget& gate, const LinearTarget& up,
                    const ActivationFunction& f, Tensor out) override {
    cpu_gated_linear(linear_, h.values, gate, up, f, out);
  }
  void round_int8(Tensor x) override;
  void activate(Tensor x, const ActivationFunction& f) override;
  void activate_mul(Tensor gate, Tensor up, const ActivationFunction& f, Tensor out) override;
  void linear_by_head(Tensor x, std::span<const std::unique_ptr<Weight>> weights,
                      Tensor out) override;
  void copy(Tensor from, Tensor to) override;
  void clear(Tensor x) override;
  Shard shard() const override {
    return config_.ranks != nullptr ? config_.ranks->shard() : Shard{};
  }
  void all_reduce(Tensor x) override {
    if (config_.ranks != nullptr) cpu_all_reduce(*config_.ranks, config_.rank_wire, x);
  }
  void all_gather(Tensor x) override {
    if (config_.ranks != nullptr) cpu_all_gather(*config_.ranks, x);
  }
  void gather_logits(Tensor x) override {
    if (config_.ranks != nullptr)
      cpu_gather_logits(*config_.ranks, pool_, *kernels_.scans, batch_.row_tops, x);
  }
  void scale_columns(Tensor x, const Vector& by) override;
  void add_columns(Tensor x, const Vector& by) override;
  void add_mixed(Tensor from, Tensor by, int width, Tensor to) override;
  void match_magnitude(Tensor x, Tensor like, float least) override;
  void keep_above(Tensor x, float deviations) override;
  void gate_rows(Tensor x, Tensor gate, Activation f) override;
  void multiply(Tensor x, Tensor by) override;
  void causal_conv(Tensor x, const ConvParams& params, KvCache& cache, Tensor out) override;
  void state_space(Tensor x, Tensor dt, Tensor scratch, const StateSpaceParams& params,
                   KvCache& cache, Tensor out) override;
  void gated_delta(Tensor qkv, Tensor a, Tensor b, const DeltaParams& params, KvCache& cache,
                   Tensor out) override;
  void wkv(const WkvTensors& tensors, const WkvParams& params, KvCache& cache) override;
  bool can_cross_attend() const override { return true; }
  void put_encoded(int index, Tensor rows) override;
  void store_encoded(int index, Tensor k, Tensor v, const EncodedParams& params,
                     KvCache& cache) override {
    const int seq = batch_.encoded[static_cast<size_t>(index)].seq;
    cpu_store_encoded(attention_, k, v, batch_, seq, params, static_cast<CpuKvCache&>(cache));
  }
  void attend_encoded(Tensor q, const EncodedParams& params, const KvCache& cache,
                      Tensor out) override;
  void scale_by_position(Tensor x, const PositionScale& scale) override;
  void scale_heads_by_position(Tensor x, const Vector& slopes, const Vector& biases) override;
  void moe(Tensor x, Tensor router_logits, const MoeParams& params, Tensor out) override;
  void rotate(Tensor q, Tensor k, const RopeParams& rope, int head_dim) override;
  void rope_and_store(Tensor q, Tensor k, Tensor v, const RopeParams* rope, KvCache& cache,
                      int layer) override;
  void attend(Tensor q, const KvCache& cache, const AttentionParams& params, Tensor out) override;
  bool can_select() const override { return true; }
  bool has_all() const override { return true; }
  void select(Tensor q, Tensor weights, const KvCache& cache, const SelectParams& params,
              Tensor out) override {
    cpu_select(attention_, q, weights, batch_, static_cast<const CpuKvCache&>(cache), params, out);
  }
  void root_gates(Tensor a, Tensor b, float scale, Tensor out) override;
  void embed_ngrams(const NgramParams& params, KvCache& cache, Tensor out) override;
  void pool_keys(Tensor keys, Tensor scores, const PoolParams& params, KvCache& cache,
                 Tensor out) override;
  void mix_streams(Tensor z, const StreamMixParams& params) override;
  void bound_rows(Tensor x, float bound) override;
  void softmax_rows(Tensor x) override;
  void move_kv(KvCache& cache, int group, std::span<const int32_t> from,
               std::span<const int32_t> to) override;

 private:
  // cos and sin of every token of the step, [n_tokens][half] each; computed once per step and set
  // of frequencies.
  struct Angles {
    const Vector *inv_freq = nullptr, *axes = nullptr;
    int half = 0;
    float scale = 1.0f;
    int offset = 0;
    const float *cos = nullptr, *sin = nullptr;
  };
  const Angles& angles(const RopeParams& rope);
  RecurrenceContext recurrence(KvCache& cache);
  // out = norm of row `row` of a tensor.
  void norm_row(const float* x, const NormParams& params, int row, int cols, float* out) const;
  // Rotates every head of token t in x by this step's angles.
  void rotate_heads(float* x, int n_heads, int head_dim, int t, const Angles& angles,
                    const RopeParams& rope) const;
  // f(row, first column, n columns, worker) over all elements of x, in parallel where that pays.
  template <class Fn>
  void for_elements(Tensor x, Fn&& f);

  const KernelTable& kernels_;
  OpsConfig config_;
  ThreadPool pool_;
  WeightPacker packer_;
  Arena arena_;
  Batch batch_;  // of the step
  StepShape shape_;
  LinearScratch linear_scratch_;
  Arena attention_scratch_;
  AdapterRows adapters_;
  LinearContext linear_;
  AttentionContext attention_;
  ReadSampler reads_;
  std::array<Angles, 4> angles_;
  int n_angles_ = 0;
  int64_t n_steps_ = 0;
  std::string name_;
};

}  // namespace penstock
