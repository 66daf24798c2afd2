// Layout of a layer's K and V in device memory: units of 16 tokens, [unit][K, V][kv head][16
// tokens][head_dim or value_dim]; a block is a sequence of units. Codes of 8 and of 4 bits have scales [K, V][kv
// head][16 tokens] after the elements of a unit; of 4 bits also, behind these, a factor for each 32 features: [K, V][kv
// head][16 tokens][groups]. Of a layer that stores some tokens only (KvLayerSpec::every) a unit has those of one block.
#pragma once
#include <cstddef>
#include <cstdint>

#include "ops/cuda/kernels/launch.h"

namespace penstock::cuda {

enum class KvCode : uint8_t { kF32, kF16, kBF16, kI8, kF8, kI4 };  // see KvDType

struct KvLayerOnDevice {
  static constexpr int kUnitTokens = 16;
  static constexpr int kFactorFeatures = 32;  // that have a factor together in kI4
  std::byte* data;
  KvCode code;
  int n_kv_heads, head_dim, value_dim, block_size;
  int spare_slot;                  // first slot of a block that no table names
  int row_bytes, value_row_bytes;  // of a key and of a value, per token and head
  // offsets in a unit; if values are part of keys, those of keys
  int64_t values_at, scales_at, value_scales_at;
  int64_t factors_at, value_factors_at;  // of kI4, as are these:
  int key_groups, value_groups;          // factors of a key and of a value
  int rotated, rotated_values;           // features that are rotated together, a power of two
  int64_t unit_bytes;
  int every, unit_tokens;  // KvLayerSpec::every; 16, or the stored tokens of a block

  PENSTOCK_DEVICE bool has_scales() const { return code >= KvCode::kI8; }
  PENSTOCK_DEVICE bool is_narrow() const { return code == KvCode::kI4; }
  PENSTOCK_DEVICE bool has_values() const { return values_at > 0; }
  PENSTOCK_DEVICE bool stores(int slot) const { return every == 1 || (slot + 1) % every == 0; }
  PENSTOCK_DEVICE std::byte* unit(int slot) const {
    return data + (every == 1 ? slot / kUnitTokens : slot / block_size) * unit_bytes;
  }
  // Index of the row of a slot and head in its part of the unit, and of its scale.
  PENSTOCK_DEVICE int row_at(int slot, int head) const {
    if (every == 1) return head * kUnitTokens + slot % kUnitTokens;
    return head * unit_tokens + slot % block_size / every;
  }
  PENSTOCK_DEVICE std::byte* key(int slot, int head) const {
    return unit(slot) + static_cast<int64_t>(row_at(slot, head)) * row_bytes;
  }
  PENSTOCK_DEVICE std::byte* value(int slot, int head) const {
    return unit(slot) + values_at + static_cast<int64_t>(row_at(slot, head)) * value_row_bytes;
  }
  PENSTOCK_DEVICE float* key_scale(int slot, int head) const {
    return reinterpret_cast<float*>(unit(slot) + scales_at) + row_at(slot, head);
  }
  PENSTOCK_DEVICE float* value_scale(int slot, int head) const {
    return reinterpret_cast<float*>(unit(slot) + value_scales_at) + row_at(slot, head);
  }
  PENSTOCK_DEVICE std::byte* key_factors(int slot, int head) const {
    return unit(slot) + factors_at + row_at(slot, head) * key_groups;
  }
  PENSTOCK_DEVICE std::byte* value_factors(int slot, int head) const {
    return unit(slot) + value_factors_at + row_at(slot, head) * value_groups;
  }
};

// Copies tokens from slot to slot, in order. Grid::x = kv heads.
struct MoveKv {
  static constexpr int kThreads = 64;
  KvLayerOnDevice layer;
  const int32_t *from, *to;  // [n]
  int n;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
