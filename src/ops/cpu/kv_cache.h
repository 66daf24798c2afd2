// K and V in host memory: per layer one array of units (16 tokens of one KV head, see
// kernels/attention_kernels.h), [block][unit of the block][KV head]; and the states of layers that
// have one, [block][value].
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
  // Returns the unit that contains a slot.
  std::byte* unit_of_slot(int layer, int head, int slot) const {
    return units(layer, head) + (slot / kUnitTokens) * unit_stride(layer);
  }

 private:
  struct Layer {
    KvUnitLayout layout;
    std::byte* data = nullptr;
  };
  CpuKvCache() = default;
  // Calls f(bytes of the block in a layer) for every layer of the group.
  template <class F>
  void for_layers(int group, BlockId block, F&& f) const {
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      if (spec_.layers[layer].group != group) continue;
      const int64_t bytes = unit_stride(static_cast<int>(layer)) * units_per_block();
      f(std::span(layers_[layer].data + static_cast<int64_t>(block) * bytes,
                  static_cast<size_t>(bytes)));
    }
    if (group != spec_.state_group()) return;
    for (size_t layer = 0; layer < states_.size(); ++layer) {
      f(std::span(state(static_cast<int>(layer), block),
                  static_cast<size_t>(spec_.state_bytes(layer))));
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
