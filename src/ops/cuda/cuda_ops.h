// The CUDA backend: whole-batch operations as kernels on a device (device.h), a GPU or the emulated
// one.
//
// Activations are F32. Each operation launches one kernel or a few; their other inputs are in the
// batch, which begin_step() uploads. One file per kind of operation: rows (cuda_rows.cc), products
// (cuda_linear.cc), ...
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/thread_pool.h"
#include "ops/cuda/batch_upload.h"
#include "ops/cuda/cache_attention.h"
#include "ops/cuda/cuda_vector.h"
#include "ops/cuda/device.h"
#include "ops/cuda/device_draws.h"
#include "ops/cuda/device_rates.h"
#include "ops/cuda/experts.h"
#include "ops/cuda/host_experts.h"
#include "ops/cuda/host_ngrams.h"
#include "ops/cuda/kernels/products.h"
#include "ops/cuda/kernels/recurrence.h"
#include "ops/cuda/layer_products.h"
#include "ops/cuda/packed_weight.h"
#include "ops/cuda/rank_sums.h"
#include "ops/cuda/step_graphs.h"
#include "ops/cuda/step_memory.h"
#include "ops/cuda/tensors.h"
#include "ops/cuda/wide_products.h"
#include "ops/ops.h"

namespace penstock::cuda {

class CudaOps final : public Ops {
 public:
  // ranks: those of config.ranks; null: there is one.
  CudaOps(std::unique_ptr<Device> device, const OpsConfig& config,
          std::unique_ptr<DeviceRanks> ranks = nullptr);
  ~CudaOps() override;

  StepGraphs& graphs() { return graphs_; }
  // Enables split attention of long sequences; the results are the same bits.
  void take_apart(bool on) { upload_.take_apart(on); }
  // Gives access to the switches of attention, and drops all recordings.
  CacheAttention& attention() { return graphs_.forget(), attention_; }
  // Enables fused kernels for parts of a layer and for storing with attention; the results are the
  // same bits.
  void fuse(bool on) { layer_.enable(on), attention().fuse_stores(on); }
  // Enables streaming of weights through shared memory in products of few rows, which changes the
  // order of sums.
  void stream(bool on) { layer_.stream(on), experts_.stream(on), graphs_.forget(); }
  WideProducts& wide() { return wide_; }
  HotExperts& hot_experts() { return host_experts_.hot(); }
  Device& device() { return *device_; }

  const char* name() const override { return device_->name().c_str(); }
  MemoryState memory() const override { return device_->memory(); }
  Status status() const override { return device_->status(); }
  bool recover() override;
  bool can_cache(KvDType) const override { return true; }
  Ops* host() override { return host_experts_.host(); }
  int64_t expert_bytes_read() const override { return host_experts_.bytes_read(); }
  void keep_twins(bool on) override { host_experts_.keep_twins(on); }
  int64_t set_expert_room(int64_t bytes) override { return host_experts_.hot().set_room(bytes); }
  bool host_computes(const Weight& weight) const override { return host_experts_.computes(weight); }
  ExpertTraffic expert_traffic() const override { return host_experts_.hot().traffic(); }
  MachineLimits limits(int64_t read_bytes) override { return machine_limits(*device_, read_bytes); }
  Result<std::unique_ptr<Weight>> pack(const QuantizedMatrix& matrix) override;
  Result<std::unique_ptr<Weight>> pack_grouped(const GroupedMatrix& matrix, int first_row,
                                               int n_rows) override;
  Result<std::unique_ptr<Vector>> pack_vector(std::span<const float> values) override;
  std::string stored_form() const override { return "cuda tiles 1"; }
  std::string describe(const Weight& weight) const override {
    return WeightPacker::describe(static_cast<const CudaWeight&>(weight));
  }
  OwnedBytes store(const Weight& weight) const override {
    return packer_.store(static_cast<const CudaWeight&>(weight));
  }
  // The device gets a copy, so `owner` may go.
  Result<std::unique_ptr<Weight>> restore(const StoredWeight& stored,
                                          std::shared_ptr<const void>) override {
    return packer_.restore(stored);
  }
  Result<std::unique_ptr<KvCache>> make_cache(const CacheSpec& spec,
                                              std::span<const int> n_blocks) override;

