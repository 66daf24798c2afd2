// A backend that forwards to another one, shows inputs of linear layers to a listener, and can skip
// what an earlier pass over the same steps computed.
#pragma once
#include <functional>
#include <vector>

#include "ops/ops.h"

namespace penstock {

class ObservingOps final : public Ops {
 public:
  // Called for every product: the weight, its input [n, cols] and its output [n, rows] (undefined
  // where the pass stops). Experts get their own tokens only.
  using Listener = std::function<void(const Weight& weight, Tensor x, Tensor out)>;

  // Products of a step (linear, attend, moe) are numbered in the order of calls. A pass is the
  // steps until the next begin_pass().
  struct Pass {
    // the step ends after this product's listeners were called
    int stop = kNever;
    // earlier products are skipped, as nothing from here on reads their outputs
    int first = 0;
    int record_first = kNever,
        // outputs of [record_first, record_last] are recorded, for later passes to copy
        record_last = -1;
    static constexpr int kNever = 1 << 30;
  };
  void begin_pass(const Pass& pass);
  // Drops recordings. REQUIRES: passes that record and passes that copy have the same steps.
  void forget() { tape_.clear(); }

  explicit ObservingOps(Ops& inner) : inner_(inner) {}
  void listen(Listener listener) { listener_ = std::move(listener); }

