// A backend that behaves as a device may while an inner one computes: nothing is computed before
// somebody waits for it; its tensors lie in memory that only it may look into, a host that tries
// dies; it records the operations of a step and plays them again for steps with the same key; and,
// if it is told how, it draws tokens, which it tells when it is waited for, and which the next step
// may name. A model whose operations depend on anything but the key gives other results on it than
// on the inner one. Blocks of its caches are not read or written by the host.
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ops/ops.h"

namespace penstock {

// Memory that cannot be touched but while it is open. Recorded steps have thousands of tensors:
// they lie in few regions, each of which is opened by one call.
class DeviceMemory {
 public:
  ~DeviceMemory() {
    for (const Region& region : regions_) munmap(region.data, region.bytes);
  }
  void* allocate(size_t bytes) {
    bytes = (std::max<size_t>(bytes, 1) + kAligned - 1) / kAligned * kAligned;
    if (regions_.empty() || regions_.back().bytes - regions_.back().used < bytes) {
      const size_t size = std::max(bytes, kRegion);
      void* data =
          mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      PENSTOCK_CHECK(data != MAP_FAILED);
      regions_.push_back({static_cast<std::byte*>(data), size, 0});
    }
    Region& last = regions_.back();
    last.used += bytes;
    return last.data + last.used - bytes;
  }
  void open() { protect(PROT_READ | PROT_WRITE); }
  void close() { protect(PROT_NONE); }

 private:
  static constexpr size_t kRegion = size_t{64} << 20, kAligned = 64;
  struct Region {
    std::byte* data;
    size_t bytes, used;
  };
  void protect(int how) {
    for (const Region& region : regions_)
      PENSTOCK_CHECK(mprotect(region.data, region.bytes, how) == 0);
  }
  std::vector<Region> regions_;
};

// A copy of a batch: the host's arrays may change as soon as a step is submitted.
struct KeptBatch {
  explicit KeptBatch(const Batch& from)
      : tokens(copy(from.tokens)),
        positions(copy(from.positions)),
        seq_offsets(copy(from.seq_offsets)),
        seq_lens(copy(from.seq_lens)),
        output_rows(copy(from.output_rows)),
        row_tops(copy(from.row_tops)),
        token_types(copy(from.token_types)),
        adapters(copy(from.adapters)),
        long_ropes(copy(from.long_ropes)),
        tree_masks(copy(from.tree_masks)),
        axis_positions(copy(from.axis_positions)),
        sights(copy(from.sights)),
        given(copy(from.given)) {
    for (const KvView& kv : from.kv) {
      const Group& group = groups.emplace_back(Group{
          copy(kv.slots), copy(kv.table_offsets), copy(kv.first_positions), copy(kv.block_tables)});
      views.push_back({group.slots, group.tables, group.table_offsets, group.first_positions});
    }
    for (GivenRows& rows : given) {
      auto& values = given_values.emplace_back();
      const auto level = int64_t{rows.count} * from.given_dim;
      for (int i = 0; i < from.given_levels; ++i)
        values.insert(values.end(), rows.values + i * rows.level_stride,
                      rows.values + i * rows.level_stride + level);
      rows.values = values.data(), rows.level_stride = level;
    }
    for (const EncodedRows& rows : from.encoded)
      encoded.push_back({rows.seq, given_values.emplace_back(copy(rows.values))});
    batch = {tokens,      positions, seq_offsets,       seq_lens,       views,      tree_masks,
             output_rows, row_tops,  token_types,       adapters,       long_ropes, axis_positions,
             sights,      given,     from.given_levels, from.given_dim, {},         {},
             encoded};
  }
  template <class T>
  static std::vector<std::remove_const_t<T>> copy(std::span<T> from) {
    return {from.begin(), from.end()};
  }
  struct Group {
    std::vector<int32_t> slots, table_offsets, first_positions;
    std::vector<BlockId> tables;
  };
  std::vector<TokenId> tokens;
  std::vector<int32_t> positions, seq_offsets, seq_lens, output_rows, row_tops, token_types,
      adapters, long_ropes;
  std::vector<uint64_t> tree_masks;
  std::vector<AxisPosition> axis_positions;
  std::vector<int32_t> sights;
  std::vector<GivenRows> given;
  std::vector<EncodedRows> encoded;
  std::deque<std::vector<float>> given_values;
  std::deque<Group> groups;
  std::vector<KvView> views;
  Batch batch;
};

class DeviceOps : public Ops {
 public:
  // Sampler::draw, or null: draws are left to the host.
  using Draw = std::function<SampleResult(const SampleRow& row, std::span<float> logits)>;
  explicit DeviceOps(std::unique_ptr<Ops> inner, Draw draw = {})
      : inner_(std::move(inner)), draw_(std::move(draw)) {}
  int n_drawn() const { return n_drawn_; }
  int n_recorded() const { return static_cast<int>(graphs_.size()); }
  int n_replayed() const { return n_replayed_; }
  int n_ahead() const { return n_ahead_; }  // steps that began while another one was to be computed

