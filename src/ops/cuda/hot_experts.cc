#include "ops/cuda/hot_experts.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include "base/log.h"
#include "kernels/philox.h"
#include "ops/cuda/cuda_vector.h"

namespace penstock::cuda {
namespace {

constexpr size_t kAlign = 256;

size_t aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

const std::shared_ptr<const WeightImage>& image_of(const Weight& weight) {
  return static_cast<const ImageWeight&>(*weight.twin()).image();
}

const float* twin_data(const Vector* vector) {
  return vector == nullptr ? nullptr : device_data(vector->twin());
}

}  // namespace

Result<std::unique_ptr<HotLayer>> HotLayer::make(Device& device, const MoeParams& params) {
  auto made = std::make_unique<HotLayer>();
  const size_t n = params.up.size();
  const std::span<const std::unique_ptr<Weight>> weights[] = {params.gate, params.up, params.down};
  const std::span<const std::unique_ptr<Vector>> biases[] = {params.gate_bias, params.up_bias,
                                                             params.down_bias};
  const size_t table = n * sizeof(ExpertWeight), bytes = 3 * table + n * sizeof(int32_t);
  ASSIGN_OR_RETURN(made->memory_, Memory::make(device, bytes));
  device.clear(made->memory_.data(), bytes);
  for (size_t p = 0; p < 3; ++p) {
    Part& part = made->parts_[p];
    part.on_device = made->memory_.as<ExpertWeight>() + p * n;
    for (size_t e = 0; e < weights[p].size(); ++e) {
      const auto& image = image_of(*weights[p][e]);
      part.images.push_back(image);
      part.shapes.push_back({image->at(image->bytes.get()),
                             biases[p].empty() ? nullptr : twin_data(biases[p][e].get())});
    }
    if (!weights[p].empty()) part.rounding = image_of(*weights[p][0])->rounding;
  }
  made->flags_ = reinterpret_cast<int32_t*>(made->memory_.as<std::byte>() + 3 * table);
  const int n_active = params.routing.n_active;
  made->vectors_ = {twin_data(params.selection_bias), twin_data(params.expert_scale),
                    twin_data(params.token_experts),
                    params.token_experts != nullptr ? params.token_experts->size() / n_active : 0};
  made->slots.assign(n, -1), made->uses.assign(n, 0.0f);
  return made;
}

size_t HotLayer::bytes_of(int expert) const {
  size_t bytes = 0;
  for (const Part& part : parts_) {
    if (part.images.empty()) continue;
    const auto image = part.images[static_cast<size_t>(expert)].lock();
    if (image == nullptr) return 0;
    bytes += aligned(image->parts.bytes());
  }
  return bytes;
}

bool HotLayer::is_of(const MoeParams& params) const {
  return params.up.size() == slots.size() &&
         parts_[1].images[0].lock() == image_of(*params.up[0]) &&
         parts_[2].images[0].lock() == image_of(*params.down[0]);
}

Experts::Layer HotLayer::weights(const MoeParams& params) const {
  const auto of = [](const Part& part, std::span<const AdapterTerms> adapters) {
    return Experts::Matrices{.table = part.shapes,
                             .on_device = part.on_device,
                             .rounding = part.rounding,
                             .adapters = adapters};
  };
  return {of(parts_[0], params.gate_adapters), of(parts_[1], params.up_adapters),
          of(parts_[2], params.down_adapters)};
}

void HotLayer::put(Device& device, int expert, const std::byte* data) {
  const auto e = static_cast<size_t>(expert);
  for (Part& part : parts_) {
    if (part.images.empty()) continue;
    ExpertWeight own = {};
    const auto image = part.images[e].lock();
    if (data != nullptr && image != nullptr) {
      own = {image->at(data), part.shapes[e].bias};
      data += aligned(image->parts.bytes());
    }
    device.copy_in(part.on_device + e, &own, sizeof own);
  }
  const int32_t flag = data != nullptr ? 1 : 0;
  device.copy_in(flags_ + e, &flag, sizeof flag);
}

bool HotLayer::read(int expert, std::byte* to) const {
  for (const Part& part : parts_) {
    if (part.images.empty()) continue;
    const auto image = part.images[static_cast<size_t>(expert)].lock();
    if (image == nullptr) return false;
    std::memcpy(to, image->bytes.get(), image->parts.bytes());
    to += aligned(image->parts.bytes());
  }
  return true;
}

HotExperts::~HotExperts() { end_moves(); }

HotLayer* HotExperts::find(const MoeParams& params) {
  if (params.up.empty() || params.up[0]->twin() == nullptr) return nullptr;
  std::unique_ptr<HotLayer>& own = layers_[params.up.data()];
  if (own != nullptr && own->is_of(params)) return own.get();
  // Another model's weights lay there.
  if (own != nullptr) {
    end_moves();
    for (Slot& slot : slots_)
      if (slot.layer == own.get()) slot.layer = nullptr;
    own = nullptr;
  }
  Result<std::unique_ptr<HotLayer>> made = HotLayer::make(device_, params);
  if (!made) {
    device_.give_up(made.error());
    layers_.erase(params.up.data());
    return nullptr;
  }
  own = std::move(*made);
  for (int e = 0; e < own->n_experts(); ++e) largest_ = std::max(largest_, own->bytes_of(e));
  return own.get();
}

int64_t HotExperts::set_room(int64_t bytes) {
  int64_t all = 0;
  for (const auto& [key, layer] : layers_) all += int64_t{layer->n_experts()};
  const int64_t most = all > 0 ? all * static_cast<int64_t>(largest_) : bytes;
  return room_ = std::clamp<int64_t>(bytes, 0, std::max<int64_t>(most, 0));
}

void HotExperts::count(HotLayer& layer, std::span<const int32_t> experts) {
  for (const int32_t e : experts) {
    if (e < 0 || e >= layer.n_experts()) continue;
    ++choices_, hits_ += layer.slots[static_cast<size_t>(e)] >= 0 ? 1 : 0;
    layer.uses[static_cast<size_t>(e)] += 1.0f;
  }
}

uint64_t HotExperts::drawn(uint64_t below) {
  seed_ = mix_seed(seed_, 1);
  return below == 0 ? 0 : seed_ % below;
}

void HotExperts::begin_step(bool moves) {
  if (!device_.status()) return;
  ++turn_;
  if (++n_steps_ % kStepsOfHalf == 0)
    for (const auto& [key, layer] : layers_)
      for (float& uses : layer->uses) uses /= 2;
  if (seed_ != 0 && !slots_.empty() && drawn(2) == 0) {
    Slot& slot = slots_[drawn(slots_.size())];
    if (slot.layer != nullptr && !slot.moving) leave(slot);
  }
  if (!moves) return;
  while (moves_under_way_.size() < kMoves && room_ > 0) moves_under_way_.emplace_back(device_);
  bool began = false;
  for (Move& move : moves_under_way_) {
    if (move.state != Move::State::kIdle) {
      go_on(move);
    } else if (!began) {
      began = true, begin(move);
    }
  }
}

std::optional<HotExperts::Place> HotExperts::newcomer() {
  std::optional<Place> best;
  float most = seed_ != 0 ? -1.0f : kLeastUses;
  for (const auto& [key, layer] : layers_) {
    for (int e = 0; e < layer->n_experts(); ++e) {
      const auto at = static_cast<size_t>(e);
      const bool moves = std::ranges::any_of(moves_under_way_, [&](const Move& move) {
        return move.state != Move::State::kIdle && move.layer == layer.get() && move.expert == e;
      });
      const float merit = seed_ != 0 ? static_cast<float>(drawn(1 << 16)) : layer->uses[at];
      if (layer->slots[at] < 0 && !moves && merit > most) most = merit, best = {layer.get(), e};
    }
  }
  return best;
}

void HotExperts::begin(Move& move) {
  const std::optional<Place> who = newcomer();
  if (!who) return;
  float& uses = who->layer->uses[static_cast<size_t>(who->expert)];
  const size_t bytes = who->layer->bytes_of(who->expert);
  if (bytes == 0) return void(uses = 0.0f);  // its model is gone
  const std::optional<size_t> slot = slot_for(bytes, uses, 0);
  if (!slot || !move.pinned.make_room(bytes)) return;
  move.layer = who->layer, move.expert = who->expert, move.slot = *slot;
  slots_[*slot].moving = true;
  move.state = Move::State::kStaging;
  // On a thread of its own, or, if there is none, by whoever asks for it.
  move.staging = std::async(std::launch::async | std::launch::deferred,
                            [layer = move.layer, expert = move.expert, to = move.pinned.data()] {
                              return layer->read(expert, to);
                            });
}

void HotExperts::go_on(Move& move) {
  Slot& slot = slots_[move.slot];
  if (move.state == Move::State::kStaging) {
    constexpr std::chrono::seconds kNow{0};
    if (seed_ == 0 && move.staging.wait_for(kNow) == std::future_status::timeout) return;
    if (!move.staging.get()) {
      slot.moving = false, move.state = Move::State::kIdle;
      return;
    }
    move.copy = device_.copy_in_beside(slot.memory.data(), move.pinned.data(),
                                       move.layer->bytes_of(move.expert));
    move.state = Move::State::kCopying;
    if (seed_ == 0) return;
  }
  if (seed_ != 0) device_.wait_beside();
  if (!device_.is_there(move.copy)) return;
  slot.moving = false, move.state = Move::State::kIdle;
  // A prompt may have brought it meanwhile.
  if (move.layer->slots[static_cast<size_t>(move.expert)] < 0)
    settle(move.slot, *move.layer, move.expert);
}

void HotExperts::end_moves() {
  for (Move& move : moves_under_way_) {
    if (move.state == Move::State::kStaging) move.staging.wait();
    if (move.state != Move::State::kIdle) slots_[move.slot].moving = false;
    move.state = Move::State::kIdle;
  }
  device_.wait_beside();
}

void HotExperts::settle(size_t slot, HotLayer& layer, int expert) {
  slots_[slot].layer = &layer, slots_[slot].expert = expert;
  layer.slots[static_cast<size_t>(expert)] = static_cast<int>(slot);
  layer.put(device_, expert, slots_[slot].memory.as<const std::byte>());
  ++moves_;
}

void HotExperts::leave(Slot& slot) {
  slot.layer->slots[static_cast<size_t>(slot.expert)] = -1;
  slot.layer->put(device_, slot.expert, nullptr);
  slot.layer = nullptr;
}

std::optional<size_t> HotExperts::new_slot() {
  Result<Memory> memory = Memory::make(device_, largest_);
  if (!memory) {
    // What there is has to do.
    room_ = std::min<int64_t>(room_, taken_);
    log().info("copies of experts: {}", memory.error().message);
    refusal_ = memory.error();
    return std::nullopt;
  }
  taken_ += static_cast<int64_t>(largest_);
  slots_.push_back({std::move(*memory)});
  return slots_.size() - 1;
}

std::optional<size_t> HotExperts::victim(float uses) {
  std::optional<size_t> least;
  float fewest = 0.0f;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.layer == nullptr || slot.moving || slot.in_ring || slot.turn == turn_) continue;
    const float own = seed_ != 0 ? static_cast<float>(drawn(1 << 16))
                                 : slot.layer->uses[static_cast<size_t>(slot.expert)];
    if (!least || own < fewest) least = i, fewest = own;
  }
  if (least && (seed_ != 0 || uses > kMoreUses * fewest)) return least;
  return std::nullopt;
}

std::optional<size_t> HotExperts::slot_for(size_t bytes, float uses, size_t least) {
  std::optional<size_t> found;
  for (size_t i = 0; i < slots_.size() && !found; ++i)
    if (slots_[i].layer == nullptr && !slots_[i].moving && !slots_[i].in_ring) found = i;
  const bool has_room = taken_ + static_cast<int64_t>(largest_) <= room_;
  if (!found && (has_room || slots_.size() < least)) return new_slot();
  if (!found) found = victim(uses);
  if (!found) return std::nullopt;
  Slot& slot = slots_[*found];
  if (slot.layer != nullptr) leave(slot);
  if (slot.memory.bytes() >= bytes) return found;
  // Made when the experts that were known were smaller.
  taken_ -= static_cast<int64_t>(slot.memory.bytes());
  slot.memory = {};
  Result<Memory> memory = Memory::make(device_, largest_);
  if (!memory) {
    refusal_ = memory.error();
    return std::nullopt;
  }
  taken_ += static_cast<int64_t>(largest_);
  slot.memory = std::move(*memory);
  return found;
}

bool HotExperts::has_ring() {
  size_t n = 0;
  for (Slot& slot : slots_) {
    if (!slot.in_ring) continue;
    if (slot.memory.bytes() < largest_) {
      // Made when the experts that were known were smaller.
      if (slot.layer != nullptr) leave(slot);
      slot.memory = {};
      Result<Memory> memory = Memory::make(device_, largest_);
      if (memory) slot.memory = std::move(*memory);
    }
    n += slot.memory.bytes() >= largest_ ? 1 : 0;
  }
  for (; n < kRingSlots; ++n) {
    Result<Memory> memory = Memory::make(device_, largest_);
    if (!memory) break;
    slots_.push_back({.memory = std::move(*memory), .in_ring = true});
  }
  // Pinned memory, too, is there before a layer's first turn.
  return n > 0 && staged_.next(largest_) && staged_.next(largest_);
}