  const char* name() const override { return inner_.name(); }
  bool computes_here() const override { return inner_.computes_here(); }
  MemoryState memory() const override { return inner_.memory(); }
  Status status() const override { return inner_.status(); }
  bool can_cache(KvDType dtype) const override { return inner_.can_cache(dtype); }
  MachineLimits limits(int64_t read_bytes) override { return inner_.limits(read_bytes); }
  Result<std::unique_ptr<Weight>> pack(const QuantizedMatrix& matrix) override {
    return inner_.pack(matrix);
  }
  Result<std::unique_ptr<Weight>> pack_grouped(const GroupedMatrix& matrix, int first_row,
                                               int n_rows) override {
    return inner_.pack_grouped(matrix, first_row, n_rows);
  }
  Result<std::unique_ptr<Vector>> pack_vector(std::span<const float> values) override {
    return inner_.pack_vector(values);
  }
  int n_host_threads() const override { return inner_.n_host_threads(); }
  void for_each(int n_items, void (*fn)(void* ctx, int item, int thread), void* ctx) override {
    inner_.for_each(n_items, fn, ctx);
  }
  Result<std::unique_ptr<KvCache>> make_cache(const CacheSpec& spec,
                                              std::span<const int> n_blocks) override {
    return inner_.make_cache(spec, n_blocks);
  }
  StepShape begin_step(const Batch* batch) override;
  StepTicket submit() override { return inner_.submit(); }
  void wait(StepTicket ticket) override { inner_.wait(ticket); }
  Tensor new_tensor(int rows, int cols, TensorRole role) override {
    return inner_.new_tensor(rows, cols, role);
  }
  void read_rows(Tensor x, std::span<float> out) override { inner_.read_rows(x, out); }
  void write_rows(std::span<const float> values, Tensor x) override {
    inner_.write_rows(values, x);
  }
  float* in_place(Tensor x) override { return inner_.in_place(x); }
  void embed_tokens(const Weight& table, float scale, Tensor out) override {
    inner_.embed_tokens(table, scale, out);
  }
  void embed_share(const Weight& table, int first, float scale, Tensor out) override {
    inner_.embed_share(table, first, scale, out);
  }
  void embed_positions(const Weight& table, Tensor out) override {
    inner_.embed_positions(table, out);
  }
  void embed_token_types(const Weight& table, Tensor out) override {
    inner_.embed_token_types(table, out);
  }
  void put_given(Tensor x) override { inner_.put_given(x); }
  void add_given(int level, Tensor x) override {
    if (!stopped_) inner_.add_given(level, x);
  }
  void gather_outputs(Tensor x, Tensor out) override { inner_.gather_outputs(x, out); }
  void norm(Tensor x, const NormParams& params, Tensor out) override {
    if (!stopped_) inner_.norm(x, params, out);
  }
  void add_norm(Tensor x, Tensor delta, float scale, const NormParams& params,
                Tensor out) override {
    if (!stopped_) inner_.add_norm(x, delta, scale, params, out);
  }
  void add(Tensor x, Tensor delta, float scale) override {
    if (!stopped_) inner_.add(x, delta, scale);
  }
  void scale(Tensor x, float factor, float softcap) override {
    if (!stopped_) inner_.scale(x, factor, softcap);
  }
  void linear(Tensor x, std::span<const LinearTarget> targets) override;
  void round_int8(Tensor x) override {
    if (!stopped_) inner_.round_int8(x);
  }
  void activate(Tensor x, const ActivationFunction& f) override {
    if (!stopped_) inner_.activate(x, f);
  }
  void activate_mul(Tensor gate, Tensor up, const ActivationFunction& f, Tensor out) override {
    if (!stopped_) inner_.activate_mul(gate, up, f, out);
  }
  void copy(Tensor from, Tensor to) override {
    if (!stopped_) inner_.copy(from, to);
  }
  void clear(Tensor x) override {
    if (!stopped_) inner_.clear(x);
  }
  void gate_rows(Tensor x, Tensor gate, Activation f) override {
    if (!stopped_) inner_.gate_rows(x, gate, f);
  }
  void multiply(Tensor x, Tensor by) override {
    if (!stopped_) inner_.multiply(x, by);
  }
  void scale_columns(Tensor x, const Vector& by) override {
    if (!stopped_) inner_.scale_columns(x, by);
  }
  void add_mixed(Tensor from, Tensor by, int width, Tensor to) override {
    if (!stopped_) inner_.add_mixed(from, by, width, to);
  }
  void match_magnitude(Tensor x, Tensor like, float least) override {
    if (!stopped_) inner_.match_magnitude(x, like, least);
  }
  void keep_above(Tensor x, float deviations) override {
    if (!stopped_) inner_.keep_above(x, deviations);
  }
  void causal_conv(Tensor x, const ConvParams& params, KvCache& cache, Tensor out) override {
    if (!stopped_) inner_.causal_conv(x, params, cache, out);
  }
  void state_space(Tensor x, Tensor dt, Tensor scratch, const StateSpaceParams& params,
                   KvCache& cache, Tensor out) override {
    if (!stopped_) inner_.state_space(x, dt, scratch, params, cache, out);
  }
  void gated_delta(Tensor qkv, Tensor a, Tensor b, const DeltaParams& params, KvCache& cache,
                   Tensor out) override {
    if (!stopped_) inner_.gated_delta(qkv, a, b, params, cache, out);
  }
  void scale_by_position(Tensor x, const PositionScale& scale) override {
    if (!stopped_) inner_.scale_by_position(x, scale);
  }
  void moe(Tensor x, Tensor router_logits, const MoeParams& params, Tensor out) override;
  void rotate(Tensor q, Tensor k, const RopeParams& rope, int head_dim) override {
    if (!stopped_) inner_.rotate(q, k, rope, head_dim);
  }
  void rope_and_store(Tensor q, Tensor k, Tensor v, const RopeParams* rope, KvCache& cache,
                      int layer) override {
    // Only attend(), the next product, reads its outputs.
    if (!stopped_ && product_ >= pass_.first && !recorded(product_))
      inner_.rope_and_store(q, k, v, rope, cache, layer);
  }
  void attend(Tensor q, const KvCache& cache, const AttentionParams& params, Tensor out) override;
  bool can_select() const override { return inner_.can_select(); }
  bool has_all() const override { return inner_.has_all(); }
  void select(Tensor q, Tensor weights, const KvCache& cache, const SelectParams& params,
              Tensor out) override {
    if (!stopped_ && product_ >= pass_.first && !recorded(product_))
      inner_.select(q, weights, cache, params, out);
  }
  void root_gates(Tensor a, Tensor b, float scale, Tensor out) override {
    if (!stopped_) inner_.root_gates(a, b, scale, out);
  }
  void pool_keys(Tensor keys, Tensor scores, const PoolParams& params, KvCache& cache,
                 Tensor out) override {
    if (!stopped_) inner_.pool_keys(keys, scores, params, cache, out);
  }
  void add_columns(Tensor x, const Vector& by) override {
    if (!stopped_) inner_.add_columns(x, by);
  }
  void wkv(const WkvTensors& tensors, const WkvParams& params, KvCache& cache) override {
    if (!stopped_) inner_.wkv(tensors, params, cache);
  }
  void mix_streams(Tensor z, const StreamMixParams& params) override {
    if (!stopped_) inner_.mix_streams(z, params);
  }
  void bound_rows(Tensor x, float bound) override {
    if (!stopped_) inner_.bound_rows(x, bound);
  }
  void softmax_rows(Tensor x) override {
    if (!stopped_) inner_.softmax_rows(x);
  }
  void scale_heads_by_position(Tensor x, const Vector& slopes, const Vector& biases) override {
    if (!stopped_) inner_.scale_heads_by_position(x, slopes, biases);
  }
  void embed_ngrams(const NgramParams& params, KvCache& cache, Tensor out) override {
    if (!stopped_) inner_.embed_ngrams(params, cache, out);
  }
  void move_kv(KvCache& cache, int group, std::span<const int32_t> from,
               std::span<const int32_t> to) override {
    inner_.move_kv(cache, group, from, to);
  }

 private:
  struct Recorded {
    int step, product;
    std::vector<std::vector<float>> outputs;
  };
  const Recorded* recorded(int product) const;
  bool leave_out(int product, std::span<const Tensor> outputs);
  void record(int product, std::span<const Tensor> outputs);
  void observed(Tensor x, std::span<const LinearTarget> targets);

  Ops& inner_;
  Listener listener_;
  Pass pass_;
  std::vector<Recorded> tape_;
  int step_ = -1;    // of the pass
  int product_ = 0;  // number of the next product in the step
  bool stopped_ = false;
};

}  // namespace penstock
