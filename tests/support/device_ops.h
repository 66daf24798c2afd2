// A backend that behaves as a device may while an inner one computes: it records the operations of a step and plays them
// again for steps with the same key, has no tensor that the host could look into, and, if it is told how, draws tokens,
// which it tells when it is waited for. A model whose operations depend on anything but the key gives other results on it
// than on the inner one.
#pragma once
#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ops/ops.h"

namespace penstock::testing {

class DeviceOps final : public Ops {
 public:
  // Sampler::draw, or null: draws are left to the host.
  using Draw = std::function<SampleResult(const SampleRow& row, std::span<float> logits)>;
  explicit DeviceOps(std::unique_ptr<Ops> inner, Draw draw = {})
      : inner_(std::move(inner)), draw_(std::move(draw)) {}
  int n_drawn() const { return n_drawn_; }
  int n_recorded() const { return static_cast<int>(graphs_.size()); }
  int n_replayed() const { return n_replayed_; }

  const char* name() const override { return inner_->name(); }
  MemoryState memory() const override { return inner_->memory(); }
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
  Result<std::unique_ptr<KvCache>> make_cache(const CacheSpec& spec, std::span<const int> n_blocks) override {
    return inner_->make_cache(spec, n_blocks);
  }
  StepShape begin_step(const Batch* batch) override { return inner_->begin_step(batch); }
  StepTicket submit() override { return inner_->submit(); }
  void wait(StepTicket ticket) override {
    inner_->wait(ticket);
    std::ranges::copy(drawn_, results_.begin());
    drawn_.clear(), results_ = {};
  }
  bool samples() const override { return draw_ != nullptr; }
  void sample(Tensor logits, std::span<const SampleRow> rows, std::span<SampleResult> results) override {
    for (const SampleRow& row : rows) {
      std::vector<float> values(static_cast<size_t>(logits.cols));
      inner_->read_rows(logits.row_range(row.row, 1), values);
      drawn_.push_back(draw_(row, values));
    }
    n_drawn_ += static_cast<int>(rows.size());
    results_ = results;
  }
  // In memory of its own: a recorded tensor stays where it is.
  Tensor new_tensor(int rows, int cols, TensorRole) override {
    std::vector<float>& memory = memory_.emplace_back(static_cast<size_t>(rows) * static_cast<size_t>(cols));
    return {memory.data(), DType::kF32, rows, cols, cols};
  }
  void read_rows(Tensor x, std::span<float> out) override { inner_->read_rows(x, out); }
  void write_rows(std::span<const float> values, Tensor x) override { inner_->write_rows(values, x); }
  void embed_tokens(const Weight& table, float scale, Tensor out) override {
    act([this, &table, scale, out] { inner_->embed_tokens(table, scale, out); });
  }
  void embed_positions(const Weight& table, Tensor out) override {
    act([this, &table, out] { inner_->embed_positions(table, out); });
  }
  void gather_outputs(Tensor x, Tensor out) override {
    act([this, x, out] { inner_->gather_outputs(x, out); });
  }
  void norm(Tensor x, const NormParams& params, Tensor out) override {
    act([this, x, params, out] { inner_->norm(x, params, out); });
  }
  void add_norm(Tensor x, Tensor delta, float scale, const NormParams& params, Tensor out) override {
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
  void activate(Tensor x, Activation activation) override {
    act([this, x, activation] { inner_->activate(x, activation); });
  }
  void activate_mul(Tensor gate, Tensor up, Activation activation, Tensor out) override {
    act([this, gate, up, activation, out] { inner_->activate_mul(gate, up, activation, out); });
  }
  void moe(Tensor x, Tensor router_logits, const MoeParams& params, Tensor out) override {
    act([this, x, router_logits, params, out] { inner_->moe(x, router_logits, params, out); });
  }
  void rope_and_store(Tensor q, Tensor k, Tensor v, const RopeParams* rope, KvCache& cache,
                      int layer) override {
    act([this, q, k, v, rope, &cache, layer] { inner_->rope_and_store(q, k, v, rope, cache, layer); });
  }
  void attend(Tensor q, const KvCache& cache, const AttentionParams& params, Tensor out) override {
    act([this, q, &cache, params, out] { inner_->attend(q, cache, params, out); });
  }
  void move_kv(KvCache& cache, int group, std::span<const int32_t> from,
               std::span<const int32_t> to) override {
    inner_->move_kv(cache, group, from, to);
  }

 protected:
  StepOutputs run_step(const StepKey& key, StepFn fn, void* ctx) override {
    const auto found = std::ranges::find(graphs_, key, &Graph::key);
    if (found == graphs_.end()) {
      graphs_.push_back({key, {}, {}});
      recording_ = &graphs_.back();
      recording_->outputs = fn(ctx);
      recording_ = nullptr;
      return graphs_.back().outputs;
    }
    for (const auto& action : found->actions) action();
    ++n_replayed_;
    return found->outputs;
  }

 private:
  struct Graph {
    StepKey key;
    std::vector<std::function<void()>> actions;
    StepOutputs outputs;
  };
  void act(std::function<void()> action) {
    action();
    if (recording_ != nullptr) recording_->actions.push_back(std::move(action));
  }

  std::unique_ptr<Ops> inner_;
  Draw draw_;
  std::vector<SampleResult> drawn_;
  std::span<SampleResult> results_;
  int n_drawn_ = 0;
  std::deque<std::vector<float>> memory_;
  std::deque<Graph> graphs_;
  Graph* recording_ = nullptr;
  int n_replayed_ = 0;
};

}  // namespace penstock::testing
