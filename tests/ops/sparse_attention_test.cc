// Selection by an indexer, and attention over what it selected, against double precision.
#include "ops/cpu/sparse_attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>

#include "ops/ops_under_test.h"

namespace penstock {
namespace {

TEST(SelectHighest, TakesTheLowerOfEqualScores) {
  for (const int n : {1, 7, 64, 5000}) {
    for (const int kinds : {1, 3, 1 << 20}) {
      std::vector<float> scores = random_floats(static_cast<size_t>(n), 5);
      for (float& x : scores) x = std::round(x * static_cast<float>(kinds)) / 8.0f;
      if (n > 6) scores[3] = -0.0f, scores[4] = 0.0f, scores[5] = 1e-30f, scores[6] = -HUGE_VALF;
      for (const int k : {1, (n + 1) / 2, n}) {
        std::vector<int32_t> expected(static_cast<size_t>(n)), got(static_cast<size_t>(k));
        std::iota(expected.begin(), expected.end(), 0);
        std::ranges::stable_sort(expected, std::greater{},
                                 [&](int32_t i) { return scores[static_cast<size_t>(i)]; });
        expected.resize(static_cast<size_t>(k));
        std::ranges::sort(expected);
        select_highest(scores.data(), n, k, got.data());
        EXPECT_EQ(got, expected) << n << " scores, " << k;
      }
    }
  }
}

constexpr int kHeads = 6, kDim = 40, kValueDim = 24, kIndexHeads = 5, kIndexDim = 14;
constexpr int kLatents = 0, kKeys = 1;  // layers

struct StepResult {
  std::vector<int32_t> selected;  // [n_tokens][top_k]
  std::vector<float> out;         // [n_tokens][kHeads * kValueDim]
};

const std::vector<float>& sinks() {
  static const std::vector<float> value = {-2.0f, 0.5f, 3.0f, 0.0f, -40.0f, 1.5f};
  return value;
}

// Sequences in a cache of shuffled blocks. Inputs depend on sequence and index alone.
class SparseFixture {
 public:
  SparseFixture(Ops& ops, KvDType dtype, int top_k, int max_len, bool has_sinks = false)
      : ops_(ops), top_k_(top_k), n_blocks_((max_len + 15) / 16) {
    CacheSpec spec;
    spec.layers = {{1, kDim, 0, 0, kValueDim}, {1, kIndexDim, 0, 0, kIndexDim}};
    spec.dtype = dtype;
    spec.first_index_layer = kKeys;
    const int n_blocks[] = {2 * n_blocks_ + 3};
    cache_ = std::move(ops.make_cache(spec, n_blocks).value());
    if (has_sinks) sinks_ = ops.pack_vector(sinks()).value();
    blocks_.resize(static_cast<size_t>(n_blocks[0]));
    std::iota(blocks_.begin(), blocks_.end(), 0);
    std::shuffle(blocks_.begin(), blocks_.end(), std::mt19937(7));
  }

  static const std::vector<float>& input(int n, int seq, int index, int kind) {
    static std::map<int, std::vector<float>> made;
    const int seed = seq * 104729 + index * 5 + kind;
    const auto [found, is_new] = made.try_emplace(seed);
    if (is_new) found->second = random_floats(static_cast<size_t>(n), static_cast<unsigned>(seed));
    return found->second;
  }

