// Interface of a model with its backend and cache, as the engine uses it. Tests implement it by a
// fake.
#pragma once
#include <memory>

#include "base/result.h"
#include "model/model.h"
#include "ops/host_rows.h"
#include "ops/ops.h"
#include "parallel/communicator.h"

namespace penstock {

class StepModel {
 public:
  virtual ~StepModel() = default;
  virtual int vocab_size() const = 0;
  // As Ops::computes_here().
  virtual bool computes_here() const { return true; }
  // Number of pipeline stages, each of which computes a different step at the same time: as many
  // steps should be in flight. 1: there is no pipeline.
  virtual int n_stages() const { return 1; }
  // Whether logits are gathered from several ranks; then Batch::row_tops saves traffic when only
  // the greatest are needed.
  virtual bool gathers_logits() const { return false; }
  // Begins to compute the batch, whose arrays may change when this returns. REQUIRES: at most two
  // steps are in flight, with stages at most n_stages() + 1, this one included.
  virtual void submit(const Batch& batch) = 0;
  // As Ops::samples() and Ops::sample(), from the logits of the step that was submitted last.
  // Called before its wait().
  virtual bool samples() const { return false; }
  virtual void sample(std::span<const SampleRow> rows, std::span<SampleResult> results) {
    (void)rows, (void)results;
  }
  // Returns when the oldest step that was not waited for yet is done.
  virtual void wait() = 0;
  // Finishes this rank's part of all submitted work. Called before a drafter computes with this
  // model.
  virtual void catch_up() {}
  // Ok, or the error for which nothing can be computed any more; results of steps waited for since
  // are then invalid. Never waits.
  virtual Status status() const { return {}; }
  // As Ops::recover(). Models that several ranks share cannot recover.
  virtual bool recover() { return status().has_value(); }
  // Communication counters of each rank, by rank; empty when this process has the whole model. Any
  // thread.
  virtual std::vector<CommunicatorUse> communication() const { return {}; }
  // As Ops::expert_bytes_read(), for this process only. Any thread.
  virtual int64_t expert_bytes_read() const { return 0; }
  virtual ExpertTraffic expert_traffic() const { return {}; }  // as Ops::expert_traffic()
  // Results of the step that was submitted last (with stages: waited for last), in host memory: the
  // logits [vocab_size] of an output row, which may be overwritten, and the final normed state
  // [model_dim] that they were computed from, empty when the model gives none. REQUIRES: the step
  // was waited for. Valid until the next submit(), or until a drafter computes.
  virtual std::span<float> logits(int row) = 0;
  virtual std::span<const float> hidden(int row) {
    (void)row;
    return {};
  }
  // Makes all further steps keep the states that state() returns. taps: as ForwardOptions::taps.
  virtual void keep_states(std::span<const int> taps) { (void)taps; }
  // Suspends keep_states() for the steps from now on (true), or resumes it (false).
  virtual void skip_states(bool skip) { (void)skip; }
  // The final normed state [model_dim] of a token of the batch, or with taps its residual streams
  // there; valid as hidden(). REQUIRES: keep_states().
  virtual std::span<const float> state(int token) {
    (void)token;
    return {};
  }
  // Copies K and V of a whole block, in all layers of the group. Called before the submit() of the
  // step that needs the copy.
  virtual void copy_block(int group, BlockId from, BlockId to) = 0;
  // Copies K and V of slot from[i] to slot to[i], in this order, in all layers of the group. Called
  // after a step's submit().
  virtual void move_tokens(int group, std::span<const int32_t> from,
                           std::span<const int32_t> to) = 0;

  // LoRA adapters, as in Model. put_adapter() and drop_adapter() are called between two steps.
  virtual Result<int64_t> check_adapter(const LoraAdapter& adapter) const {
    (void)adapter;
    return make_error(ErrorCode::kUnsupported, "this model takes no adapters");
  }
  virtual Status put_adapter(int slot, const LoraAdapter& adapter) {
    (void)slot, (void)adapter;
    return make_error(ErrorCode::kUnsupported, "this model takes no adapters");
  }
  virtual void drop_adapter(int slot) { (void)slot; }

  // Number of host threads for sampling, and a loop over items on them; as in Ops.
  virtual int n_host_threads() const { return 1; }
  virtual void for_each(int n_items, void (*fn)(void* ctx, int item, int thread), void* ctx) {
    for (int i = 0; i < n_items; ++i) fn(ctx, i, 0);
  }

  // Reads or writes the content of a block, block_bytes() bytes of all layers of the group; as in
  // KvCache.
  virtual int64_t block_bytes(int group) const = 0;
  virtual void read_block(int group, BlockId block, std::span<std::byte> out) const = 0;
  virtual void write_block(int group, BlockId block, std::span<const std::byte> bytes) = 0;
};

// A loaded model with its backend and cache. Several engines may share the model and its source.
class LoadedModel : public StepModel {
 public:
  LoadedModel(std::shared_ptr<WeightSource> source, std::unique_ptr<Ops> ops,
              std::shared_ptr<Model> model, std::unique_ptr<KvCache> cache)
      : source_(std::move(source)),
        ops_(std::move(ops)),
        model_(std::move(model)),
        cache_(std::move(cache)),
        logits_(*ops_),
        hidden_(*ops_),
        states_(*ops_) {}

  int vocab_size() const override { return model_->config().vocab_size; }
  bool computes_here() const override { return ops_->computes_here(); }
  Status status() const override { return ops_->status(); }
  bool recover() override { return ops_->recover(); }
  int64_t expert_bytes_read() const override { return ops_->expert_bytes_read(); }
  ExpertTraffic expert_traffic() const override { return ops_->expert_traffic(); }
  void submit(const Batch& batch) override { submit(batch, {}); }
  // Submits a step of a pipeline stage. stage_input: the output of the stage before for the batch's
  // tokens, empty for the first stage; must stay valid until the wait().
  void submit(const Batch& batch, std::span<const float> stage_input);
  // Reads the stage's output for the next stage, [n_tokens, Model::stage_output_dim()]. REQUIRES:
  // the step was waited for.
  void read_stream(std::span<float> out) { ops_->read_rows(stream_, out); }
  bool samples() const override { return ops_->samples(); }
  void sample(std::span<const SampleRow> rows, std::span<SampleResult> results) override {
    ops_->sample(logits_.tensor(), rows, results);
  }
  void wait() override;
  std::span<float> logits(int row) override { return logits_.row(row); }
  std::span<const float> hidden(int row) override { return hidden_.row(row); }
  std::span<const float> state(int token) override { return states_.row(token); }
  void move_tokens(int group, std::span<const int32_t> from, std::span<const int32_t> to) override {
    ops_->move_kv(*cache_, group, from, to);
  }
  void copy_block(int group, BlockId from, BlockId to) override;
  Result<int64_t> check_adapter(const LoraAdapter& adapter) const override {
    return model_->check_adapter(adapter);
  }
  Status put_adapter(int slot, const LoraAdapter& adapter) override;
  void drop_adapter(int slot) override;
  int n_host_threads() const override { return ops_->n_host_threads(); }
  void for_each(int n_items, void (*fn)(void* ctx, int item, int thread), void* ctx) override {
    ops_->for_each(n_items, fn, ctx);
  }
  int64_t block_bytes(int group) const override { return cache_->block_bytes(group); }
  void read_block(int group, BlockId block, std::span<std::byte> out) const override {
    cache_->read_block(group, block, out);
  }
  void write_block(int group, BlockId block, std::span<const std::byte> bytes) override {
    cache_->write_block(group, block, bytes);
  }

  Ops& ops() { return *ops_; }
  const Model& model() const { return *model_; }
  // Replaces the cache; null removes it. REQUIRES: no step is in flight.
  void set_cache(std::unique_ptr<KvCache> cache) { cache_ = std::move(cache); }
  const KvCache& cache() const { return *cache_; }
  KvCache& cache() { return *cache_; }
  // Fills `slots` with the slots of a block; a block of a state group is one slot.
  void slots_of_block(int group, BlockId block, std::vector<int32_t>& slots) const;
  void keep_states(std::span<const int> taps) override {
    keeps_states_ = true;
    taps_.assign(taps.begin(), taps.end());
  }
  void skip_states(bool skip) override { skips_states_ = skip; }

 private:
  void wait_for_all();

  std::shared_ptr<WeightSource> source_;  // a backend may keep views into it
  std::unique_ptr<Ops> ops_;
  std::shared_ptr<Model> model_;
  std::unique_ptr<KvCache> cache_;
  std::vector<int32_t> from_, to_;
  StepTicket tickets_[2] = {};
  int n_under_way_ = 0;
  bool keeps_states_ = false, skips_states_ = false;
  std::vector<int> taps_;
  HostRows logits_, hidden_, states_;
  Tensor stream_;
};

}  // namespace penstock