std::optional<size_t> HotExperts::ring_slot() {
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (!slot.in_ring || slot.turn == turn_ || slot.memory.bytes() < largest_) continue;
    if (slot.layer != nullptr) leave(slot);
    return i;
  }
  return std::nullopt;
}

size_t HotExperts::bring(HotLayer& layer, std::span<const int> wanted, Bring how) {
  ++turn_;
  size_t n = 0;
  for (; n < wanted.size(); ++n) {
    const int expert = wanted[n];
    if (const int own = layer.slots[static_cast<size_t>(expert)]; own >= 0) {
      slots_[static_cast<size_t>(own)].turn = turn_;
      continue;
    }
    const size_t bytes = layer.bytes_of(expert);
    const std::optional<size_t> slot =
        how == Bring::kInRing
            ? ring_slot()
            : slot_for(bytes, std::numeric_limits<float>::infinity(), kLeastSlots);
    if (!slot) break;
    Result<std::span<std::byte>> staged = staged_.next(bytes);
    if (!staged) refusal_ = staged.error();
    if (!staged || !layer.read(expert, staged->data())) break;
    staged_.send(slots_[*slot].memory.data());
    slots_[*slot].turn = turn_;
    settle(*slot, layer, expert);
  }
  if (n == 0) device_.give_up(refusal_);
  return device_.status() ? n : 0;
}

void HotExperts::show(HotLayer& layer, int expert, bool on) {
  const int slot = layer.slots[static_cast<size_t>(expert)];
  if (slot < 0) return;
  const auto* const data = slots_[static_cast<size_t>(slot)].memory.as<const std::byte>();
  layer.put(device_, expert, on ? data : nullptr);
}

void HotExperts::give_back() {
  end_moves();
  for (Slot& slot : slots_)
    if (slot.layer != nullptr) leave(slot);
  slots_.clear();
  taken_ = 0, room_ = room_ / 2;
}

}  // namespace penstock::cuda
