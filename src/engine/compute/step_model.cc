#include "engine/compute/step_model.h"

#include <iterator>

#include "base/check.h"

namespace penstock {

void LoadedModel::submit(const Batch& batch, std::span<const float> stage_input) {
  PENSTOCK_CHECK(n_under_way_ < static_cast<int>(std::size(tickets_)));
  const bool states = keeps_states_ && !skips_states_;
  const StepOutputs outputs =
      model_->forward(batch, *cache_, *ops_,
                      {.states = states,
                       .taps = states ? std::span<const int>(taps_) : std::span<const int>(),
                       .stage_input = stage_input});
  tickets_[n_under_way_++] = ops_->submit();
  stream_ = outputs.stream;
  logits_.set(outputs.logits);
  hidden_.set(outputs.hidden);
  if (states) states_.set(outputs.states);
}

void LoadedModel::wait() {
  PENSTOCK_CHECK(n_under_way_ > 0);
  ops_->wait(tickets_[0]);
  tickets_[0] = tickets_[1];
  --n_under_way_;
}

// A step in flight reads the adapters that were loaded when it began.
void LoadedModel::wait_for_all() {
  for (int i = 0; i < n_under_way_; ++i) ops_->wait(tickets_[i]);
}

Status LoadedModel::put_adapter(int slot, const LoraAdapter& adapter) {
  wait_for_all();
  return model_->put_adapter(slot, adapter, *ops_);
}

void LoadedModel::drop_adapter(int slot) {
  wait_for_all();
  model_->drop_adapter(slot);
}

void LoadedModel::copy_block(int group, BlockId from, BlockId to) {
  slots_of_block(group, from, from_);
  slots_of_block(group, to, to_);
  ops_->move_kv(*cache_, group, from_, to_);
}

void LoadedModel::slots_of_block(int group, BlockId block, std::vector<int32_t>& slots) const {
  const int block_size = group == cache_->spec().state_group() ? 1 : cache_->spec().block_size;
  slots.resize(static_cast<size_t>(block_size));
  for (int i = 0; i < block_size; ++i)
    slots[static_cast<size_t>(i)] = static_cast<int32_t>(block) * block_size + i;
}

}  // namespace penstock