  // Feeds counts[s] tokens of each of two sequences.
  StepResult step(std::vector<int> counts, const std::vector<uint64_t>& masks = {}) {
    std::vector<int32_t> positions, slots, seq_offsets = {0}, lens, table_offsets = {0};
    std::vector<BlockId> tables;
    std::vector<float> q, k, index_q, index_k, weights;
    const auto append = [](std::vector<float>& to, const std::vector<float>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    for (int s = 0; s < 2; ++s) {
      for (int b = 0; b < n_blocks_; ++b)
        tables.push_back(BlockId{blocks_[static_cast<size_t>(s * n_blocks_ + b)]});
      for (int i = 0; i < counts[static_cast<size_t>(s)]; ++i) {
        const int at = lens_[s] + i;
        positions.push_back(at);
        slots.push_back(
            static_cast<int>(blocks_[static_cast<size_t>(s * n_blocks_ + at / 16)]) * 16 + at % 16);
        append(q, input(kHeads * kDim, s, at, 0)), append(k, input(kDim, s, at, 1));
        append(index_q, input(kIndexHeads * kIndexDim, s, at, 2));
        append(index_k, input(kIndexDim, s, at, 3));
        append(weights, input(kIndexHeads, s, at, 4));
      }
      lens_[s] += counts[static_cast<size_t>(s)];
      lens.push_back(lens_[s]);
      seq_offsets.push_back(static_cast<int>(positions.size()));
      table_offsets.push_back(static_cast<int>(tables.size()));
    }
    const std::vector<TokenId> tokens(positions.size(), 0);
    KvView view = {slots, tables, table_offsets, {}};
    const Batch batch = {tokens, positions, seq_offsets, lens, {&view, 1}, masks, {}};
    const int n = batch.n_tokens();
    ops_.begin_step(&batch);
    const Tensor tq = tensor_of(ops_, q, n, kHeads * kDim), tk = tensor_of(ops_, k, n, kDim);
    const Tensor iq = tensor_of(ops_, index_q, n, kIndexHeads * kIndexDim),
                 ik = tensor_of(ops_, index_k, n, kIndexDim),
                 iw = tensor_of(ops_, weights, n, kIndexHeads);
    const Tensor selected = ops_.new_tensor(n, top_k_),
                 out = ops_.new_tensor(n, kHeads * kValueDim);
    ops_.rope_and_store(iq, ik, Tensor(), nullptr, *cache_, kKeys);
    ops_.select(iq, iw, *cache_, {kKeys, kIndexHeads, top_k_}, selected);
    ops_.rope_and_store(tq, tk, Tensor(), nullptr, *cache_, kLatents);
    ops_.attend(tq, *cache_,
                {.layer = kLatents,
                 .n_heads = kHeads,
                 .scale = 0.2f,
                 .sinks = sinks_.get(),
                 .selected = selected},
                out);
    StepResult result;
    for (const float bits : read(ops_, selected).all)
      result.selected.push_back(std::bit_cast<int32_t>(bits));
    result.out = read(ops_, out).all;
    return result;
  }

 private:
  Ops& ops_;
  int top_k_, n_blocks_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<Vector> sinks_;
  std::vector<uint32_t> blocks_;
  int lens_[2] = {0, 0};
};

// Expects what the token at `index`, which sees these tokens, is to have selected and to give.
void expect_token(const StepResult& got, size_t row, int seq, int index,
                  const std::vector<int>& visible, int top_k, double scores_near, double out_near,
                  bool has_sinks = false) {
  std::vector<int> chosen = visible;
  if (static_cast<int>(visible.size()) > top_k) {
    const auto begin = got.selected.begin() + static_cast<ptrdiff_t>(row) * top_k;
    chosen.assign(begin, begin + top_k);
    ASSERT_TRUE(std::ranges::is_sorted(chosen));
    ASSERT_TRUE(std::ranges::includes(visible, chosen));
    ASSERT_EQ(std::ranges::adjacent_find(chosen), chosen.end());
    const auto &q = SparseFixture::input(kIndexHeads * kIndexDim, seq, index, 2),
               &w = SparseFixture::input(kIndexHeads, seq, index, 4);
    double least = HUGE_VAL, most_left = -HUGE_VAL;
    for (const int j : visible) {
      const auto& k = SparseFixture::input(kIndexDim, seq, j, 3);
      double score = 0;
      for (size_t h = 0; h < kIndexHeads; ++h) {
        double product = 0;
        for (size_t d = 0; d < kIndexDim; ++d) product += double{q[h * kIndexDim + d]} * k[d];
        score += w[h] * std::max(product, 0.0);
      }
      if (std::ranges::binary_search(chosen, j)) {
        least = std::min(least, score);
      } else {
        most_left = std::max(most_left, score);
      }
    }
    EXPECT_GE(least, most_left - scores_near) << "token " << index;
  }
  const auto& q = SparseFixture::input(kHeads * kDim, seq, index, 0);
  for (size_t h = 0; h < kHeads; ++h) {
    std::vector<double> out(kValueDim, 0.0);
    double sum = has_sinks ? std::exp(double{sinks()[h]}) : 0;
    for (const int j : chosen) {
      const auto& k = SparseFixture::input(kDim, seq, j, 1);
      double score = 0;
      for (size_t d = 0; d < kDim; ++d) score += double{q[h * kDim + d]} * k[d];
      const double weight = std::exp(0.2f * score);
      sum += weight;
      for (size_t d = 0; d < kValueDim; ++d) out[d] += weight * k[d];
    }
    for (size_t d = 0; d < kValueDim; ++d)
      EXPECT_NEAR(got.out[(row * kHeads + h) * kValueDim + d], out[d] / sum, out_near)
          << "token " << index << ", head " << h;
  }
}

std::vector<int> up_to(int n) {
  std::vector<int> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

class SparseAttentionTest : public testing::TestWithParam<OpsUnderTest> {
 protected:
  void SetUp() override {
    ops_ = GetParam().make();
    if (!ops_->can_select()) GTEST_SKIP() << "no selection on this backend";
  }
  std::unique_ptr<Ops> ops_;
};

TEST_P(SparseAttentionTest, SelectsTheHighestAndReadsThemOnly) {
  struct Case {
    KvDType dtype;
    double scores_near, out_near;
  };
  for (const Case& c : {Case{KvDType::kF32, 1e-4, 1e-4}, Case{KvDType::kF16, 0.05, 0.02},
                        Case{KvDType::kBF16, 0.4, 0.15}, Case{KvDType::kI8, 0.8, 0.2}}) {
    SCOPED_TRACE(static_cast<int>(c.dtype));
    SparseFixture attention(*ops_, c.dtype, 24, 100);
    StepResult got = attention.step({70, 9});  // some of the first see all
    for (int i = 0; i < 70; ++i)
      expect_token(got, static_cast<size_t>(i), 0, i, up_to(i + 1), 24, c.scores_near, c.out_near);
    for (int i = 0; i < 9; ++i)
      expect_token(got, static_cast<size_t>(70 + i), 1, i, up_to(i + 1), 24, c.scores_near,
                   c.out_near);
    got = attention.step({1, 30});
    expect_token(got, 0, 0, 70, up_to(71), 24, c.scores_near, c.out_near);
    for (int i = 0; i < 30; ++i)
      expect_token(got, static_cast<size_t>(1 + i), 1, 9 + i, up_to(10 + i), 24, c.scores_near,
                   c.out_near);
  }
}

// A sink takes part in the softmax of each head, of tokens that see all and of the others.
TEST_P(SparseAttentionTest, SinksJoinTheSoftmax) {
  SparseFixture attention(*ops_, KvDType::kF32, 24, 100, true);
  const StepResult got = attention.step({70, 1});
  for (int i = 0; i < 70; ++i)
    expect_token(got, static_cast<size_t>(i), 0, i, up_to(i + 1), 24, 1e-4, 1e-4, true);
}

// Nodes of a draft see their ancestors; some of them see as many tokens as are selected, or fewer.
TEST_P(SparseAttentionTest, DraftTreesSelectAmongAncestors) {
  SparseFixture attention(*ops_, KvDType::kF32, 24, 100);
  attention.step({40, 22});
  const std::vector<uint64_t> tree = {0b1, 0b11, 0b101, 0b1011, 0b10101, 0b100001};
  std::vector<uint64_t> masks = tree;
  masks.insert(masks.end(), tree.begin(), tree.end());
  const StepResult got = attention.step({6, 6}, masks);
  for (int s = 0; s < 2; ++s) {
    const int old = s == 0 ? 40 : 22;
    for (int i = 0; i < 6; ++i) {
      std::vector<int> visible = up_to(old);
      for (int bit = 0; bit <= i; ++bit)
        if ((tree[static_cast<size_t>(i)] >> bit & 1) != 0) visible.push_back(old + bit);
      expect_token(got, static_cast<size_t>(6 * s + i), s, old + i, visible, 24, 1e-4, 1e-4);
    }
  }
}

// Whole prompts, chunks and single tokens select and give the same bits; more tokens are selected
// than are computed together.
TEST_P(SparseAttentionTest, ChunksAndSingleTokensGiveTheSameBits) {
  for (const auto& [top_k, n] : {std::pair{24, 90}, std::pair{530, 560}}) {
    SparseFixture at_once(*ops_, KvDType::kF16, top_k, n), in_parts(*ops_, KvDType::kF16, top_k, n);
    const StepResult whole = at_once.step({n, 3});
    constexpr size_t kRow = size_t{kHeads} * kValueDim;
    int at = 0;
    for (const int part : {top_k - 2, 1, 1, 1, 7, 1, n - top_k - 9}) {
      const StepResult got = in_parts.step({part, 1});
      for (int i = 0; i < part; ++i) {
        if (at + i < top_k && !GetParam().config.batch_invariant) continue;  // dense attention's
        const auto w = static_cast<size_t>(at + i), p = static_cast<size_t>(i);
        EXPECT_TRUE(std::equal(whole.out.begin() + static_cast<ptrdiff_t>(w * kRow),
                               whole.out.begin() + static_cast<ptrdiff_t>((w + 1) * kRow),
                               got.out.begin() + static_cast<ptrdiff_t>(p * kRow)))
            << "token " << w;
        if (at + i < top_k) continue;
        const auto k = static_cast<ptrdiff_t>(top_k);
        EXPECT_TRUE(std::equal(whole.selected.begin() + (at + i) * k,
                               whole.selected.begin() + (at + i + 1) * k,
                               got.selected.begin() + i * k))
            << "token " << w;
      }
      at += part;
    }
    EXPECT_EQ(at, n);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, SparseAttentionTest, testing::ValuesIn(ops_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock
