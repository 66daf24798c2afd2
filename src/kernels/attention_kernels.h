// Flash attention over paged K and V: online softmax over chunks of 64 tokens, without an n x n
// matrix.
//
// The cache consists of units: K and V of 16 consecutive tokens of one KV head. Lanes of K are the
// 16 tokens, lanes of V are 16 features (kBF16: interleaved features of two tokens; kI8: of four
// tokens). Vectors of both are operands of dot products, and 16 vectors are a tile.
//
// Units of kI4 have codes of 4 bits, with factors of groups of 32 features (generic/narrow_units.inl):
// in a byte of K the low bits are feature d and the high ones d + 4 of a token, in one of V d and
// d + 16. Their keys and values are rotated: so are the queries that attend to them, and the results.
#pragma once
#include <cstddef>
#include <cstdint>

namespace penstock {

enum class KvFormat : uint8_t { kF32, kF16, kBF16, kI8, kI4 };
inline constexpr int kNumKvFormats = 5;
inline constexpr int kNumIndexFormats = 4;   // that an indexer's keys may have: all but kI4
inline constexpr int kFactorFeatures = 32;   // that have a factor together in kI4
inline constexpr int kMostNarrowDim = 2048;  // features of a key or value in kI4
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
  int64_t v_offset = 0, k_scales = 0, v_scales = 0, k_factors = 0, v_factors = 0, bytes = 0;
  // kI4: features that are rotated together in a key and in a value, a power of two
  int rotated = 0, rotated_values = 0;

  constexpr int value_groups() const {
    return (padded_value_dim + kFactorFeatures - 1) / kFactorFeatures;
  }

  // values_in_keys: number of a key's features that are its value (1..head_dim); 0: values are
  // stored, with value_dim features (1..head_dim; 0: head_dim).
  static constexpr KvUnitLayout make(KvFormat format, int head_dim, int values_in_keys = 0,
                                     int value_dim = 0) {
    constexpr int kSizes[] = {4, 2, 2, 1, 1};
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
    if (format == KvFormat::kI4) layout.narrow();
    return layout;
  }
  // The layout of the widened units.
  constexpr KvUnitLayout widened() const {
    return make(KvFormat::kI8, head_dim, values_in_keys ? value_dim : 0, value_dim);
  }
  // Values are stored, with as many features as keys; the kernels of matrix units need it.
  constexpr bool has_equal_values() const { return !values_in_keys && value_dim == head_dim; }

 private:
  static constexpr int power_of_two_in(int n) { return n & -n; }
  // Sets what kI4 has otherwise.
  constexpr void narrow() {
    const int shared = values_in_keys ? head_dim | value_dim : head_dim;
    rotated = power_of_two_in(shared);
    rotated_values = values_in_keys ? rotated : power_of_two_in(value_dim);
    const int key_groups = (padded_dim + kFactorFeatures - 1) / kFactorFeatures;
    const int64_t scales = kUnitTokens * 4;
    const int64_t keys = int64_t{kUnitTokens} * padded_dim / 2,
                  values = values_in_keys ? 0 : int64_t{kUnitTokens} * 16 * value_groups();
    v_offset = values_in_keys ? 0 : keys;
    k_scales = keys + values;
    v_scales = k_scales + (values_in_keys ? 0 : scales);
    k_factors = v_scales + scales;
    v_factors = k_factors + (values_in_keys ? 0 : int64_t{kUnitTokens} * key_groups);
    const int64_t end = (values_in_keys ? k_factors + int64_t{kUnitTokens} * key_groups
                                        : v_factors + int64_t{kUnitTokens} * value_groups());
    bytes = (end + 63) / 64 * 64;
  }
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
  void (*score[kNumIndexFormats])(const IndexQuery& query, int begin, int end, float* scores);
  // Turns a row of n features forth, as keys and values of kI4 are, or back; n is a multiple of
  // `block`, a power of two.
  void (*rotate)(float* x, int n, int block, bool back);
  // Writes a unit of kI4 as one of `wide`, which is layout.widened().
  void (*widen)(const KvUnitLayout& layout, const KvUnitLayout& wide, const std::byte* unit,
                std::byte* to);
};

// Copies one token of a unit to another unit of the same format.
void copy_unit_token(const KvUnitLayout& layout, const std::byte* from, int from_lane,
                     std::byte* to, int to_lane);

}  // namespace penstock