  const char* name() const override { return inner_->name(); }
  MemoryState memory() const override { return inner_->memory(); }
  Status status() const override { return inner_->status(); }
  bool can_cache(KvDType dtype) const override { return inner_->can_cache(dtype); }
  MachineLimits limits(int64_t read_bytes) override { return inner_->limits(read_bytes); }
  Result<std::unique_ptr<Weight>> pack(const QuantizedMatrix& matrix) override {
    return inner_->pack(matrix);
  }
  Result<std::unique_ptr<Weight>> pack_grouped(const GroupedMatrix& matrix, int first_row,
                                               int n_rows) override {
    return inner_->pack_grouped(matrix, first_row, n_rows);
  }
  Result<std::unique_ptr<Vector>> pack_vector(std::span<const float> values) override {
    return inner_->pack_vector(values);
  }
  Result<std::unique_ptr<KvCache>> make_cache(const CacheSpec& spec,
                                              std::span<const int> n_blocks) override {
    return inner_->make_cache(spec, n_blocks);
  }
  StepShape begin_step(const Batch* batch) override {
    const StepShape shape = inner_->begin_step(batch);
    n_ahead_ += steps_.empty() ? 0 : 1;
    draws_ = {}, results_ = {};
    if (batch != nullptr)
      draws_.assign(batch->draws.begin(), batch->draws.end()), results_ = batch->drawn;
    auto kept = std::make_shared<KeptBatch>(batch != nullptr ? *batch : Batch{});
    steps_.emplace_back();
    queue([this, kept] {
      for (TokenId& token : kept->tokens)
        if (token < 0) token = drawn_.at(static_cast<size_t>(-1 - token)).token;
      inner_->begin_step(&kept->batch);
      // the rest of the step may come after a write_rows()
      begun_ = kept;
    });
    return shape;
  }
  StepTicket submit() override {
    if (!steps_.empty()) steps_.back().ticket = next_ticket_;
    return next_ticket_++;
  }
  void wait(StepTicket ticket) override {
    while (!steps_.empty() && steps_.front().ticket <= ticket) compute_first();
  }
  bool samples() const override { return draw_ != nullptr; }
  void sample(Tensor logits, std::span<const SampleRow> rows,
              std::span<SampleResult> results) override {
    n_drawn_ += static_cast<int>(rows.size());
    queue([this, logits, kept = std::vector(rows.begin(), rows.end()), results] {
      drawn_.clear();
      for (const SampleRow& row : kept) {
        std::vector<float> values(static_cast<size_t>(logits.cols));
        inner_->read_rows(logits.row_range(row.row, 1), values);
        drawn_.push_back(draw_(row, values));
      }
      std::ranges::copy(drawn_, results.begin());
    });
  }
  // In memory of its own: a recorded tensor stays where it is.
  Tensor new_tensor(int rows, int cols, TensorRole) override {
    const size_t bytes = static_cast<size_t>(rows) * static_cast<size_t>(cols) * sizeof(float);
    return {memory_.allocate(bytes), DType::kF32, rows, cols, cols};
  }
  void read_rows(Tensor x, std::span<float> out) override {
    compute_all();
    memory_.open();
    inner_->read_rows(x, out);
    memory_.close();
  }
  void write_rows(std::span<const float> values, Tensor x) override {
    compute_all();
    memory_.open();
    inner_->write_rows(values, x);
    memory_.close();
  }
  void embed_share(const Weight& table, int first, float scale, Tensor out) override {
    act([this, &table, first, scale, out] { inner_->embed_share(table, first, scale, out); });
  }
  void embed_tokens(const Weight& table, float scale, Tensor out) override {
    act([this, &table, scale, out] { inner_->embed_tokens(table, scale, out); });
  }
  void embed_positions(const Weight& table, Tensor out) override {
    act([this, &table, out] { inner_->embed_positions(table, out); });
  }
  void embed_token_types(const Weight& table, Tensor out) override {
    act([this, &table, out] { inner_->embed_token_types(table, out); });
  }
  void put_given(Tensor x) override {
    act([this, x] { inner_->put_given(x); });
  }
  void add_given(int level, Tensor x) override {
    act([this, level, x] { inner_->add_given(level, x); });
  }
  void gather_outputs(Tensor x, Tensor out) override {
    act([this, x, out] { inner_->gather_outputs(x, out); });
  }
  void norm(Tensor x, const NormParams& params, Tensor out) override {
    act([this, x, params, out] { inner_->norm(x, params, out); });
  }
  void add_norm(Tensor x, Tensor delta, float scale, const NormParams& params,
                Tensor out) override {
    act([this, x, delta, scale, params, out] { inner_->add_norm(x, delta, scale, params, out); });
  }
  void add(Tensor x, Tensor delta, float scale) override {
    act([this, x, delta, scale] { inner_->add(x, delta, scale); });
  }
  void scale(Tensor x, float factor, float softcap) override {
    act([this, x, factor, softcap] { inner_->scale(x, factor, softcap); });
  }
  void linear(Tensor x, std::span<const LinearTarget> targets) override {
    act([this, x, kept = std::vector(targets.begin(), targets.end())] { inner_->linear(x, kept); });
  }
  void round_int8(Tensor x) override {
    act([this, x] { inner_->round_int8(x); });
  }
  void activate(Tensor x, const ActivationFunction& f) override {
    act([this, x, f] { inner_->activate(x, f); });
  }
  void activate_mul(Tensor gate, Tensor up, const ActivationFunction& f, Tensor out) override {
    act([this, gate, up, f, out] { inner_->activate_mul(gate, up, f, out); });
  }
  void clear(Tensor x) override {
    act([this, x] { inner_->clear(x); });
  }
  void copy(Tensor from, Tensor to) override {
    act([this, from, to] { inner_->copy(from, to); });
  }
  void gate_rows(Tensor x, Tensor gate, Activation f) override {
    act([this, x, gate, f] { inner_->gate_rows(x, gate, f); });
  }
  void multiply(Tensor x, Tensor by) override {
    act([this, x, by] { inner_->multiply(x, by); });
  }
  void scale_columns(Tensor x, const Vector& by) override {
    act([this, x, &by] { inner_->scale_columns(x, by); });
  }
  void add_mixed(Tensor from, Tensor by, int width, Tensor to) override {
    act([this, from, by, width, to] { inner_->add_mixed(from, by, width, to); });
  }
  void match_magnitude(Tensor x, Tensor like, float least) override {
    act([this, x, like, least] { inner_->match_magnitude(x, like, least); });
  }
  void keep_above(Tensor x, float deviations) override {
    act([this, x, deviations] { inner_->keep_above(x, deviations); });
  }
  void causal_conv(Tensor x, const ConvParams& params, KvCache& cache, Tensor out) override {
    act([this, x, params, &cache, out] { inner_->causal_conv(x, params, cache, out); });
  }
  void state_space(Tensor x, Tensor dt, Tensor scratch, const StateSpaceParams& params,
                   KvCache& cache, Tensor out) override {
    act([this, x, dt, scratch, params, &cache, out] {
      inner_->state_space(x, dt, scratch, params, cache, out);
    });
  }
  void gated_delta(Tensor qkv, Tensor a, Tensor b, const DeltaParams& params, KvCache& cache,
                   Tensor out) override {
    act([this, qkv, a, b, params, &cache, out] {
      inner_->gated_delta(qkv, a, b, params, cache, out);
    });
  }
  void scale_by_position(Tensor x, const PositionScale& scale) override {
    act([this, x, scale] { inner_->scale_by_position(x, scale); });
  }
  void moe(Tensor x, Tensor router_logits, const MoeParams& params, Tensor out) override {
    act([this, x, router_logits, params, out] { inner_->moe(x, router_logits, params, out); });
  }
  void rotate(Tensor q, Tensor k, const RopeParams& rope, int head_dim) override {
    act([this, q, k, rope, head_dim] { inner_->rotate(q, k, rope, head_dim); });
  }
  void rope_and_store(Tensor q, Tensor k, Tensor v, const RopeParams* rope, KvCache& cache,
                      int layer) override {
    act([this, q, k, v, rope, &cache, layer] {
      inner_->rope_and_store(q, k, v, rope, cache, layer);
    });
  }
  void attend(Tensor q, const KvCache& cache, const AttentionParams& params, Tensor out) override {
    act([this, q, &cache, params, out] { inner_->attend(q, cache, params, out); });
  }
  bool can_cross_attend() const override { return inner_->can_cross_attend(); }
  void put_encoded(int index, Tensor rows) override {
    act([this, index, rows] { inner_->put_encoded(index, rows); });
  }
  void store_encoded(int index, Tensor k, Tensor v, const EncodedParams& params,
                     KvCache& cache) override {
    act([this, index, k, v, params, &cache] { inner_->store_encoded(index, k, v, params, cache); });
  }
  void attend_encoded(Tensor q, const EncodedParams& params, const KvCache& cache,
                      Tensor out) override {
    act([this, q, params, &cache, out] { inner_->attend_encoded(q, params, cache, out); });
  }
  bool can_select() const override { return inner_->can_select(); }
  bool has_all() const override { return inner_->has_all(); }
  void select(Tensor q, Tensor weights, const KvCache& cache, const SelectParams& params,
              Tensor out) override {
    act([this, q, weights, &cache, params, out] {
      inner_->select(q, weights, cache, params, out);
    });
  }
  void root_gates(Tensor a, Tensor b, float scale, Tensor out) override {
    act([this, a, b, scale, out] { inner_->root_gates(a, b, scale, out); });
  }
  void pool_keys(Tensor keys, Tensor scores, const PoolParams& params, KvCache& cache,
                 Tensor out) override {
    act([this, keys, scores, params, &cache, out] {
      inner_->pool_keys(keys, scores, params, cache, out);
    });
  }
  void mix_streams(Tensor z, const StreamMixParams& params) override {
    act([this, z, params] { inner_->mix_streams(z, params); });
  }
  void bound_rows(Tensor x, float bound) override {
    act([this, x, bound] { inner_->bound_rows(x, bound); });
  }
  void softmax_rows(Tensor x) override {
    act([this, x] { inner_->softmax_rows(x); });
  }
  void scale_heads_by_position(Tensor x, const Vector& slopes, const Vector& biases) override {
    act([this, x, &slopes, &biases] { inner_->scale_heads_by_position(x, slopes, biases); });
  }
  void add_columns(Tensor x, const Vector& by) override {
    act([this, x, &by] { inner_->add_columns(x, by); });
  }
  void wkv(const WkvTensors& tensors, const WkvParams& params, KvCache& cache) override {
    act([this, tensors, params, &cache] { inner_->wkv(tensors, params, cache); });
  }
  void embed_ngrams(const NgramParams& params, KvCache& cache, Tensor out) override {
    act([this, params, &cache, out] { inner_->embed_ngrams(params, cache, out); });
  }
  void move_kv(KvCache& cache, int group, std::span<const int32_t> from,
               std::span<const int32_t> to) override {
    queue([this, &cache, group, kept = std::vector(from.begin(), from.end()),
           there = std::vector(to.begin(), to.end())] {
      inner_->move_kv(cache, group, kept, there);
    });
  }

