// What the engine needs of a model, its backend and its cache: the seam behind which tests put a fake.
#pragma once
#include <memory>

#include "base/result.h"
#include "model/model.h"
#include "ops/cpu/host_tensor.h"
#include "ops/ops.h"

namespace penstock {

class StepModel {
 public:
  virtual ~StepModel() = default;
  virtual int vocab_size() const = 0;
  // Computes the batch; logits F32 [n_output_rows, vocab_size], writable, valid until the next call.
  virtual Tensor forward(const Batch& batch) = 0;
  // The final normed state behind row `row` of the last forward's logits [model_dim]; null when there is
  // none.
  virtual const float* hidden(int row) const {
    (void)row;
    return nullptr;
  }
  // K and V of a whole block, all layers of the group; before the forward of the same step.
  virtual void copy_block(int group, BlockId from, BlockId to) = 0;
  // K and V from slot to slot, in this order, all layers of the group; after a forward.
  virtual void move_tokens(int group, std::span<const int32_t> from, std::span<const int32_t> to) = 0;

  // Host threads for sampling; as Ops::for_each.
  virtual int n_host_threads() const { return 1; }
  virtual void for_each(int n_items, void (*fn)(void* ctx, int item, int thread), void* ctx) {
    for (int i = 0; i < n_items; ++i) fn(ctx, i, 0);
  }

  // The content of a block, to be kept outside and brought back; as KvCache.
  virtual int64_t block_bytes(int group) const = 0;
  virtual void read_block(int group, BlockId block, std::span<std::byte> out) const = 0;
  virtual void write_block(int group, BlockId block, std::span<const std::byte> bytes) = 0;
};

// A loaded model with its backend and cache.
class LoadedModel : public StepModel {
 public:
  LoadedModel(std::unique_ptr<WeightSource> source, std::unique_ptr<Ops> ops, std::unique_ptr<Model> model,
              std::unique_ptr<KvCache> cache)
      : source_(std::move(source)),
        ops_(std::move(ops)),
        model_(std::move(model)),
        cache_(std::move(cache)) {}

  int vocab_size() const override { return model_->config().vocab_size; }
  Tensor forward(const Batch& batch) override {
    const StepOutputs result = model_->forward(batch, *cache_, *ops_);
    hidden_ = result.hidden;
    return result.logits;
  }
  const float* hidden(int row) const override { return f32(hidden_, row); }
  void move_tokens(int group, std::span<const int32_t> from, std::span<const int32_t> to) override {
    ops_->move_kv(*cache_, group, from, to);
  }
  void copy_block(int group, BlockId from, BlockId to) override;
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
  KvCache& cache() { return *cache_; }

 private:
  std::unique_ptr<WeightSource> source_;  // a backend may keep views into it
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvCache> cache_;
  std::vector<int32_t> from_, to_;
  Tensor hidden_;
};

}  // namespace penstock
