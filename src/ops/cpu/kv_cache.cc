#include "ops/cpu/kv_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/arena.h"
#include "ops/narrow_cache.h"

namespace penstock {
namespace {

// REQUIRES: not kF8.
KvFormat format_of(KvDType type) {
  switch (type) {
    case KvDType::kF32: return KvFormat::kF32;
    case KvDType::kF16: return KvFormat::kF16;
    case KvDType::kBF16: return KvFormat::kBF16;
    case KvDType::kI8: return KvFormat::kI8;
    default: return KvFormat::kI4;
  }
}

constexpr int kSpareBlocks = 1;

}  // namespace

Result<std::unique_ptr<CpuKvCache>> CpuKvCache::make(const CacheSpec& spec,
                                                     std::span<const int> n_blocks) {
  if (spec.dtype == KvDType::kF8) {
    return make_error(
        ErrorCode::kUnsupported,
        "KV cache: FP8 is not there on the CPU, expected F32, F16, BF16, INT8 or INT4");
  }
  RETURN_IF_ERROR(check_narrow(spec));
  if (spec.block_size < kUnitTokens || spec.block_size % kUnitTokens != 0) {
    return errorf(ErrorCode::kInvalidArgument, "KV cache: block size {}: expected a multiple of {}",
                  spec.block_size, kUnitTokens);
  }
  std::unique_ptr<CpuKvCache> cache(new CpuKvCache);
  cache->spec_ = spec;
  cache->n_blocks_.assign(n_blocks.begin(), n_blocks.end());
  std::vector<int64_t> offsets;
  int64_t bytes = 0;
  for (const KvLayerSpec& layer : spec.layers) {
    const KvUnitLayout layout = KvUnitLayout::make(format_of(spec.dtype), layer.head_dim,
                                                   layer.values_in_keys, layer.stored_value_dim);
    cache->layers_.push_back({layout, nullptr});
    offsets.push_back(bytes);
    const int64_t n_slots = (int64_t{n_blocks[layer.group]} + kSpareBlocks) * spec.block_size,
                  n_units =
                      (n_slots / layer.every + kUnitTokens - 1) / kUnitTokens * layer.n_kv_heads;
    // An odd number of lines between layers, so that equal blocks of different layers use different
    // cache sets.
    bytes += (n_units * layout.bytes + 4095) / 4096 * 4096 + 64;
  }
  for (size_t i = 0; i < spec.state_values.size(); ++i) {
    offsets.push_back(bytes);
    bytes += (n_blocks[spec.state_group()] * spec.state_bytes(i) + 4095) / 4096 * 4096 + 64;
  }
  bytes = (bytes / int64_t{kHugePage} + 1) * int64_t{kHugePage};
  const int64_t available = total_memory();
  void* memory = bytes > available
                     ? MAP_FAILED
                     : mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return errorf(ErrorCode::kResourceExhausted,
                  "KV cache: {} MiB asked for, this machine has {} MiB", bytes >> 20,
                  available >> 20);
  }
  madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  cache->memory_ = static_cast<std::byte*>(memory);
  cache->bytes_ = static_cast<size_t>(bytes);
  cache->promised_ = PromisedMemory(memory, cache->bytes_);
  for (size_t i = 0; i < spec.layers.size(); ++i)
    cache->layers_[i].data = cache->memory_ + offsets[i];
  for (size_t i = spec.layers.size(); i < offsets.size(); ++i)
    cache->states_.push_back(cache->memory_ + offsets[i]);
  return cache;
}

int64_t CpuKvCache::block_bytes(int group) const {
  int64_t total = 0;
  for_layers(
      group, BlockId(0),
      [&](std::span<std::byte> part) { total += static_cast<int64_t>(part.size()); },
      [&](int, int64_t bytes) { total += bytes; });
  return total;
}

void CpuKvCache::read_block(int group, BlockId block, std::span<std::byte> out) const {
  for_layers(
      group, block,
      [&](std::span<std::byte> part) {
        std::memcpy(out.data(), part.data(), part.size());
        out = out.subspan(part.size());
      },
      [&](int layer, int64_t bytes) {
        const auto copies = out.first(static_cast<size_t>(bytes));
        std::ranges::fill(copies, std::byte{0});
        for_stored(layer, block, copies.data(),
                   [&](const std::byte* unit, int lane, std::byte* copy, int at) {
                     copy_unit_token(layers_[layer].layout, unit, lane, copy, at);
                   });
        out = out.subspan(copies.size());
      });
}

void CpuKvCache::write_block(int group, BlockId block, std::span<const std::byte> bytes) {
  for_layers(
      group, block,
      [&](std::span<std::byte> part) {
        std::memcpy(part.data(), bytes.data(), part.size());
        bytes = bytes.subspan(part.size());
      },
      [&](int layer, int64_t n) {
        for_stored(layer, block, bytes.data(),
                   [&](std::byte* unit, int lane, const std::byte* copy, int at) {
                     copy_unit_token(layers_[layer].layout, copy, at, unit, lane);
                   });
        bytes = bytes.subspan(static_cast<size_t>(n));
      });
}

void CpuKvCache::copy_states(std::span<const int32_t> from, std::span<const int32_t> to) const {
  for (size_t layer = 0; layer < states_.size(); ++layer) {
    for (size_t i = 0; i < from.size(); ++i) {
      const int index = static_cast<int>(layer);
      if (from[i] != to[i])
        std::copy_n(state(index, BlockId(from[i])), spec_.state_bytes(layer),
                    state(index, BlockId(to[i])));
    }
  }
}

CpuKvCache::~CpuKvCache() {
  promised_ = {};
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

}  // namespace penstock
