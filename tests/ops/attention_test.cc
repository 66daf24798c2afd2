// Attention of every backend against a dense softmax in double precision.
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <span>
#include <string_view>

#include "base/half.h"
#include "kernels/attention_kernels.h"
#include "kernels/kernel_table.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/ops_under_test.h"
#include "quant/plain.h"

namespace penstock {
namespace {

struct Shape {
  int n_heads = 4, n_kv_heads = 2, head_dim = 32;
  int window = 0;
  float softcap = 0.0f;
  KvDType dtype = KvDType::kF32;
  // all features of a token's key, of queries of ones; else random
  float (*level)(int index) = nullptr;
  std::vector<float> sinks = {}, slopes = {};  // [n_heads] or empty
  int values_in_keys = 0, stored_value_dim = 0;
  bool chunked = false, both_ways = false;
  int block_size = 16;
  bool drops_blocks = false;  // that no query sees any more: tables begin later in the sequence
  // Tokens [part, part_end) of each sequence see each other.
  int part = 0, part_end = 0;
  // Terms by distance (RelativeTerms), of a table or of queries and keys; 0 = none.
  int n_columns = 0;
  bool terms_of_tokens = false;

  KvLayerSpec layer() const {
    return {n_kv_heads, head_dim,  window,           0,           values_in_keys,
            chunked,    both_ways, stored_value_dim, part_end > 0};
  }
  bool is_in_part(int index) const { return index >= part && index < part_end; }
  int n_terms() const { return n_heads * n_columns; }
  static constexpr int kReach = 6;
  int column_of(int distance) const {
    return (std::clamp(distance, -kReach, kReach) + kReach) * 5 % n_columns;
  }
};

// Terms of a table (0), of queries (1), of keys (2).
float term(int kind, int row, int i) {
  return 0.8f * std::sin(static_cast<float>(31 * kind + 7 * row) + 1.7f * static_cast<float>(i));
}

// Sequences that grow step by step in a cache of shuffled blocks, and everything they were fed, for
// the oracle.
class AttentionFixture {
 public:
  AttentionFixture(Ops& ops, const Shape& shape, int n_seqs, int max_len)
      : ops_(ops), shape_(shape), n_seqs_(n_seqs) {
    if (flash_ && shape.dtype == KvDType::kF32) shape_.dtype = KvDType::kF16;
    spec_.layers.assign(2, shape.layer());
    spec_.dtype = shape_.dtype;
    spec_.block_size = shape.block_size;
    const int per_seq = (max_len + spec_.block_size - 1) / spec_.block_size;
    const int n_blocks[] = {per_seq * n_seqs + 3};
    cache_ = std::move(ops.make_cache(spec_, n_blocks).value());
    std::vector<uint32_t> blocks(n_blocks[0]);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(7));
    for (int s = 0; s < n_seqs; ++s) {
      tables_.emplace_back();
      for (int b = 0; b < per_seq; ++b) tables_[s].push_back(BlockId{blocks[s * per_seq + b]});
    }
    k_.resize(n_seqs);
    v_.resize(n_seqs);
  }

