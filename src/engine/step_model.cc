#include "engine/step_model.h"

namespace penstock {

void LoadedModel::forward(const Batch& batch) {
  const StepOutputs outputs = model_->forward(batch, *cache_, *ops_);
  logits_.set(outputs.logits);
  hidden_.set(outputs.hidden);
}

void LoadedModel::copy_block(int group, BlockId from, BlockId to) {
  const int block_size = cache_->spec().block_size;
  from_.resize(block_size);
  to_.resize(block_size);
  for (int i = 0; i < block_size; ++i) {
    from_[i] = static_cast<int32_t>(from) * block_size + i;
    to_[i] = static_cast<int32_t>(to) * block_size + i;
  }
  ops_->move_kv(*cache_, group, from_, to_);
}

}  // namespace penstock
