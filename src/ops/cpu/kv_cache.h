// K and V in host memory: per layer one array of units (16 tokens of one KV head, see
// kernels/attention_kernels.h), [block][unit of the block][KV head]; and the states of layers that
// have one, [block][value]. Layers that store some tokens only (KvLayerSpec::every) have these one after
// the other, and a unit may hold those of several blocks.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/memory.h"
#include "base/result.h"
#include "kernels/attention_kernels.h"
#include "ops/ops.h"

namespace penstock {

class CpuKvCache final : public KvCache {
 public:
  // Errors: kInvalidArgument (block size not a multiple of 16), kResourceExhausted.
  static Result<std::unique_ptr<CpuKvCache>> make(const CacheSpec& spec,
                                                  std::span<const int> n_blocks);
  ~CpuKvCache() override;

  const CacheSpec& spec() const override { return spec_; }
  int n_blocks(int group) const override { return n_blocks_[group]; }
  int64_t block_bytes(int group) const override;
  void read_block(int group, BlockId block, std::span<std::byte> out) const override;
  void write_block(int group, BlockId block, std::span<const std::byte> bytes) override;

  const KvUnitLayout& layout(int layer) const { return layers_[layer].layout; }
  // For benchmarks: leaves keys and values of kI4 as they are before they are rounded, but for signs.
  // REQUIRES: nothing was stored yet.
  void leave_unrotated() {
    for (Layer& layer : layers_) layer.layout.rotated = layer.layout.rotated_values = 1;
  }
  int units_per_block() const { return spec_.block_size / kUnitTokens; }
  // Returns a layer's state: the spec's state_values in its state_dtype.
  std::byte* state(int layer, BlockId block) const {
    return states_[layer] +
           static_cast<int64_t>(block) * spec_.state_bytes(static_cast<size_t>(layer));
  }
  // Copies states from block to block of the group of states, in this order.
  void copy_states(std::span<const int32_t> from, std::span<const int32_t> to) const;
  // Returns unit 0 of a head. The next unit of the same head is unit_stride() bytes further.
  std::byte* units(int layer, int head) const {
    return layers_[layer].data + head * layers_[layer].layout.bytes;
  }
  int64_t unit_stride(int layer) const {
    return spec_.layers[layer].n_kv_heads * layers_[layer].layout.bytes;
  }
  // Returns a slot of the spare block, which no block table contains, for padding tokens.
  int spare_slot(int group, int i) const {
    return n_blocks_[group] * spec_.block_size + i % spec_.block_size;
  }
  // Whether the layer stores the token of a slot.
  bool stores(int layer, int slot) const { return (slot + 1) % spec_.layers[layer].every == 0; }
  // Returns the unit that contains a slot, and its place there.
  std::byte* unit_of_slot(int layer, int head, int slot) const {
    return units(layer, head) + slot / spec_.layers[layer].every / kUnitTokens * unit_stride(layer);
  }
  int lane_of_slot(int layer, int slot) const {
    return slot / spec_.layers[layer].every % kUnitTokens;
  }

 private:
  struct Layer {
    KvUnitLayout layout;
    std::byte* data = nullptr;
  };
  CpuKvCache() = default;
  // Calls f(bytes of the block in a layer) for every layer of the group, but some(layer, bytes of their
  // copies) for those that store some tokens only.
  template <class F, class G>
  void for_layers(int group, BlockId block, F&& f, G&& some) const {
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      if (spec_.layers[layer].group != group) continue;
      const int64_t stride = unit_stride(static_cast<int>(layer));
      if (const int every = spec_.layers[layer].every; every > 1) {
        const int n = spec_.block_size / every;
        some(static_cast<int>(layer), stride * ((n + kUnitTokens - 1) / kUnitTokens));
        continue;
      }
      const int64_t bytes = stride * units_per_block();
      f(std::span(layers_[layer].data + static_cast<int64_t>(block) * bytes,
                  static_cast<size_t>(bytes)));
    }
    if (group != spec_.state_group()) return;
    for (size_t layer = 0; layer < states_.size(); ++layer) {
      f(std::span(state(static_cast<int>(layer), block),
                  static_cast<size_t>(spec_.state_bytes(layer))));
    }
  }

  // Calls f(a stored token's unit and lane, those of its copy) for all that a block has in a layer that
  // stores some tokens only. Copies lie in units of their own from `copies` on.
  template <class Byte, class F>
  void for_stored(int layer, BlockId block, Byte* copies, F&& f) const {
    const KvLayerSpec& spec = spec_.layers[static_cast<size_t>(layer)];
    const int first = static_cast<int>(block) * spec_.block_size;
    for (int i = 0; i < spec_.block_size / spec.every; ++i) {
      const int slot = first + (i + 1) * spec.every - 1;
      for (int head = 0; head < spec.n_kv_heads; ++head) {
        f(unit_of_slot(layer, head, slot), lane_of_slot(layer, slot),
          copies + (i / kUnitTokens * spec.n_kv_heads + head) * layers_[layer].layout.bytes,
          i % kUnitTokens);
      }
    }
  }

  CacheSpec spec_;
  std::vector<int> n_blocks_;
  std::vector<Layer> layers_;
  std::vector<std::byte*> states_;  // [n_layers], or empty
  std::byte* memory_ = nullptr;
  size_t bytes_ = 0;
  PromisedMemory promised_;
};

}  // namespace penstock