  // Feeds counts[s] new tokens of each sequence and compares with the oracle. Returns the outputs.
  std::vector<float> step(const std::vector<int>& counts, const std::vector<uint64_t>& masks = {},
                          unsigned seed = 1) {
    const int q_cols = shape_.n_heads * shape_.head_dim,
              kv_cols = shape_.n_kv_heads * shape_.head_dim,
              v_cols = shape_.n_kv_heads * shape_.layer().value_dim();
    std::vector<int32_t> positions, slots, seq_offsets = {0}, lens, table_offsets = {0},
                                           first_positions;
    const int block_size = shape_.block_size;
    std::vector<TokenId> tokens;
    std::vector<int32_t> sights;
    std::vector<BlockId> all_tables;
    std::vector<float> q, k, v;
    for (int s = 0; s < n_seqs_; ++s) {
      const int old = len(s);
      for (int i = 0; i < counts[s]; ++i) {
        const int index = old + i;
        const uint64_t mask = masks.empty() ? 0 : masks[positions.size()];
        positions.push_back(mask != 0 ? old + std::popcount(mask) - 1 : index);
        tokens.push_back(0);
        sights.push_back(shape_.is_in_part(index) ? shape_.part_end : 0);
        slots.push_back(static_cast<int>(tables_[s][index / block_size]) * block_size +
                        index % block_size);
        // The values depend on sequence, index and seed alone, however the tokens are divided among
        // steps.
        const unsigned own = seed * 7919 + s * 104729 + index;
        append(q, random_floats(q_cols, own * 3));
        append(k, random_floats(kv_cols, own * 3 + 1));
        append(v, random_floats(v_cols, own * 3 + 2));
        if (shape_.level != nullptr) {
          std::fill(q.end() - q_cols, q.end(), 1.0f);
          std::fill(k.end() - kv_cols, k.end(), shape_.level(index));
        }
        keep(k.data() + k.size() - kv_cols, shape_.head_dim, k_[s]);
        keep_value(s, v.data() + v.size() - v_cols);
      }
      lens.push_back(old + counts[s]);
      seq_offsets.push_back(static_cast<int>(positions.size()));
      const int first_block = first_seen(old) / block_size;
      all_tables.insert(all_tables.end(), tables_[s].begin() + first_block, tables_[s].end());
      table_offsets.push_back(static_cast<int>(all_tables.size()));
      first_positions.push_back(first_block * block_size);
    }
    KvView view = {slots, all_tables, table_offsets, {}};
    if (shape_.drops_blocks) view.first_positions = first_positions;
    Batch batch = {tokens, positions, seq_offsets, lens, {&view, 1}, masks, {}};
    if (shape_.part_end > 0) batch.sights = sights;
    const int n = batch.n_tokens(), rows = ops_.begin_step(&batch).tokens;
    const Tensor tq = rows_with(q, rows, q_cols), tk = rows_with(k, rows, kv_cols);
    const Tensor tv = shape_.values_in_keys > 0 ? Tensor() : rows_with(v, rows, v_cols);
    const Tensor out = ops_.new_tensor(rows, shape_.n_heads * shape_.layer().value_dim());
    ops_.rope_and_store(tq, tk, tv, nullptr, *cache_, 1);
    AttentionParams params = {
        1, shape_.n_heads, 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)), shape_.softcap};
    const auto packed = [&](const std::vector<float>& values) {
      return values.empty() ? nullptr : ops_.pack_vector(values).value();
    };
    const auto sinks = packed(shape_.sinks), slopes = packed(shape_.slopes);
    params.sinks = sinks.get();
    params.slopes = slopes.get();
    std::vector<float> columns, table;
    for (int d = -Shape::kReach; d <= Shape::kReach && shape_.n_columns > 0; ++d)
      columns.push_back(static_cast<float>(shape_.column_of(d)));
    for (int i = 0; i < shape_.n_terms() && !shape_.terms_of_tokens; ++i)
      table.push_back(term(0, 0, i));
    const auto column_vector = packed(columns), table_vector = packed(table);
    params.relative = {column_vector.get(), shape_.n_columns, table_vector.get()};
    if (shape_.terms_of_tokens)
      params.relative.of_query = terms(1, n, rows), params.relative.of_key = terms(2, n, rows);
    ops_.attend(tq, *cache_, params, out);
    Values values = read(ops_, out.row_range(0, n));
    compare(batch, q, values);
    return std::move(values.all);
  }

  int len(int s) const {
    return static_cast<int>(k_[s].size()) / (shape_.n_kv_heads * shape_.head_dim);
  }
  KvCache& cache() { return *cache_; }
  // flash: a device's. invariant: with --batch-invariant.
  static void of_kernels(bool flash, bool invariant) { flash_ = flash, invariant_ = invariant; }

 private:
  // What the queries from index `old` on see first.
  int first_seen(int old) const {
    if (!shape_.drops_blocks || shape_.window == 0) return 0;
    return shape_.chunked ? old / shape_.window * shape_.window
                          : std::max(0, old + 1 - shape_.window);
  }
  // Rows beyond the batch, where the step has some, stay as new memory is.
  Tensor rows_with(const std::vector<float>& values, int rows, int cols) {
    const Tensor tensor = ops_.new_tensor(rows, cols);
    if (!values.empty())
      ops_.write_rows(values, tensor.row_range(0, static_cast<int>(values.size()) / cols));
    return tensor;
  }
  Tensor terms(int kind, int n, int rows) {
    std::vector<float> values;
    for (int t = 0; t < n; ++t)
      for (int i = 0; i < shape_.n_terms(); ++i) values.push_back(term(kind, t, i));
    return rows_with(values, rows, shape_.n_terms());
  }
  static void append(std::vector<float>& to, const std::vector<float>& from) {
    to.insert(to.end(), from.begin(), from.end());
  }

  // Appends a token's K or V as the cache keeps it.
  void keep(const float* x, int dim, std::vector<double>& to) const {
    for (int h = 0; h < shape_.n_kv_heads; ++h, x += dim) {
      if (shape_.dtype == KvDType::kI4) {
        keep_narrow(x, dim, to);
        continue;
      }
      float most = 0;
      for (int d = 0; d < dim; ++d) most = std::max(most, std::fabs(x[d]));
      for (int d = 0; d < dim; ++d) {
        switch (shape_.dtype) {
          case KvDType::kF32: to.push_back(x[d]); break;
          case KvDType::kF16: to.push_back(to_float(to_half(x[d]))); break;
          case KvDType::kBF16: to.push_back(to_float(to_bfloat16(x[d]))); break;
          case KvDType::kI8:
            to.push_back(std::round(x[d] * (127.0f / most)) * double{most / 127.0f});
            break;
          case KvDType::kI4: break;
          case KvDType::kF8:
            to.push_back(quant::decode_f8e4m3(quant::encode_f8e4m3(x[d] * (448.0f / most))) *
                         double{most / 448.0f});
            break;
        }
      }
    }
  }

  // [dim][dim]
  static const std::vector<float>& rotated_unit_vectors(const AttentionKernels& scalar, int dim,
                                                        int block) {
    static std::map<std::pair<int, int>, std::vector<float>> all;
    std::vector<float>& columns = all[{dim, block}];
    for (int d = 0; d < dim && columns.size() < static_cast<size_t>(dim * dim); ++d) {
      std::vector<float> column(static_cast<size_t>(dim));
      column[static_cast<size_t>(d)] = 1.0f;
      scalar.rotate(column.data(), dim, block, false);
      columns.insert(columns.end(), column.begin(), column.end());
    }
    return columns;
  }

  // Codes are those that the scalar kernel stores (tests/kernels/narrow_units_test.cc); the inverse
  // rotation is the transpose, in double precision, whose columns are the rotated unit vectors.
  void keep_narrow(const float* x, int dim, std::vector<double>& to) const {
    const AttentionKernels& scalar = *available_kernels()[0].attention;
    const KvUnitLayout layout = KvUnitLayout::make(KvFormat::kI4, dim, shape_.values_in_keys),
                       wide = layout.widened();
    std::vector<std::byte> unit(static_cast<size_t>(layout.bytes)),
        widened(static_cast<size_t>(wide.bytes));
    scalar.store[static_cast<int>(KvFormat::kI4)](layout, x, x, unit.data(), 0);
    scalar.widen(layout, wide, unit.data(), widened.data());
    float scale = 0;
    std::copy_n(unit.data() + layout.k_scales, sizeof scale, reinterpret_cast<std::byte*>(&scale));
    const std::vector<float>& columns = rotated_unit_vectors(scalar, dim, layout.rotated);
    for (int d = 0; d < dim; ++d) {
      double sum = 0;
      for (int i = 0; i < dim; ++i) {
        const auto code = static_cast<int8_t>(widened[static_cast<size_t>(i / 4 * 64 + i % 4)]);
        sum += double{columns[static_cast<size_t>(d * dim + i)]} * code * scale;
      }
      to.push_back(sum);
    }
  }

  // Of the token whose key was kept last.
  void keep_value(int s, const float* v) {
    if (shape_.values_in_keys == 0) return keep(v, shape_.layer().value_dim(), v_[s]);
    const ptrdiff_t dim = shape_.head_dim;
    for (ptrdiff_t h = shape_.n_kv_heads; h > 0; --h) {
      const auto key = k_[s].end() - h * dim;
      v_[s].insert(v_[s].end(), key, key + shape_.values_in_keys);
    }
  }

  // Of token j of a sequence.
  static double position_of(const Batch& batch, int s, int j) {
    const int old = batch.seq_lens[s] - (batch.seq_offsets[s + 1] - batch.seq_offsets[s]);
    return j < old ? j : batch.positions[batch.seq_offsets[s] + j - old];
  }

  // Whether query t of a step's tokens of sequence s sees token j.
  bool sees(const Batch& batch, int s, int t, int j) const {
    const int first = batch.seq_offsets[s],
              old = batch.seq_lens[s] - (batch.seq_offsets[s + 1] - first);
    const uint64_t mask = batch.tree_masks.empty() ? 0 : batch.tree_masks[first + t];
    const int position = batch.positions[first + t];
    const auto of_j = static_cast<int>(position_of(batch, s, j));
    if (shape_.chunked && of_j / shape_.window != position / shape_.window) return false;
    if (shape_.window > 0 && of_j <= position - shape_.window) return false;
    if (shape_.both_ways) return shape_.window == 0 || j < position + shape_.window;
    if (shape_.is_in_part(old + t) && shape_.is_in_part(j)) return true;
    return mask != 0 ? j < old || (mask >> (j - old) & 1) != 0 : j <= old + t;
  }

  // Of query t of sequence s and token j, which head h sees.
  double score(const Batch& batch, const std::vector<float>& q, int s, int t, int h, int j) const {
    const int first = batch.seq_offsets[s], dim = shape_.head_dim,
              kv_head = h * shape_.n_kv_heads / shape_.n_heads;
    const float* query = &q[(static_cast<size_t>(first + t) * shape_.n_heads + h) * dim];
    const double* key = &k_[s][(static_cast<size_t>(j) * shape_.n_kv_heads + kv_head) * dim];
    double score = 0;
    for (int d = 0; d < dim; ++d) score += query[d] * key[d];
    score /= std::sqrt(dim);
    if (shape_.softcap > 0) score = shape_.softcap * std::tanh(score / shape_.softcap);
    const double distance = position_of(batch, s, j) - batch.positions[first + t];
    if (!shape_.slopes.empty()) score -= shape_.slopes[h] * std::fabs(distance);
    if (shape_.n_columns == 0) return score;
    const int at = h * shape_.n_columns + shape_.column_of(static_cast<int>(distance));
    return score + (shape_.terms_of_tokens ? double{term(1, first + t, at)} + term(2, first + j, at)
                                           : term(0, 0, at));
  }

  // What head h of query t of sequence s gets.
  void attend_densely(const Batch& batch, const std::vector<float>& q, int s, int t, int h,
                      double* expected) const {
    const int value_dim = shape_.layer().value_dim(),
              kv_head = h * shape_.n_kv_heads / shape_.n_heads;
    std::vector<std::pair<int, double>> seen;  // tokens and their weights
    for (int j = 0; j < batch.seq_lens[s]; ++j)
      if (sees(batch, s, t, j)) seen.emplace_back(j, score(batch, q, s, t, h, j));
    double highest = -1e300, sum = 0;
    for (const auto& [j, weight] : seen) highest = std::max(highest, weight);
    if (!shape_.sinks.empty()) {
      highest = std::max(highest, double{shape_.sinks[h]});
      sum = std::exp(shape_.sinks[h] - highest);
    }
    for (auto& [j, weight] : seen) sum += weight = std::exp(weight - highest);
    for (const auto& [j, weight] : seen) {
      const double* value =
          &v_[s][(static_cast<size_t>(j) * shape_.n_kv_heads + kv_head) * value_dim];
      for (int d = 0; d < value_dim && weight > 0; ++d) expected[d] += weight / sum * value[d];
    }
  }

  // A number for all that attention depends on.
  size_t key_of(const Batch& batch, const std::vector<float>& q) const {
    size_t key = 0;
    const auto add = [&key](const auto& values) {
      const auto bytes = std::as_bytes(std::span(values));
      const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      key = std::rotl(key, 7) * 0x9e3779b97f4a7c15u + std::hash<std::string_view>()(text);
    };
    const int sizes[] = {shape_.n_heads,         shape_.n_kv_heads,
                         shape_.head_dim,        shape_.layer().value_dim(),
                         shape_.window,          shape_.chunked,
                         shape_.both_ways,       shape_.part,
                         shape_.part_end,        shape_.n_columns,
                         shape_.terms_of_tokens, std::bit_cast<int>(shape_.softcap)};
    add(sizes), add(shape_.sinks), add(shape_.slopes), add(q);
    add(batch.positions), add(batch.seq_offsets), add(batch.seq_lens), add(batch.tree_masks);
    for (int s = 0; s < n_seqs_; ++s) add(k_[s]), add(v_[s]);
    return key;
  }

  // A dense softmax in double precision, [token][head][feature]: most of a test's time, so all
  // backends that are asked the same are held against one.
  const std::vector<double>& expected_of(const Batch& batch, const std::vector<float>& q) const {
    static std::map<size_t, std::vector<double>> known;
    static size_t n_known = 0;
    constexpr size_t kMost = size_t{16} << 20;  // of tests of one kind there are fewer
    if (n_known > kMost) known.clear(), n_known = 0;
    std::vector<double>& expected = known[key_of(batch, q)];
    if (!expected.empty()) return expected;
    const int value_dim = shape_.layer().value_dim();
    expected.resize(static_cast<size_t>(batch.n_tokens()) * shape_.n_heads * value_dim);
    n_known += expected.size();
    double* of_head = expected.data();
    for (int s = 0; s < n_seqs_; ++s)
      for (int t = 0; t < batch.seq_offsets[s + 1] - batch.seq_offsets[s]; ++t)
        for (int h = 0; h < shape_.n_heads; ++h, of_head += value_dim)
          attend_densely(batch, q, s, t, h, of_head);
    return expected;
  }

  void compare(const Batch& batch, const std::vector<float>& q, const Values& out) const {
    const int dim = shape_.head_dim, value_dim = shape_.layer().value_dim();
    const std::vector<double>& expected = expected_of(batch, q);
    double worst = 0, worst_of_few = 0;
    for (int s = 0; s < n_seqs_; ++s) {
      const int n_new = batch.seq_offsets[s + 1] - batch.seq_offsets[s];
      for (int token = batch.seq_offsets[s]; token < batch.seq_offsets[s + 1]; ++token) {
        const bool few = n_new <= 8 || (!batch.tree_masks.empty() && batch.tree_masks[token] != 0);
        double& most = few ? worst_of_few : worst;
        for (int d = 0; d < shape_.n_heads * value_dim; ++d) {
          const auto at = static_cast<size_t>(token) * shape_.n_heads * value_dim + d;
          const double error = std::fabs(expected[at] - out.at(token, d));
          most = std::max(most, std::isnan(error) ? HUGE_VAL : error);
        }
      }
    }
    // Rounding of the stored values is part of the oracle. Matrix units round queries and weights
    // to BF16 as well: 2^-9 of values around 1, a few times over.
    const std::string_view name = ops_.name();
    const bool rounds =
        (name.starts_with("cpu/amx") || (name == "cpu/avx512bf16" && !invariant_)) &&
        shape_.dtype != KvDType::kF32;
    // Beside int8 keys and values queries and weights may be rounded to 16 bits: 2^-16 of the
    // largest in every product. Weights beside 4-bit values are rounded twice: their groups' factors
    // are multiplied with them. CUDA rounds neither.
    const double exact = !name.starts_with("cpu")       ? 2e-5
                         : shape_.dtype == KvDType::kI4 ? 4e-4
                         : shape_.dtype == KvDType::kI8 ? 2e-4
                                                        : 2e-5;
    // CUDA rounds queries and weights of many tokens of a sequence as the cache's numbers, and has
    // of few two numbers for each.
    // Beside codes queries are FP16 and weights BF16.
    const bool by_mma = shape_.dtype != KvDType::kF32;
    const bool flash = flash_ && by_mma && value_dim == dim && dim % 16 == 0;
    const double of_many = shape_.dtype == KvDType::kF16 ? 3e-3 : 2.5e-2;
    EXPECT_LT(worst, rounds ? 4e-2 : flash ? of_many : exact) << "head_dim " << dim;
    EXPECT_LT(worst_of_few, rounds                                   ? 4e-2
                            : flash && shape_.dtype != KvDType::kF16 ? 1e-4
                                                                     : exact)
        << "head_dim " << dim;
  }

  static inline bool flash_ = false, invariant_ = false;
  Ops& ops_;
  Shape shape_;
  int n_seqs_;
  CacheSpec spec_;
  std::unique_ptr<KvCache> cache_;
  std::vector<std::vector<BlockId>> tables_;
  std::vector<std::vector<double>> k_, v_;  // per sequence, [token][kv head][head_dim or value_dim]
};

