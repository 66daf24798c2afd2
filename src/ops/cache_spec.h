// Layout of a model's cache: per-layer shapes of K and V, grouped by how long their tokens must be
// kept, and the state that recurrent layers keep for a sequence.
#pragma once
#include <cstdint>
#include <numeric>
#include <vector>

namespace penstock {

// Type of K and V. kI8, kF8 (E4M3), kI4: with one F32 scale for each token, head and K or V; kI4: and a
// byte for each 32 features of it.
enum class KvDType : uint8_t { kF32, kF16, kBF16, kI8, kF8, kI4 };
// Type of recurrent states. kBF16: rounded to nearest even when they are stored; computation is in
// F32.
enum class StateDType : uint8_t { kF32, kBF16 };

struct CacheTypes {
  CacheTypes(KvDType of_kv, StateDType of_states = StateDType::kF32)
      : kv(of_kv), states(of_states) {}
  KvDType kv;
  StateDType states;
};

// Value of a group's window that marks the group of states, which holds no tokens. A block of it is
// the state of one sequence in all recurrent layers; a sequence has one such block.
inline constexpr int kStateWindow = -1;

struct KvLayerSpec {
  int n_kv_heads = 0;  // 0: the layer has no attention
  int head_dim = 0;
  // tokens visible to a query including itself; 0 = all
  int window = 0;
  // layers of one group share block tables; group 0 keeps all tokens
  int group = 0;
  // > 0: a token's value is the first values_in_keys features of its key and is not stored (latent
  // attention); 0: values are stored.
  int values_in_keys = 0;
  // Chunked attention: the sequence is divided into chunks of `window` tokens, and a query sees
  // only tokens of its own chunk.
  bool chunked = false;
  // Bidirectional attention: a query also sees later tokens; with a window those less than `window`
  // tokens away.
  bool both_ways = false;
  // Features of a stored value, 1..head_dim; 0: head_dim.
  int stored_value_dim = 0;
  // A query also sees the later tokens of the part of the prompt that its token belongs to
  // (Batch::sights).
  bool sees_parts = false;
  // Of every so many tokens the last one is stored (EntryParams). A divisor of the block size.
  int every = 1;

  int value_dim() const {
    if (values_in_keys > 0) return values_in_keys;
    return stored_value_dim > 0 ? stored_value_dim : head_dim;
  }
};

struct CacheSpec {
  // the model's layers; then, with indexers, the keys of each layer's indexer (values_in_keys); then,
  // with entries, those of each layer
  std::vector<KvLayerSpec> layers;
  int first_index_layer = 0;  // index of the first of these keys; 0 = there are none
  // index of the first layer's entries (EntryParams), behind all of these; 0 = there are none
  int first_entry_layer = 0;
  KvDType dtype = KvDType::kF16;
  int block_size = 16;  // tokens per block
  int longest = 0;      // most tokens of a sequence; 0 = as many as there is space for
  // Numbers of a sequence's state in each layer: [n_layers], or empty when no layer has a state. A
  // state starts as zeros.
  std::vector<int64_t> state_values;
  StateDType state_dtype = StateDType::kF32;

  bool has_states() const { return !state_values.empty(); }
  // Number of groups that hold tokens; they come before the group of states.
  int n_token_groups() const {
    int n = has_states() ? 1 : 0;
    for (const KvLayerSpec& layer : layers) n = layer.group + 1 > n ? layer.group + 1 : n;
    return n;
  }
  int n_groups() const { return n_token_groups() + (has_states() ? 1 : 0); }
  int state_group() const { return has_states() ? n_token_groups() : -1; }
  int64_t state_value_bytes() const { return state_dtype == StateDType::kF32 ? 4 : 2; }
  // Bytes of one sequence's state in a layer, and in all layers.
  int64_t state_bytes(size_t layer) const { return state_values[layer] * state_value_bytes(); }
  int64_t state_bytes() const {
    return std::accumulate(state_values.begin(), state_values.end(), int64_t{0}) *
           state_value_bytes();
  }
  // Bytes of one token in one layer: K and V, with the scales of 8-bit types; those of a stored one
  // are spread over KvLayerSpec::every tokens, and rounded up.
  static int64_t token_bytes(const KvLayerSpec& layer, KvDType dtype) {
    return (stored_bytes(layer, dtype) + layer.every - 1) / layer.every;
  }
  // Bytes of one stored token in one layer.
  static int64_t stored_bytes(const KvLayerSpec& layer, KvDType dtype) {
    const bool stores_values = layer.values_in_keys == 0;
    const int64_t rows = stores_values ? 2LL * layer.n_kv_heads : layer.n_kv_heads;
    const int64_t values =
        int64_t{layer.n_kv_heads} * (layer.head_dim + (stores_values ? layer.value_dim() : 0));
    switch (dtype) {
      case KvDType::kF32: return values * 4;
      case KvDType::kI8:
      case KvDType::kF8: return values + rows * 4;
      // Keys are padded to 16 features, values to 32, 16 tokens together to 64 bytes.
      case KvDType::kI4: {
        const int64_t keys = (layer.head_dim + 15) / 16 * 16,
                      value_groups = stores_values ? (layer.value_dim() + 31) / 32 : 0;
        const int64_t row =
            keys / 2 + (keys + 31) / 32 + 17 * value_groups + (stores_values ? 8 : 4);
        return layer.n_kv_heads * ((row + 3) / 4 * 4);
      }
      default: return values * 2;
    }
  }
  // Bytes of one block in all layers of one group.
  int64_t block_bytes(int group) const {
    if (group == state_group()) return state_bytes();
    int64_t bytes = 0;
    for (const KvLayerSpec& layer : layers) {
      if (layer.group == group) bytes += stored_bytes(layer, dtype) * (block_size / layer.every);
    }
    return bytes;
  }
};

}  // namespace penstock
