// What a model needs of a cache: per-layer shapes of K and V, grouped by how long their tokens must be kept, and the
// state that recurrent layers keep of a sequence.
#pragma once
#include <cstdint>
#include <numeric>
#include <vector>

namespace penstock {

// kI8, kF8 (E4M3): one F32 scale per token, head and of K and V.
enum class KvDType : uint8_t { kF32, kF16, kBF16, kI8, kF8 };
// Of the states. kBF16: rounded to nearest even when they are written; what computes with them is F32.
enum class StateDType : uint8_t { kF32, kBF16 };

struct CacheTypes {
  CacheTypes(KvDType of_kv, StateDType of_states = StateDType::kF32) : kv(of_kv), states(of_states) {}
  KvDType kv;
  StateDType states;
};

// In the place of a group's window: it holds no tokens. A block of it is what all layers with a state keep of one
// sequence, and a sequence has one.
inline constexpr int kStateWindow = -1;

struct KvLayerSpec {
  int n_kv_heads = 0;  // 0: the layer has no attention
  int head_dim = 0;
  int window = 0;  // tokens visible to a query including itself; 0 = all
  int group = 0;   // layers of one group share block tables; group 0 keeps all tokens
  // > 0: a value is the first features of its key, so many, and is not kept beside it; 0: values of head_dim features.
  int values_in_keys = 0;
  bool chunked =
      false;  // the sequence lies in chunks of `window` tokens, and a query sees those of its own only
  // A query sees all tokens of its sequence, those behind it too; with a window those less than that far away.
  bool both_ways = false;

  int value_dim() const { return values_in_keys > 0 ? values_in_keys : head_dim; }
};

struct CacheSpec {
  std::vector<KvLayerSpec> layers;
  KvDType dtype = KvDType::kF16;
  int block_size = 16;  // tokens per block
  // Values that a layer keeps of a sequence: [n_layers], or empty where no layer does. Zeros before the first token.
  std::vector<int64_t> state_values;
  StateDType state_dtype = StateDType::kF32;

  bool has_states() const { return !state_values.empty(); }
  // Those of tokens come first.
  int n_token_groups() const {
    int n = has_states() ? 1 : 0;
    for (const KvLayerSpec& layer : layers) n = layer.group + 1 > n ? layer.group + 1 : n;
    return n;
  }
  int n_groups() const { return n_token_groups() + (has_states() ? 1 : 0); }
  int state_group() const { return has_states() ? n_token_groups() : -1; }
  int64_t state_value_bytes() const { return state_dtype == StateDType::kF32 ? 4 : 2; }
  // Bytes of one sequence's state in a layer, and in all of them.
  int64_t state_bytes(size_t layer) const { return state_values[layer] * state_value_bytes(); }
  int64_t state_bytes() const {
    return std::accumulate(state_values.begin(), state_values.end(), int64_t{0}) * state_value_bytes();
  }
  // Bytes of one token in one layer: K and V, with scales for codes of 8 bits.
  static int64_t token_bytes(const KvLayerSpec& layer, KvDType dtype) {
    const int64_t rows = layer.values_in_keys > 0 ? layer.n_kv_heads : 2LL * layer.n_kv_heads;
    const int64_t values = rows * layer.head_dim;
    switch (dtype) {
      case KvDType::kF32: return values * 4;
      case KvDType::kI8:
      case KvDType::kF8: return values + rows * 4;
      default: return values * 2;
    }
  }
  // Bytes of one block in all layers of one group.
  int64_t block_bytes(int group) const {
    if (group == state_group()) return state_bytes();
    int64_t bytes = 0;
    for (const KvLayerSpec& layer : layers) {
      if (layer.group == group) bytes += token_bytes(layer, dtype) * block_size;
    }
    return bytes;
  }
};

}  // namespace penstock