class AttentionTest : public testing::TestWithParam<OpsUnderTest> {
 protected:
  AttentionTest() {
    AttentionFixture::of_kernels(is_flash(), GetParam().config.batch_invariant);
    if (is_flash())
      static_cast<cuda::CudaOps&>(*ops_).attention().flash_wide(GetParam().name.ends_with("_wide"));
  }
  // CUDA without --batch-invariant, which has kernels of its own for caches of 16, 8 and 4 bits.
  static bool is_flash() { return !GetParam().is_cpu() && !GetParam().config.batch_invariant; }
  std::vector<KvDType> cache_types() const {
    std::vector<KvDType> types;
    for (const KvDType dtype :
         {KvDType::kF32, KvDType::kF16, KvDType::kBF16, KvDType::kI8, KvDType::kF8, KvDType::kI4}) {
      const bool by_mma = dtype != KvDType::kF32;
      if (ops_->can_cache(dtype) && (by_mma || !is_flash())) types.push_back(dtype);
    }
    return types;
  }
  std::unique_ptr<Ops> ops_ = GetParam().make();
};

TEST_P(AttentionTest, PrefillThenDecodeOfOneSequence) {
  AttentionFixture f(*ops_, {}, 1, 128);
  f.step({70});
  for (int i = 0; i < 20; ++i) f.step({1});
}

TEST_P(AttentionTest, RaggedBatchesMixPrefillChunksAndDecode) {
  AttentionFixture f(*ops_, {}, 4, 200);
  f.step({5, 0, 33, 1});
  f.step({1, 64, 17, 1});
  f.step({1, 1, 1, 130});
  f.step({1, 0, 1, 1});
}

TEST_P(AttentionTest, EveryHeadSizeAndCacheType) {
  for (const KvDType dtype : cache_types()) {
    for (const int dim : {8, 24, 32, 64, 80, 96, 128, 256}) {
      AttentionFixture f(*ops_, {.head_dim = dim, .dtype = dtype}, 2, 100);
      f.step({37, 3});
      f.step({1, 1});
      f.step({1, 40});
    }
  }
}

TEST_P(AttentionTest, ValuesInKeys) {
  for (const KvDType dtype : cache_types()) {
    for (const auto& [dim, value_dim] :
         {std::pair{8, 8}, {24, 20}, {33, 17}, {80, 16}, {576, 512}}) {
      Shape shape = {.n_heads = 20,
                     .n_kv_heads = 1,
                     .head_dim = dim,
                     .dtype = dtype,
                     .values_in_keys = value_dim};
      const bool large = dim > 500;
      AttentionFixture f(*ops_, shape, 2, 100);
      f.step({large ? 3 : 37, 3});
      f.step({1, 1});
      f.step({1, large ? 17 : 40});
      if (large) continue;
      shape.n_heads = 4, shape.n_kv_heads = 2, shape.window = 9;
      AttentionFixture windows(*ops_, shape, 1, 100);
      windows.step({71});
      windows.step({1});
    }
  }
}

TEST_P(AttentionTest, ValuesNarrowerThanKeys) {
  for (const KvDType dtype : cache_types()) {
    for (const auto& [dim, value_dim] :
         {std::pair{8, 4}, {24, 20}, {33, 17}, {96, 64}, {192, 128}}) {
      Shape shape = {.head_dim = dim, .dtype = dtype, .stored_value_dim = value_dim};
      AttentionFixture f(*ops_, shape, 2, 100);
      f.step({37, 3});
      f.step({1, 1});
      f.step({1, 40});
      shape.n_heads = 6, shape.n_kv_heads = 1, shape.window = 9, shape.sinks = {1, 0, 2, -1, 0, 1};
      AttentionFixture windows(*ops_, shape, 1, 130);
      windows.step({101});
      windows.step({1});
    }
  }
}

TEST_P(AttentionTest, EveryGroupSize) {
  for (const auto& [heads, kv_heads] :
       {std::pair{1, 1}, {3, 3}, {3, 1}, {8, 1}, {14, 2}, {12, 4}, {20, 1}}) {
    AttentionFixture f(*ops_, {.n_heads = heads, .n_kv_heads = kv_heads}, 2, 100);
    f.step({21, 66});
    f.step({1, 1});
  }
}

TEST_P(AttentionTest, Window) {
  for (const bool chunked : {false, true}) {
    for (const int window : {1, 5, 16, 40, 100}) {
      AttentionFixture f(*ops_, {.window = window, .chunked = chunked}, 2, 200);
      f.step({90, 3});
      f.step({1, 1});
      f.step({33, 70});
      f.step({1, 1});
    }
  }
}

// Windows whose first blocks were dropped begin anywhere in a block; what a table's entries before
// its first are is another's.
TEST_P(AttentionTest, WindowsWhoseFirstBlocksAreGone) {
  const std::vector<uint64_t> tree = {0b0001, 0b0011, 0b0101, 0b1101, 0, 0, 0, 0b1};
  for (const int block_size : {16, 32, 48}) {
    for (const bool chunked : {false, true}) {
      for (const int window : {5, 40, 70}) {
        AttentionFixture f(*ops_,
                           {.head_dim = 16,
                            .window = window,
                            .chunked = chunked,
                            .block_size = block_size,
                            .drops_blocks = true},
                           3, 330);
        f.step({145, 3, 60});
        f.step({1, 1, 1});
        f.step({33, 70, 1});
        f.step({9, 1, 110});  // tokens of a chunk see pieces and tiles that others of it do not
        f.step({4, 3, 1}, tree);
        f.step({64, 0, 1});
        f.step({1, 8, 1});
      }
    }
  }
}

// Prompts behind a prefix that is there, single tokens and drafts of a chain beside them.
TEST_P(AttentionTest, SequencesOfVeryDifferentLengths) {
  for (const auto& [dim, block_size] : {std::pair{64, 48}, {128, 16}}) {
    AttentionFixture f(*ops_, {.head_dim = dim, .block_size = block_size}, 6, 480);
    f.step({350, 33, 0, 100, 7, 256});
    f.step({1, 90, 12, 4, 1, 1});
    f.step({30, 1, 1, 0, 2, 9});
    f.step({1, 1, 1, 1, 1, 1});
    f.step({0, 5, 0, 60, 9, 8});
  }
}

TEST_P(AttentionTest, BothWays) {
  for (const int window : {0, 1, 5, 40}) {
    AttentionFixture f(*ops_, {.window = window, .both_ways = true}, 4, 200);
    f.step({90, 3, 1, 17});
    AttentionFixture wide(
        *ops_, {.n_heads = 3, .n_kv_heads = 3, .head_dim = 64, .window = window, .both_ways = true},
        2, 200);
    wide.step({1, 150});
  }
}

// Tokens of a picture see all of it, as far back as a window lets them.
TEST_P(AttentionTest, PartsSeeThemselves) {
  for (const KvDType dtype : cache_types()) {
    for (const int window : {0, 20}) {
      const Shape shape = {.window = window, .dtype = dtype, .part = 20, .part_end = 75};
      AttentionFixture f(*ops_, shape, 2, 700);
      f.step({100, 80});
      f.step({1, 1});
      AttentionFixture chunks(*ops_, shape, 2, 700);
      chunks.step({20, 7});
      chunks.step({55, 90});
      chunks.step({400, 1});
    }
  }
}

TEST_P(AttentionTest, SinksTakeTheirShare) {
  for (const KvDType dtype : cache_types()) {
    for (const int window : {0, 20}) {
      const Shape shape = {.window = window, .dtype = dtype, .sinks = {0.5f, -3.0f, 4.0f, 200.0f}};
      AttentionFixture f(*ops_, shape, 2, 700);
      f.step({90, 3});
      f.step({1, 1});
      f.step({33, 600});
      f.step({1, 1});
    }
  }
}

TEST_P(AttentionTest, SlopesFollowTheDistance) {
  for (const KvDType dtype : cache_types()) {
    for (const int window : {0, 20}) {
      const Shape shape = {
          .window = window, .dtype = dtype, .slopes = {0.5f, 0.25f, 0.01f, 0.002f}};
      AttentionFixture f(*ops_, shape, 2, 700);
      f.step({90, 3});
      f.step({1, 1});
      f.step({33, 600});
      f.step({1, 1});
    }
  }
}

TEST_P(AttentionTest, SlopesGoBothWays) {
  AttentionFixture f(*ops_, {.slopes = {0.5f, 0.25f, 0.01f, 0.002f}, .both_ways = true}, 2, 200);
  f.step({90, 3});
}

TEST_P(AttentionTest, TermsOfATableFollowTheDistance) {
  for (const KvDType dtype : cache_types()) {
    const Shape shape = {.dtype = dtype, .n_columns = 9};
    AttentionFixture f(*ops_, shape, 2, 100);
    f.step({70, 3});
    f.step({1, 1});
    f.step({1, 40});
  }
}

TEST_P(AttentionTest, TermsOfQueriesAndKeysFollowTheDistance) {
  for (const KvDType dtype : cache_types()) {
    const Shape shape = {
        .dtype = dtype, .both_ways = true, .n_columns = 9, .terms_of_tokens = true};
    AttentionFixture f(*ops_, shape, 3, 100);
    f.step({20, 3, 90});
  }
}

// A draft is as far away as its ancestors are many, whatever lies between them.
TEST_P(AttentionTest, SlopesFollowTheDepthOfDrafts) {
  AttentionFixture f(*ops_, {.slopes = {0.5f, 0.25f, 0.125f, 0.0625f}}, 1, 100);
  f.step({37});
  f.step({6}, {0b1, 0b11, 0b101, 0b1011, 0b10101, 0b110101});
}

TEST_P(AttentionTest, Softcap) {
  AttentionFixture f(*ops_, {.softcap = 2.0f}, 1, 100);
  f.step({50});
  f.step({1});
}

// Scores that rise and fall by more than the weights of one reference span: those of the highest
// level count.
TEST_P(AttentionTest, ScoresFarApart) {
  const auto rising = [](int index) { return static_cast<float>(index / 40) * 16.0f - 24.5f; };
  const auto waves = [](int index) {
    return static_cast<float>(index * 7 / 30 % 4) * 24.0f + 12.5f;
  };
  for (const KvDType dtype : {KvDType::kF32, KvDType::kBF16, KvDType::kI8}) {
    for (const int window : {0, 30}) {
      for (float (*level)(int) : {+rising, +waves}) {
        const Shape shape = {2, 1, window > 0 ? 80 : 64, window, 0.0f, dtype, level};
        AttentionFixture f(*ops_, shape, 1, 160);
        f.step({145});
        f.step({1});
        f.step({10});
      }
    }
  }
}

TEST_P(AttentionTest, LongContextIsSplitAmongThreads) {
  AttentionFixture f(*ops_, {.n_heads = 2, .n_kv_heads = 1}, 2, 2100);
  f.step({2000, 20});
  f.step({1, 1});
  f.step({1, 1});
}

TEST_P(AttentionTest, TreeMasks) {
  AttentionFixture f(*ops_, {}, 2, 120);
  f.step({60, 13});
  // A root with two children, one of which has a child; and a chain in the other sequence.
  f.step({4, 3}, {0b0001, 0b0011, 0b0101, 0b1011, 0, 0, 0});
}

TEST_P(AttentionTest, FullTree) {
  AttentionFixture f(*ops_, {}, 1, 120);
  f.step({30});
  std::vector<uint64_t> masks(64);
  for (int i = 0; i < 64; ++i) masks[i] = (i > 0 ? masks[(i - 1) / 2] : 0) | uint64_t{1} << i;
  f.step({64}, masks);
}

TEST_P(AttentionTest, MovedTokensAreWhereTheyWereMovedTo) {
  const std::vector<KvDType> types = cache_types();
  for (size_t t = 0; t < 2 * types.size(); ++t) {
    AttentionFixture f(*ops_, {.dtype = types[t / 2], .values_in_keys = t % 2 == 0 ? 0 : 20}, 1,
                       64);
    const std::vector<float> first = f.step({40});
    (void)first;
    // Copy to two free blocks and back: nothing may change.
    std::vector<int32_t> from, to;
    const int n_slots = f.cache().n_blocks(0) * 16;
    for (int i = 0; i < 16; ++i) {
      from.push_back(i);
      to.push_back(n_slots - 1 - i);
    }
    ops_->move_kv(f.cache(), 0, from, from);
    f.step({1});
  }
}

TEST_P(AttentionTest, InvariantModeIsBitIdenticalHoweverTokensAreBatched) {
  if (!GetParam().config.batch_invariant && !is_flash()) return;
  const std::vector<KvDType> types = cache_types();
  for (size_t i = 0; i < 2 * types.size(); ++i) {
    const Shape shape = {.n_heads = 6,
                         .n_kv_heads = 2,
                         .head_dim = 48,
                         .dtype = types[i / 2],
                         .values_in_keys = i % 2 == 0 || is_flash() ? 0 : 40};
    const ptrdiff_t cols = ptrdiff_t{6} * shape.layer().value_dim();
    constexpr int kLen = 150;
    AttentionFixture whole(*ops_, shape, 1, kLen);
    const std::vector<float> expected = whole.step({kLen});
    using Lists = std::vector<std::vector<int>>;
    // few tokens of a sequence are another kernel's there
    const Lists several = {{64, 64, 22}, {50, 9, 91}};
    for (const std::vector<int>& chunks :
         is_flash() ? several : Lists{{1, 2, 3, 4, 140}, {64, 64, 22}, {149, 1}, {50, 7, 93}}) {
      AttentionFixture parts(*ops_, shape, 3, kLen + 50);
      std::vector<float> got;
      for (const int n : chunks) {
        // sequence 0 has the same values as above
        const std::vector<float> out = parts.step({n, 5, 1});
        got.insert(got.end(), out.begin(), out.begin() + n * cols);
      }
      EXPECT_EQ(expected, got);
    }
  }
}

// Long sequences in steps of few tokens, which CUDA takes apart: the same bits as without.
TEST_P(AttentionTest, LongSequencesOfFewTokens) {
  Shape codes, narrow, narrow_latent, capped, latent;
  codes.dtype = KvDType::kI8, codes.window = 30, codes.n_heads = 10;
  narrow.dtype = narrow_latent.dtype = KvDType::kI4, narrow.n_heads = 10, narrow.head_dim = 48;
  narrow.sinks.assign(10, 0.5f), narrow_latent.values_in_keys = 24;
  capped.dtype = KvDType::kF16, capped.softcap = 3.0f, capped.sinks = {0.5f, 0.0f, -1.0f, 2.0f};
  latent.n_kv_heads = 1, latent.values_in_keys = 24, latent.n_heads = 6;
  for (const Shape& shape : {codes, narrow, narrow_latent, capped, latent}) {
    std::vector<std::vector<float>> outputs[2];
    for (const bool apart : {false, true}) {
      const auto ops = GetParam().make();
      auto* const device = dynamic_cast<cuda::CudaOps*>(ops.get());
      if (device != nullptr) device->take_apart(apart);
      if (device == nullptr && apart) continue;
      AttentionFixture attention(*ops, shape, 3, 340);
      attention.step({270, 250, 3});
      attention.step({1, 1, 1});
      outputs[apart].push_back(attention.step({0, 6, 1}));  // beyond a piece's end
      const std::vector<uint64_t> masks = {0b1, 0b11, 0b101, 0b1011, 0, 0b1, 0b11};
      outputs[apart].push_back(attention.step({4, 1, 2}, masks));
      outputs[apart].push_back(attention.step({1, 12, 1}));  // beside tokens that tiles take: some,
      outputs[apart].push_back(attention.step({2, 40, 1}));  // and more than would be taken apart
    }
    if (outputs[1].empty()) continue;
    EXPECT_EQ(outputs[0], outputs[1]);
  }
}

// And CUDA as it is without --batch-invariant, prompts by products of warps and of warp groups.
std::vector<OpsUnderTest> attention_under_test() {
  std::vector<OpsUnderTest> all = ops_under_test();
  for (size_t i = 0, n = all.size(); i < n; ++i) {
    if (all[i].is_cpu()) continue;
    for (const char* const name : {"_flash", "_flash_wide"}) {
      all.push_back(all[i]);
      all.back().name += name, all.back().config.batch_invariant = false;
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Backends, AttentionTest, testing::ValuesIn(attention_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock
