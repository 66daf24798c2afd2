// What the engine needs of a model, its backend and its cache: the seam behind which tests put a fake.
#pragma once
#include <memory>

#include "base/result.h"
#include "model/model.h"
#include "ops/ops.h"

namespace penstock {

class StepModel {
 public:
  virtual ~StepModel() = default;
  virtual int vocab_size() const = 0;
  // Computes the batch; logits F32 [n_output_rows, vocab_size], writable, valid until the next call.
  virtual Tensor forward(const Batch& batch) = 0;
  // K and V of a whole block, all layers of the group; before the forward of the same step.
  virtual void copy_block(int group, BlockId from, BlockId to) = 0;
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
    ops_->begin_step();
    return model_->forward(batch, *cache_, *ops_).logits;
  }
  void copy_block(int group, BlockId from, BlockId to) override;

  Ops& ops() { return *ops_; }
  const Model& model() const { return *model_; }
  KvCache& cache() { return *cache_; }

 private:
  std::unique_ptr<WeightSource> source_;  // a backend may keep views into it
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvCache> cache_;
  std::vector<int32_t> from_, to_;
};

}  // namespace penstock