 protected:
  StepOutputs run_step(const StepKey& key, StepFn fn, void* ctx) override {
    const StepOutputs outputs = run_recorded(key, fn, ctx);
    if (!draws_.empty()) sample(outputs.logits, draws_, results_);
    return outputs;
  }

 private:
  StepOutputs run_recorded(const StepKey& key, StepFn fn, void* ctx) {
    const auto found = std::ranges::find(graphs_, key, &Graph::key);
    if (found == graphs_.end()) {
      graphs_.push_back({key, {}, {}});
      recording_ = &graphs_.back();
      recording_->outputs = fn(ctx);
      recording_ = nullptr;
      return graphs_.back().outputs;
    }
    for (const auto& action : found->actions) queue(action);
    ++n_replayed_;
    return found->outputs;
  }

  struct Graph {
    StepKey key;
    std::vector<std::function<void()>> actions;
    StepOutputs outputs;
  };
  struct Step {
    std::vector<std::function<void()>> actions;
    // 0: not submitted, computed with whatever is waited for next
    StepTicket ticket = 0;
  };
  void act(std::function<void()> action) {
    if (recording_ != nullptr) recording_->actions.push_back(action);
    queue(std::move(action));
  }
  void queue(std::function<void()> action) {
    if (steps_.empty()) steps_.emplace_back();
    steps_.back().actions.push_back(std::move(action));
  }
  void compute_first() {
    memory_.open();
    for (const auto& action : steps_.front().actions) action();
    memory_.close();
    steps_.pop_front();
  }
  void compute_all() {
    while (!steps_.empty()) compute_first();
  }

  std::unique_ptr<Ops> inner_;
  Draw draw_;
  DeviceMemory memory_;
  std::deque<Step> steps_;  // not computed yet
  StepTicket next_ticket_ = 1;
  std::shared_ptr<KeptBatch> begun_;  // of the step that is computed
  std::vector<SampleRow> draws_;      // of the step
  std::span<SampleResult> results_;
  std::vector<SampleResult> drawn_;  // by the last sample() that was computed
  int n_drawn_ = 0, n_ahead_ = 0;
  std::deque<Graph> graphs_;
  Graph* recording_ = nullptr;
  int n_replayed_ = 0;
};

}  // namespace penstock
