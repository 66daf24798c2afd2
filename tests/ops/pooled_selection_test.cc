// Selection of blocks of tokens, attention of several KV heads over them, and rows of n-grams,
// against plain computations.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "ops/ops_under_test.h"

namespace penstock {
namespace {
namespace pooled {

constexpr int kHeads = 6, kKvHeads = 2, kDim = 20, kIndexHeads = 3, kIndexDim = 12;
constexpr int kPool = 4, kTopK = 12, kMost = kTopK + kPool - 1;
constexpr int kTokens = 0, kKeys = 1;  // layers

// Inputs of one sequence's tokens.
struct Inputs {
  explicit Inputs(int n, bool ties)
      : q(random_floats(static_cast<size_t>(n) * kHeads * kDim, 1)),
        k(random_floats(static_cast<size_t>(n) * kKvHeads * kDim, 2)),
        v(random_floats(static_cast<size_t>(n) * kKvHeads * kDim, 3)),
        index_q(random_floats(static_cast<size_t>(n) * kIndexHeads * kIndexDim, 4)),
        index_k(random_floats(static_cast<size_t>(n) * kIndexDim, 5)) {
    // No head scores above 0: all blocks are equal.
    for (float& x : index_q) x = ties ? -std::fabs(x) : x;
    for (float& x : index_k) x = ties ? std::fabs(x) : x;
  }
  std::vector<float> q, k, v, index_q, index_k;
};

std::vector<float> rows_of(const std::vector<float>& all, int cols, int first, int n) {
  const auto begin = all.begin() + static_cast<ptrdiff_t>(first) * cols;
  return {begin, begin + static_cast<ptrdiff_t>(n) * cols};
}

// The tokens that the token at `index` attends to.
std::vector<int> expected_tokens(const Inputs& in, int index) {
  const int n = index + 1, n_blocks = n / kPool;
  std::vector<double> scores(static_cast<size_t>(n_blocks), 0.0);
  for (int b = 0; b < n_blocks; ++b) {
    for (int h = 0; h < kIndexHeads; ++h) {
      double product = 0;
      for (int d = 0; d < kIndexDim; ++d)
        product +=
            double{in.index_q[static_cast<size_t>((index * kIndexHeads + h) * kIndexDim + d)]} *
            in.index_k[static_cast<size_t>((b * kPool + kPool - 1) * kIndexDim + d)];
      scores[static_cast<size_t>(b)] += std::max(product, 0.0);
    }
  }
  std::vector<int> blocks(static_cast<size_t>(n_blocks));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::ranges::stable_sort(blocks, std::greater{},
                           [&](int b) { return scores[static_cast<size_t>(b)]; });
  blocks.resize(std::min<size_t>(blocks.size(), kTopK / kPool));
  std::ranges::sort(blocks);
  std::vector<int> tokens;
  for (const int b : blocks)
    for (int j = 0; j < kPool; ++j) tokens.push_back(b * kPool + j);
  for (int t = n_blocks * kPool; t < n; ++t) tokens.push_back(t);
  return tokens;
}

std::vector<double> expected_out(const Inputs& in, int index, const std::vector<int>& tokens) {
  std::vector<double> out(kHeads * kDim, 0.0);
  for (int h = 0; h < kHeads; ++h) {
    const int kv = h / (kHeads / kKvHeads);
    double sum = 0;
    for (const int t : tokens) {
      double score = 0;
      const auto key = static_cast<size_t>((t * kKvHeads + kv) * kDim);
      for (int d = 0; d < kDim; ++d)
        score += double{in.q[static_cast<size_t>((index * kHeads + h) * kDim + d)]} *
                 in.k[key + static_cast<size_t>(d)];
      const double weight = std::exp(0.2 * score);
      sum += weight;
      for (int d = 0; d < kDim; ++d)
        out[static_cast<size_t>(h * kDim + d)] += weight * in.v[key + static_cast<size_t>(d)];
    }
    for (int d = 0; d < kDim; ++d) out[static_cast<size_t>(h * kDim + d)] /= sum;
  }
  return out;
}

class PooledSelection : public testing::TestWithParam<OpsUnderTest> {
 protected:
  void SetUp() override {
    ops_ = GetParam().make();
    if (!ops_->can_select()) GTEST_SKIP() << "no selection on this backend";
  }
  // Computes the tokens in steps of these sizes and expects all of them.
  void check(const Inputs& in, std::span<const int> steps, KvDType dtype, double near) {
    CacheSpec spec;
    spec.layers = {{kKvHeads, kDim, 0, 0, 0}, {1, kIndexDim, 0, 0, kIndexDim}};
    spec.dtype = dtype;
    spec.first_index_layer = kKeys;
    const int n_blocks[] = {8};
    const auto cache = ops_->make_cache(spec, n_blocks).value();
    const std::vector<BlockId> table = {BlockId(5), BlockId(2), BlockId(7), BlockId(0), BlockId(3)};
    int done = 0;
    for (const int n : steps) {
      std::vector<int32_t> positions, slots;
      for (int t = done; t < done + n; ++t) {
        positions.push_back(t);
        slots.push_back(static_cast<int>(table[static_cast<size_t>(t / 16)]) * 16 + t % 16);
      }
      const std::vector<TokenId> tokens(static_cast<size_t>(n), 0);
      const int32_t seq_offsets[] = {0, n}, lens[] = {done + n},
                    table_offsets[] = {0, static_cast<int32_t>(table.size())};
      KvView view = {slots, table, table_offsets, {}};
      const Batch batch = {tokens, positions, seq_offsets, lens, {&view, 1}, {}, {}};
      ops_->begin_step(&batch);
      const auto part = [&](const std::vector<float>& all, int cols) {
        return tensor_of(*ops_, rows_of(all, cols, done, n), n, cols);
      };
      const Tensor index_q = part(in.index_q, kIndexHeads * kIndexDim),
                   selected = ops_->new_tensor(n, kMost), out = ops_->new_tensor(n, kHeads * kDim);
      ops_->rope_and_store(index_q, part(in.index_k, kIndexDim), Tensor(), nullptr, *cache, kKeys);
      ops_->select(index_q, Tensor(), *cache, {kKeys, kIndexHeads, kTopK, kPool}, selected);
      ops_->store_and_attend(part(in.q, kHeads * kDim), part(in.k, kKvHeads * kDim),
                             part(in.v, kKvHeads * kDim), nullptr, *cache,
                             {.layer = kTokens,
                              .n_heads = kHeads,
                              .scale = 0.2f,
                              .selected = selected,
                              .selected_pool = kPool},
                             out);
      const Values chosen = read(*ops_, selected), got = read(*ops_, out);
      for (int r = 0; r < n; ++r) {
        const int index = done + r;
        const std::vector<int> wanted = expected_tokens(in, index);
        if (index + 1 > kMost) {
          std::vector<int> indices;
          for (size_t i = 0; i < wanted.size(); ++i)
            indices.push_back(std::bit_cast<int32_t>(chosen.at(r, static_cast<int>(i))));
          ASSERT_EQ(indices, wanted) << "token " << index;
        }
        const std::vector<double> values = expected_out(in, index, wanted);
        for (int i = 0; i < kHeads * kDim; ++i)
          ASSERT_NEAR(got.at(r, i), values[static_cast<size_t>(i)], near) << "token " << index;
      }
      done += n;
    }
  }
  std::unique_ptr<Ops> ops_;
};

TEST_P(PooledSelection, WholeBlocksAndTheTokensBehindThem) {
  const Inputs in(70, false);
  const int whole[] = {70}, parts[] = {14, 1, 1, 1, 7, 30, 1, 15};
  check(in, whole, KvDType::kF32, 1e-4);
  check(in, parts, KvDType::kF32, 1e-4);
}

TEST_P(PooledSelection, TheLowerOfEqualBlocks) {
  const Inputs in(40, true);
  const int parts[] = {25, 1, 14};
  check(in, parts, KvDType::kF32, 1e-4);
  check(in, parts, KvDType::kF16, 0.02);
  check(in, parts, KvDType::kI8, 0.2);
}

TEST_P(PooledSelection, SimilaritiesBecomeGates) {
  const int n = 5, cols = 37;
  const std::vector<float> a = random_floats(n * cols, 8), b = random_floats(n * cols, 9);
  const Batch none;
  ops_->begin_step(&none);
  const Tensor out = ops_->new_tensor(n, 1), zeros = ops_->new_tensor(1, cols);
  ops_->clear(zeros);
  const Tensor first = tensor_of(*ops_, a, n, cols);
  ops_->root_gates(first, tensor_of(*ops_, b, n, cols), 0.5f, out);
  const Values got = read(*ops_, out);
  for (int r = 0; r < n; ++r) {
    double sum = 0;
    for (int c = 0; c < cols; ++c)
      sum += double{a[static_cast<size_t>(r * cols + c)]} * b[static_cast<size_t>(r * cols + c)];
    const double root = std::copysign(std::sqrt(std::fabs(0.5 * sum)), sum);
    EXPECT_NEAR(got.at(r, 0), 1 / (1 + std::exp(-root)), 1e-5);
  }
  ops_->root_gates(first.row_range(0, 1), zeros, 0.5f, out.row_range(0, 1));
  EXPECT_EQ(read(*ops_, out).at(0, 0), 0.5f);
}

// Rows by a plain computation of the hashes over the whole text.
std::vector<int64_t> expected_rows(const std::vector<TokenId>& text, const NgramParams& p) {
  std::vector<int64_t> rows;
  for (int t = 0; t < static_cast<int>(text.size()); ++t) {
    for (int n = 2; n <= p.ngram_size; ++n) {
      uint64_t mixed = 0;
      for (int i = 0; i < n; ++i) {
        bool ended = t - i < 0;
        for (int j = 1; j <= i && !ended; ++j)
          ended = text[static_cast<size_t>(t - j)] == p.end_token;
        const TokenId token = ended ? p.end_token : text[static_cast<size_t>(t - i)];
        mixed ^= static_cast<uint64_t>(token) *
                 static_cast<uint64_t>(p.multipliers[static_cast<size_t>(i)]);
      }
      for (int h = 0; h < p.heads_per_ngram; ++h) {
        const auto head = static_cast<size_t>((n - 2) * p.heads_per_ngram + h);
        const __int128 value = static_cast<int64_t>(mixed), size = p.sizes[head];
        rows.push_back(static_cast<int64_t>((value % size + size) % size) + p.offsets[head]);
      }
    }
  }
  return rows;
}

TEST_P(PooledSelection, RowsOfNgramsGoOnWhereTheStepBeforeEnded) {
  // Multipliers of 63 bits, so that products wrap around.
  const int64_t multipliers[] = {0x6543210fedcba987, 0x7777777777777777, 0x123456789abcdef1},
                sizes[] = {5, 7, 11, 13}, offsets[] = {0, 5, 12, 23};
  constexpr int kRows = 36, kCols = 32;
  const std::vector<float> values = random_floats(kRows * kCols, 3);
  std::vector<std::byte> halves(quant_bytes(QuantType::kF16, 20 * kCols)),
      blocks(quant_bytes(QuantType::kQ8_0, 16 * kCols));
  quantize_row(QuantType::kF16, values.data(), halves.data(), 20 * kCols);
  quantize_row(QuantType::kQ8_0, values.data() + 20 * kCols, blocks.data(), 16 * kCols);
  RowTable table;
  table.append({QuantType::kF16, 20, kCols, halves});
  table.append({QuantType::kQ8_0, 16, kCols, blocks});
  std::vector<float> decoded(kRows * kCols);
  dequantize_row(QuantType::kF16, halves.data(), decoded.data(), 20 * kCols);
  dequantize_row(QuantType::kQ8_0, blocks.data(), decoded.data() + 20 * kCols, 16 * kCols);

  const std::vector<TokenId> text = {9, 3, 200'000, 4, 4, 3, 7, 16'000'000, 4, 0, 1, 2, 3, 4, 5, 6};
  for (const StateDType type : {StateDType::kF32, StateDType::kBF16}) {
    CacheSpec spec;
    spec.layers = {{0, kDim}};
    spec.state_values = {5 + NgramParams::state_values(3)};
    spec.state_dtype = type;
    const int n_blocks[] = {1, 4};
    const auto cache = ops_->make_cache(spec, n_blocks).value();
    const std::vector<std::byte> old(static_cast<size_t>(spec.state_bytes()), std::byte{0x49});
    for (int b = 0; b < 4; ++b) cache->write_block(1, BlockId(b), old);
    const NgramParams params{&table, 3, 2, multipliers, sizes, offsets, 4, 0, 5};
    const std::vector<int64_t> wanted = expected_rows(text, params);
    int done = 0, state = 2;
    // The last step keeps the state after each of its tokens.
    for (const int n : {1, 1, 5, 6, 3}) {
      std::vector<int32_t> positions(static_cast<size_t>(n));
      std::iota(positions.begin(), positions.end(), done);
      const bool each = done + n == static_cast<int>(text.size());
      std::vector<BlockId> states = {BlockId(state)};
      if (each) states = {BlockId(2), BlockId(0), BlockId(3)};
      const int32_t seq_offsets[] = {0, n}, lens[] = {done + n},
                    table_offsets[] = {0, static_cast<int32_t>(states.size())};
      const KvView views[] = {{}, {{}, states, table_offsets, {}}};
      const Batch batch{std::span(text).subspan(static_cast<size_t>(done), static_cast<size_t>(n)),
                        positions,
                        seq_offsets,
                        lens,
                        views,
                        {},
                        {}};
      ops_->begin_step(&batch);
      const Tensor out = ops_->new_tensor(n, 4 * kCols);
      ops_->embed_ngrams(params, *cache, out);
      const Values got = read(*ops_, out);
      for (int i = 0; i < n * 4; ++i) {
        const auto row = static_cast<size_t>(wanted[static_cast<size_t>(done * 4 + i)]);
        for (int c = 0; c < kCols; ++c)
          ASSERT_EQ(got.at(i / 4, i % 4 * kCols + c), decoded[row * kCols + static_cast<size_t>(c)])
              << "token " << done + i / 4 << " head " << i % 4;
      }
      done += n;
    }
  }
}

// Means of the tokens of blocks, in steps of several sizes; the last step keeps every state.
// Overlapping: of the first halves of the block before, too.
TEST_P(PooledSelection, KeysOfBlocksAreWeightedMeans) {
  constexpr int kTokensInAll = 16, kFeatures = 260, kOf = 3;
  for (const auto& [type, overlaps] :
       {std::pair(StateDType::kF32, false), std::pair(StateDType::kF32, true),
        std::pair(StateDType::kBF16, false), std::pair(StateDType::kBF16, true)}) {
    PoolParams params{.pool = kOf, .overlaps = overlaps, .layer = 0, .state_offset = 5};
    const int width = params.width(kFeatures);
    const auto n_values = static_cast<size_t>(kTokensInAll) * static_cast<size_t>(width);
    const std::vector<float> keys = random_floats(n_values, 11),
                             scores = random_floats(n_values, 12, 20.0f),
                             places = random_floats(static_cast<size_t>(kOf * width), 13);
    const auto packed = ops_->pack_vector(places).value();
    params.places = packed.get();
    CacheSpec spec;
    spec.layers = {{0, kDim}};
    spec.state_values = {5 + params.state_values(kFeatures)};
    spec.state_dtype = type;
    const int n_blocks[] = {1, 4};
    const auto cache = ops_->make_cache(spec, n_blocks).value();
    const std::vector<std::byte> old(static_cast<size_t>(spec.state_bytes()), std::byte{0x49});
    for (int b = 0; b < 4; ++b) cache->write_block(1, BlockId(b), old);
    int done = 0;
    for (const int n : {1, 1, 5, 6, 3}) {
      const std::vector<int32_t> positions(static_cast<size_t>(n));
      const std::vector<TokenId> tokens(static_cast<size_t>(n));
      std::vector<BlockId> states = {BlockId(2)};
      if (done + n == kTokensInAll) states = {BlockId(2), BlockId(0), BlockId(3)};
      const int32_t seq_offsets[] = {0, n}, lens[] = {done + n},
                    table_offsets[] = {0, static_cast<int32_t>(states.size())};
      const KvView views[] = {{}, {{}, states, table_offsets, {}}};
      const Batch batch{tokens, positions, seq_offsets, lens, views, {}, {}};
      ops_->begin_step(&batch);
      const Tensor out = ops_->new_tensor(n, kFeatures);
      ops_->pool_keys(tensor_of(*ops_, rows_of(keys, width, done, n), n, width),
                      tensor_of(*ops_, rows_of(scores, width, done, n), n, width), params, *cache,
                      out);
      const Values got = read(*ops_, out);
      for (int i = 0; i < n; ++i) {
        const int end = done + i + 1, taps = std::min(params.taps(), end);
        for (int c = 0; c < kFeatures; ++c) {
          double sum = 0, mean = 0;
          for (int k = 0; k < taps && end % kOf == 0; ++k) {
            const bool second = overlaps && k < kOf;  // counted from the last token
            const int column = c + (second ? kFeatures : 0), token = end - 1 - k;
            const auto at = static_cast<size_t>(token * width + column);
            const double weight = std::exp(
                double{scores[at]} + places[static_cast<size_t>(token % kOf * width + column)]);
            sum += weight, mean += weight * keys[at];
          }
          if (sum == 0) {
            ASSERT_EQ(got.at(i, c), 0.0f) << "token " << done + i;
            continue;
          }
          // Scores of up to 60 are rounded to 8 bits.
          ASSERT_NEAR(got.at(i, c), mean / sum, type == StateDType::kF32 ? 2e-5 : 0.3)
              << "token " << done + i << " feature " << c << " overlaps " << overlaps;
        }
      }
      done += n;
    }
  }
}

TEST_P(PooledSelection, StreamsAreReadWrittenAndMixedInShares) {
  constexpr int kRows = 3;
  for (const int n : {1, 2, 4, 16}) {
    for (const int iterations : {1, 2, 20}) {
      const int cols = (2 + n) * n;
      const std::vector<float> z = random_floats(static_cast<size_t>(kRows * cols), 14, 2.0f),
                               base = random_floats(static_cast<size_t>(cols), 15);
      const std::vector<float> scale = {0.7f, 1.3f, 1.1f};
      const auto packed_base = ops_->pack_vector(base).value(),
                 packed_scale = ops_->pack_vector(scale).value();
      constexpr double kEps = 1e-3;
      const Batch none;
      ops_->begin_step(&none);
      const Tensor shares = tensor_of(*ops_, z, kRows, cols);
      ops_->mix_streams(shares, {n, packed_scale.get(), packed_base.get(), kEps, iterations});
      const Values got = read(*ops_, shares);
      for (int r = 0; r < kRows; ++r) {
        std::vector<double> x(static_cast<size_t>(cols));
        for (int i = 0; i < cols; ++i) {
          const auto at = static_cast<size_t>(i);
          x[at] = double{z[static_cast<size_t>(r * cols) + at]} *
                      scale[static_cast<size_t>(std::min(i / n, 2))] +
                  base[at];
        }
        const auto share = [&](int j, int k) -> double& {
          return x[static_cast<size_t>(2 * n + j * n + k)];
        };
        const auto divide = [&](bool by_row) {
          for (int a = 0; a < n; ++a) {
            double sum = kEps;
            for (int b = 0; b < n; ++b) sum += by_row ? share(a, b) : share(b, a);
            for (int b = 0; b < n; ++b) (by_row ? share(a, b) : share(b, a)) /= sum;
          }
        };
        for (int j = 0; j < n; ++j) {
          double sum = 0;
          for (int k = 0; k < n; ++k) sum += std::exp(share(j, k));
          for (int k = 0; k < n; ++k) share(j, k) = std::exp(share(j, k)) / sum + kEps;
        }
        divide(false);
        for (int i = 1; i < iterations; ++i) divide(true), divide(false);
        for (int i = 0; i < 2 * n; ++i) {
          const double gate = 1 / (1 + std::exp(-x[static_cast<size_t>(i)]));
          EXPECT_NEAR(got.at(r, i), i < n ? gate + kEps : 2 * gate, 1e-5);
        }
        for (int j = 0; j < n; ++j)
          for (int k = 0; k < n; ++k)
            EXPECT_NEAR(got.at(r, 2 * n + k * n + j), share(j, k), 1e-5) << n << " streams";
      }
    }
  }
}

// Shares of streams that are read alone, or read and written without a mixture.
TEST_P(PooledSelection, StreamsWithoutAMixtureHaveFewerShares) {
  constexpr int kRows = 3, kStreams = 4;
  constexpr double kEps = 1e-3, kWriteEps = 0.05, kMagnitude = 1.7;
  for (const int kinds : {1, 2}) {
    const int cols = kinds * kStreams;
    const std::vector<float> z = random_floats(static_cast<size_t>(kRows * cols), 16, 2.0f),
                             base = random_floats(static_cast<size_t>(cols), 17),
                             all_scales = {0.7f, 1.3f};
    const auto packed_base = ops_->pack_vector(base).value(),
               packed_scale =
                   ops_->pack_vector(std::span(all_scales).first(static_cast<size_t>(kinds)))
                       .value();
    const Batch none;
    ops_->begin_step(&none);
    const Tensor shares = tensor_of(*ops_, z, kRows, cols);
    ops_->mix_streams(
        shares, {kStreams, packed_scale.get(), packed_base.get(), kEps, 1, kMagnitude, kWriteEps});
    const Values got = read(*ops_, shares);
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < cols; ++i) {
        const double x = double{z[static_cast<size_t>(r * cols + i)]} *
                             all_scales[static_cast<size_t>(i / kStreams)] +
                         base[static_cast<size_t>(i)];
        const double gate = 1 / (1 + std::exp(-x));
        EXPECT_NEAR(got.at(r, i), i < kStreams ? gate + kEps : kMagnitude * gate + kWriteEps, 1e-5);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, PooledSelection, testing::ValuesIn(ops_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace pooled
}  // namespace
}  // namespace penstock
