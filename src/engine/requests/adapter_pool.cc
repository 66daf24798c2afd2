#include "engine/requests/adapter_pool.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/log.h"
#include "formats/lora.h"

namespace penstock {
Result<std::shared_ptr<const Adapter>> Adapter::open(const std::string& path,
                                                     const StepModel& model, int max_rank) {
  ASSIGN_OR_RETURN(const LoraAdapter files, open_lora(path));
  auto adapter = std::make_shared<Adapter>();
  ASSIGN_OR_RETURN(adapter->bytes_, model.check_adapter(files));
  for (const LoraModule& module : files.modules)
    adapter->rank_ = std::max(adapter->rank_, static_cast<int>(module.rank()));
  if (adapter->rank_ > max_rank)
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: expected a rank up to max_lora_rank, {}, got {}", path, max_rank,
                  adapter->rank_);
  adapter->path_ = path;
  adapter->fingerprint_ = lora_fingerprint(files);
  adapter->model_ = &model;
  return adapter;
}

std::shared_ptr<const Adapter> Adapter::of_engines(
    std::vector<std::shared_ptr<const Adapter>> opened) {
  auto adapter = std::make_shared<Adapter>(*opened.front());
  adapter->opened_ = std::move(opened);
  return adapter;
}

Result<std::optional<int>> AdapterPool::take(const std::shared_ptr<const Adapter>& adapter) {
  const auto same = [&](const Slot& slot) {
    return slot.adapter != nullptr && slot.adapter->fingerprint() == adapter->fingerprint();
  };
  auto found = std::ranges::find_if(slots_, same);
  if (found == slots_.end()) {
    const auto rank = [](const Slot& slot) { return std::pair(slot.n_users > 0, slot.used); };
    found = std::ranges::min_element(slots_, {}, rank);
    if (found == slots_.end() || found->n_users > 0) return std::nullopt;
    RETURN_IF_ERROR(load(static_cast<size_t>(found - slots_.begin()), adapter));
  }
  ++found->n_users;
  found->used = ++n_taken_;
  return first_ + static_cast<int>(found - slots_.begin());
}

Status AdapterPool::load(size_t slot, const std::shared_ptr<const Adapter>& adapter) {
  slots_[slot] = {};
  model_.drop_adapter(first_ + static_cast<int>(slot));
  ASSIGN_OR_RETURN(const LoraAdapter files, open_lora(adapter->path()));
  if (lora_fingerprint(files) != adapter->fingerprint())
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: the adapter has changed since it was loaded: load it again",
                  adapter->path());
  RETURN_IF_ERROR(model_.put_adapter(first_ + static_cast<int>(slot), files));
  slots_[slot].adapter = adapter;
  log().info("adapter {}: in memory, rank {}, {} bytes", adapter->path(), adapter->rank(),
             adapter->bytes());
  return {};
}

void AdapterPool::drop_forgotten() {
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.adapter == nullptr || slot.n_users > 0 || slot.adapter.use_count() > 1) continue;
    slot = {};
    model_.drop_adapter(first_ + static_cast<int>(i));
  }
}

}  // namespace penstock
