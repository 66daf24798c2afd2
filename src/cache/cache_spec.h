// What a model needs of a KV cache: per-layer shapes, grouped by how long their tokens must be kept.
#pragma once
#include <cstdint>
#include <vector>

namespace penstock {

enum class KvDType : uint8_t { kF32, kF16, kBF16, kI8 };  // kI8: one F32 scale per token, head and of K and V

struct KvLayerSpec {
  int n_kv_heads = 0;
  int head_dim = 0;
  int window = 0;  // tokens visible to a query including itself; 0 = all
  int group = 0;   // layers of one group share block tables; group 0 keeps all tokens
  // > 0: a value is the first features of its key, so many, and is not kept beside it; 0: values of head_dim features.
  int values_in_keys = 0;

  int value_dim() const { return values_in_keys > 0 ? values_in_keys : head_dim; }
};

struct CacheSpec {
  std::vector<KvLayerSpec> layers;
  KvDType dtype = KvDType::kF16;
  int block_size = 16;  // tokens per block

  int n_groups() const {
    int n = 0;
    for (const KvLayerSpec& layer : layers) n = layer.group + 1 > n ? layer.group + 1 : n;
    return n;
  }
  // Bytes of one token in one layer: K and V, with scales for kI8.
  static int64_t token_bytes(const KvLayerSpec& layer, KvDType dtype) {
    const int64_t rows = layer.values_in_keys > 0 ? layer.n_kv_heads : 2LL * layer.n_kv_heads;
    const int64_t values = rows * layer.head_dim;
    switch (dtype) {
      case KvDType::kF32: return values * 4;
      case KvDType::kI8: return values + rows * 4;
      default: return values * 2;
    }
  }
  // Bytes of one block in all layers of one group.
  int64_t block_bytes(int group) const {
    int64_t bytes = 0;
    for (const KvLayerSpec& layer : layers) {
      if (layer.group == group) bytes += token_bytes(layer, dtype) * block_size;
    }
    return bytes;
  }
};

}  // namespace penstock
