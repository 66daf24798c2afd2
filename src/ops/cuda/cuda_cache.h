// K and V of all layers, and recurrent states, in a device's memory (layout: kernels/cache.h).
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "ops/cuda/device.h"
#include "ops/cuda/kernels/cache.h"
#include "ops/cuda/kernels/recurrence.h"
#include "ops/ops.h"

namespace penstock::cuda {

class CudaKvCache final : public KvCache {
 public:
  // Errors: kInvalidArgument (block size not a multiple of 16), kUnsupported (check_narrow()),
  // kResourceExhausted.
  static Result<std::unique_ptr<CudaKvCache>> make(Device& device, const CacheSpec& spec,
                                                   std::span<const int> n_blocks);

  const CacheSpec& spec() const override { return spec_; }
  int n_blocks(int group) const override { return n_blocks_[static_cast<size_t>(group)]; }
  int64_t block_bytes(int group) const override;
  void read_block(int group, BlockId block, std::span<std::byte> out) const override;
  void write_block(int group, BlockId block, std::span<const std::byte> bytes) override;

  const KvLayerOnDevice& layer(int layer) const { return layers_[static_cast<size_t>(layer)]; }
  // Returns a layer's states. Those of block b begin at b * state_values.
  std::byte* states(int layer) const { return states_[static_cast<size_t>(layer)]; }
  int64_t state_values(int layer) const { return spec_.state_values[static_cast<size_t>(layer)]; }
  // Copies states from block to block of the group of states, in this order.
  void copy_states(std::span<const int32_t> from, std::span<const int32_t> to) const;

 private:
  explicit CudaKvCache(Device& device) : device_(device) {}
  // Bytes of a block in one layer, or in one layer's states.
  struct Part {
    std::byte* data;
    size_t bytes;
  };
  std::vector<Part> parts_of(int group, BlockId block) const;

  Device& device_;
  CacheSpec spec_;
  std::vector<int> n_blocks_;
  std::vector<KvLayerOnDevice> layers_;
  std::vector<std::byte*> states_;  // [n_layers], or empty
  Memory memory_;
};

// The states of a layer, from `offset` on.
inline States states_of(const KvCache& cache, int layer, int64_t offset) {
  const auto& own = static_cast<const CudaKvCache&>(cache);
  return {own.states(layer), own.state_values(layer), offset, cache.spec().state_group(),
          cache.spec().state_dtype == StateDType::kBF16};
}

}  // namespace penstock::cuda