  int n_host_threads() const override { return pool_.size(); }
  void for_each(int n_items, void (*fn)(void* ctx, int item, int thread), void* ctx) override;

  StepShape begin_step(const Batch* batch) override;
  StepTicket submit() override { return draws_.end_step(); }
  void wait(StepTicket ticket) override { draws_.wait(ticket); }
  bool samples() const override { return true; }
  void sample(Tensor logits, std::span<const SampleRow> rows,
              std::span<SampleResult> results) override {
    draws_.sample(logits, rows, results);
  }
  Tensor new_tensor(int rows, int cols, TensorRole role) override;
  void read_rows(Tensor x, std::span<float> out) override;
  void write_rows(std::span<const float> values, Tensor x) override;

  // cuda_rows.cc
  void gather_outputs(Tensor x, Tensor out) override;
  void norm(Tensor x, const NormParams& params, Tensor out) override;
  void add_norm(Tensor x, Tensor delta, float delta_scale, const NormParams& params,
                Tensor out) override;
  void add(Tensor x, Tensor delta, float delta_scale) override;
  void scale(Tensor x, float factor, float softcap) override;
  void copy(Tensor from, Tensor to) override;
  void clear(Tensor x) override;
  void round_int8(Tensor x) override;
  void activate(Tensor x, const ActivationFunction& f) override;
  void activate_mul(Tensor gate, Tensor up, const ActivationFunction& f, Tensor out) override;
  void gate_rows(Tensor x, Tensor gate, Activation f) override;
  void multiply(Tensor x, Tensor by) override;
  void scale_columns(Tensor x, const Vector& by) override;
  void add_mixed(Tensor from, Tensor by, int width, Tensor to) override;
  void match_magnitude(Tensor x, Tensor like, float least) override;
  void keep_above(Tensor x, float deviations) override;
  void scale_by_position(Tensor x, const PositionScale& scale) override;

  // cuda_linear.cc
  void embed_tokens(const Weight& table, float scale, Tensor out) override;
  void embed_share(const Weight& table, int first, float scale, Tensor out) override;
  void embed_positions(const Weight& table, Tensor out) override;
  void embed_token_types(const Weight& table, Tensor out) override;
  void put_given(Tensor x) override;
  void add_given(int level, Tensor x) override;
  void linear(Tensor x, std::span<const LinearTarget> targets) override;

  Shard shard() const override {
    return config_.ranks != nullptr ? config_.ranks->shard() : Shard{};
  }
  void all_reduce(Tensor x) override {
    if (sums_) sums_->all_reduce(x);
  }
  void all_gather(Tensor x) override {
    if (sums_) sums_->all_gather(x);
  }

  // A norm that products compute is computed here only if it is wanted as a tensor.
  void prepare(const NormedInput& h) override {
    if (h.norm && !layer_.takes_norms(h.x)) norm(h.x, *h.norm, h.values);
  }
  Tensor materialize(const NormedInput& h) override {
    if (h.norm && layer_.takes_norms(h.x)) norm(h.x, *h.norm, h.values);
    return h.values;
  }
  void norm_linear(const NormedInput& h, std::span<const LinearTarget> targets) override {
    if (!layer_.norm_linear(h, targets)) linear(materialize(h), targets);
  }
  void gated_linear(const NormedInput& h, const LinearTarget& gate, const LinearTarget& up,
                    const ActivationFunction& f, Tensor out) override {
    if (layer_.gated_linear(h, gate, up, f, out)) return;
    const Tensor x = materialize(h);
    const bool adapts = layer_.adapts(gate) || layer_.adapts(up);
    if (adapts || !wide_.gated_linear(x, gate, up, f, out))
      Ops::gated_linear({x, {}, x}, gate, up, f, out);
  }
  void add_whole(Tensor x, Tensor delta, float delta_scale, const NormedInput* h) override {
    Ops::add_whole(x, delta, delta_scale, layer_.takes_norms(x) ? nullptr : h);
  }
  void linear_add(Tensor in, const LinearTarget& target, Tensor x, float delta_scale,
                  const NormedInput* h) override {
    if (!layer_.linear_add(in, target, x, delta_scale))
      Ops::linear_add(in, target, x, delta_scale, h);
  }

  void start_moe(Tensor x, Tensor router_logits, const MoeParams& params) override {
    if (params.on_host) host_experts_.send(x, router_logits, params);
  }
  void moe(Tensor x, Tensor router_logits, const MoeParams& params, Tensor out) override {
    if (params.on_host) return host_experts_.run(x, router_logits, params, out);
    const BatchOnDevice* const own = host_batch_.tokens.empty() ? nullptr : batch();
    experts_.run(x, router_logits, params, own, host_batch_.adapters, out);
  }

  // cuda_attention.cc
  void rotate(Tensor q, Tensor k, const RopeParams& rope, int head_dim) override;
  void rope_and_store(Tensor q, Tensor k, Tensor v, const RopeParams* rope, KvCache& cache,
                      int layer) override;
  void attend(Tensor q, const KvCache& cache, const AttentionParams& params, Tensor out) override {
    attention_.attend(q, cache, params, out);
  }
  void store_and_attend(Tensor q, Tensor k, Tensor v, const RopeParams* rope, KvCache& cache,
                        const AttentionParams& params, Tensor out) override;
  bool can_select() const override { return true; }
  void select(Tensor q, Tensor weights, const KvCache& cache, const SelectParams& params,
              Tensor out) override {
    attention_.sparse().select(q, weights, cache, params, out);
  }
  void move_kv(KvCache& cache, int group, std::span<const int32_t> from,
               std::span<const int32_t> to) override;

  // cuda_streams.cc
  void mix_streams(Tensor z, const StreamMixParams& params) override;
  void root_gates(Tensor a, Tensor b, float scale, Tensor out) override;
  void scale_heads_by_position(Tensor x, const Vector& slopes, const Vector& biases) override;
  void pool_keys(Tensor keys, Tensor scores, const PoolParams& params, KvCache& cache,
                 Tensor out) override;

  // cuda_recurrence.cc
  void embed_ngrams(const NgramParams& params, KvCache& cache, Tensor out) override;
  void causal_conv(Tensor x, const ConvParams& params, KvCache& cache, Tensor out) override;
  void gated_delta(Tensor qkv, Tensor a, Tensor b, const DeltaParams& params, KvCache& cache,
                   Tensor out) override;
  void state_space(Tensor x, Tensor dt, Tensor scratch, const StateSpaceParams& params,
                   KvCache& cache, Tensor out) override;

 protected:
  StepOutputs run_step(const StepKey& key, StepFn fn, void* ctx) override;

 private:
  template <class K>
  void launch(const K& kernel, Grid grid) {
    device_->launch(kernel, grid);
  }
  // Returns memory valid until the next begin_step(); null after a failure, when nothing is
  // launched.
  template <class T>
  T* scratch(size_t n) {
    return static_cast<T*>(take_scratch(n * sizeof(T)));
  }
  void* take_scratch(size_t bytes);
  void multiply(const Product& product);
  void scan_states(const ScanStates& scan);
  void add_adapters(Tensor x, const LinearTarget& target);
  const BatchOnDevice* batch() const { return upload_.on_device(); }
  int attention_key(const StepKey& key) const;

  std::unique_ptr<Device> device_;
  OpsConfig config_;
  ThreadPool pool_;
  WeightPacker packer_;
  StepMemory step_memory_;
  StepGraphs graphs_;
  std::unique_ptr<RankSums> sums_;
  BatchUpload upload_;
  DeviceDraws draws_;
  // batch of the step in host memory, valid until submit()
  Batch host_batch_;
  StepShape shape_;
  bool suits_graph_ = false;
  CacheAttention attention_;
  LayerProducts layer_;
  WideProducts wide_;
  Experts experts_;
  HostExperts host_experts_;
  HostNgrams host_ngrams_;
};

}  // namespace penstock::cuda
