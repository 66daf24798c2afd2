// Flash attention over paged K and V: online softmax over chunks of 64 tokens, without an n x n
// matrix.
//
// The cache consists of units: K and V of 16 consecutive tokens of one KV head. Lanes of K are the
// 16 tokens, lanes of V are 16 features (kBF16: interleaved features of two tokens; kI8: of four
// tokens). Vectors of both are operands of dot products, and 16 vectors are a tile.
#pragma once
#include <cstddef>
#include <cstdint>

namespace penstock {

enum class KvFormat : uint8_t { kF32, kF16, kBF16, kI8 };
inline constexpr int kNumKvFormats = 4;
inline constexpr int kUnitTokens = 16;
// scores computed between two updates of the running maximum
inline constexpr int kChunkTokens = 64;
inline constexpr int kMaxTileRows = 256;  // queries that share one pass over K and V
inline constexpr int kMaxSharedRows = 8;  // queries per head in a tile of several heads

// With values in keys, a unit has no V, and K's scales are used for V.
struct KvUnitLayout {
  KvFormat format = KvFormat::kF32;
  int head_dim = 0, value_dim = 0;
  int padded_dim = 0,
      // rounded up to 16; padding of keys and of stored values is zero
      padded_value_dim = 0;
  // a value is the first value_dim features of its key
  bool values_in_keys = false;
  int64_t v_offset = 0, k_scales = 0, v_scales = 0, bytes = 0;

  // values_in_keys: number of a key's features that are its value (1..head_dim); 0: values are
  // stored, with value_dim features (1..head_dim; 0: head_dim).
  static constexpr KvUnitLayout make(KvFormat format, int head_dim, int values_in_keys = 0,
                                     int value_dim = 0) {
    constexpr int kSizes[] = {4, 2, 2, 1};
    KvUnitLayout layout;
    layout.format = format;
    layout.head_dim = head_dim;
    layout.padded_dim = (head_dim + 15) / 16 * 16;
    layout.values_in_keys = values_in_keys > 0;
    layout.value_dim = layout.values_in_keys ? values_in_keys
                       : value_dim > 0       ? value_dim
                                             : head_dim;
    layout.padded_value_dim = (layout.value_dim + 15) / 16 * 16;
    const int64_t row = int64_t{kUnitTokens} * kSizes[static_cast<int>(format)];
    const int64_t keys = row * layout.padded_dim,
                  values = layout.values_in_keys ? 0 : row * layout.padded_value_dim;
    const int64_t scales = format == KvFormat::kI8 ? kUnitTokens * 4 : 0;
    layout.v_offset = layout.values_in_keys ? 0 : keys;
    layout.k_scales = keys + values;
    layout.v_scales = layout.k_scales + (layout.values_in_keys ? 0 : scales);
    layout.bytes = layout.v_scales + scales;
    return layout;
  }
  // Values are stored, with as many features as keys; the kernels of matrix units need it.
  constexpr bool has_equal_values() const { return !values_in_keys && value_dim == head_dim; }
};

// One query: one head of one token.
struct AttentionRow {
  const float* q;  // [head_dim]
  // cached tokens [first, end) that it attends to, by index in the sequence
  int first, end;
  // with a tree mask: of tokens >= tree_begin only those whose bit (index - tree_begin) is set
  int tree_begin;
  uint64_t tree_mask;  // 0 = no mask
  int position;        // of the query
  // With has_terms: slope * |key's position - position| is subtracted from every score, and
  // of_query[c] and of_key[key's index * AttentionTile::key_stride + c] are added, where c is the
  // column of the distance; null: they are not.
  float slope;
  const float *of_query, *of_key;
};

// Rows of memory that are used next. A kernel may prefetch them while it computes.
struct SoonNeeded {
  const std::byte* begin;
  int64_t stride, bytes;  // distance of two rows; size of a row
  int n_rows;
};

// A tile: rows of one sequence over its tokens [begin, end), n_rows for each of n_heads KV heads.
// Row i of head h is rows[h * head_rows + i], and the rows of states are numbered likewise. Heads
// that are neighbours in the cache are read together, so that memory streams.
struct AttentionTile {
  const AttentionRow* rows;
  // rows of each head, 1..kMaxTileRows; with several heads 1..kMaxSharedRows
  int n_rows;
  int n_heads;    // n_heads * head_rows <= kMaxTileRows
  int head_rows;  // padded_head_rows(n_rows) with several heads
  const KvUnitLayout* layout;
  // unit u of head h is at units + u * unit_stride + h * layout->bytes
  const std::byte* units;
  int64_t unit_stride;
  const uint32_t* block_table;
  // of the first token of block_table[0]; a multiple of 16
  int first_position;
  int units_per_block;
  int begin, end;  // begin is a multiple of kChunkTokens
  float scale, softcap;
  // whether scores have terms by position; only the generic kernels support them
  bool has_terms;
  // [2 * reach + 1] columns of distances (key's position less the row's) from -reach to reach; null:
  // rows have slopes only
  const float* columns;
  int reach;
  int64_t key_stride;  // from one token's terms as a key to the next one's
  // the result of a row must not depend on the other rows
  bool exact_rows;
  // tokens of the sequence that are new in this step
  int n_new;
  float* scratch;  // tile_scratch_floats()
  // rows of queries of the next tile, to prefetch
  SoonNeeded queries;
  // rows of results of this tile, which are written
  SoonNeeded results;
};

// Running softmax of the rows of a tile: out = sum(exp(score - max) * v), not yet divided by sum.
struct AttentionState {
  float* max;  // [state_rows(n_rows)]
  float* sum;  // [state_rows(n_rows)]
  // [state_rows(n_rows)][padded_value_dim], 64-byte aligned
  float* out;
};

// Returns the scratch memory of a tile, in floats, enough for every kernel: queries, weights and,
// for matrix units, scores and K and V of 256 tokens in BF16.
constexpr int64_t tile_scratch_floats(int padded_dim) {
  const int64_t dim = (padded_dim + 31) / 32 * 32;
  return kMaxTileRows * (dim + kChunkTokens) + 256 * dim + kMaxTileRows / 2 * dim +
         32 * (256 + 16) + 32 * 256 / 2 + 64;
}
// Returns the rows allocated for each head in a tile of several: kernels may compute rows beyond
// n_rows.
constexpr int padded_head_rows(int n_rows) { return (n_rows + 3) / 4 * 4; }
// Returns the rows allocated for a state of n_rows rows.
constexpr int state_rows(int n_rows) { return (n_rows + 31) / 32 * 32; }

// Scores of cached tokens for one query of an indexer, by which sparse attention selects tokens:
// sum over heads of weights[h] * max(least, q_h . k).
struct IndexQuery {
  const float* q;        // [n_heads][head_dim]
  const float* weights;  // [n_heads]
  int n_heads;
  const KvUnitLayout* layout;  // head_dim is even; keys are those of one head
  // unit u of the sequence is at units + (block * units_per_block + u % units_per_block) *
  // unit_stride, where block = block_table[u / units_per_block]
  const std::byte* units;
  int64_t unit_stride;
  const uint32_t* block_table;
  int units_per_block;
  float least = 0.0f;  // 0 or -infinity
};

struct AttentionKernels {
  // Computes `state`, which is overwritten. With exact_rows, the result of a row depends on that
  // row, begin and end only.
  void (*attend[kNumKvFormats])(const AttentionTile& tile, const AttentionState& state);
  // Merges two states of the same rows over disjoint tokens: state += other.
  void (*merge)(const AttentionState& state, const AttentionState& other, int n_rows,
                int padded_value_dim);
  // to[0..n) = from[0..n) * factor
  void (*scale_row)(const float* from, float factor, int n, float* to);
  // Writes K and V of one token ([head_dim] and [value_dim]; v is not read where values are in keys)
  // as token `lane` of a unit.
  void (*store[kNumKvFormats])(const KvUnitLayout& layout, const float* k, const float* v,
                               std::byte* unit, int lane);
  // Writes the scores of the tokens of units [begin, end) to scores[0 .. 16 * (end - begin)). The
  // score of a token depends on the query and its key only.
  void (*score[kNumKvFormats])(const IndexQuery& query, int begin, int end, float* scores);
};

// Copies one token of a unit to another unit of the same format.
void copy_unit_token(const KvUnitLayout& layout, const std::byte* from, int from_lane,
                     std::byte* to, int to_lane);

}  // namespace penstock
