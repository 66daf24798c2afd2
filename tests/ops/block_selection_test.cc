// Selection of whole blocks of tokens for each KV head, and attention over them, against plain
// computations; also of drafts that branch.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "ops/ops_under_test.h"

namespace penstock {
namespace {
namespace blocks {

constexpr int kHeads = 6, kKvHeads = 2, kDim = 20, kIndexDim = 12;
constexpr int kBlock = 5, kChosen = 3, kMost = kChosen * kBlock, kLocal = 2;
constexpr int kTokens = 0, kKeys = 1;  // layers

// Inputs of one sequence's tokens.
struct Inputs {
  Inputs(int n, bool ties)
      : q(random_floats(static_cast<size_t>(n) * kHeads * kDim, 1)),
        k(random_floats(static_cast<size_t>(n) * kKvHeads * kDim, 2)),
        v(random_floats(static_cast<size_t>(n) * kKvHeads * kDim, 3)),
        index_q(random_floats(static_cast<size_t>(n) * kKvHeads * kIndexDim, 4)),
        index_k(random_floats(static_cast<size_t>(n) * kIndexDim, 5)) {
    if (ties) std::ranges::fill(index_k, 0.5f);
  }
  std::vector<float> q, k, v, index_q, index_k;
};

std::vector<float> rows_of(const std::vector<float>& all, int cols, int first, int n) {
  const auto begin = all.begin() + static_cast<ptrdiff_t>(first) * cols;
  return {begin, begin + static_cast<ptrdiff_t>(n) * cols};
}

// The places of the tokens that the token at `index` attends to in a KV head. seen: the places of the
// tokens that it sees, in their order.
std::vector<int> expected_tokens(const Inputs& in, int index, int head,
                                 const std::vector<int>& seen) {
  const int n = static_cast<int>(seen.size()), n_blocks = (n + kBlock - 1) / kBlock;
  std::vector<double> scores(static_cast<size_t>(n_blocks), -INFINITY);
  for (int i = 0; i < n; ++i) {
    double product = 0;
    for (int d = 0; d < kIndexDim; ++d)
      product +=
          double{in.index_q[static_cast<size_t>((index * kKvHeads + head) * kIndexDim + d)]} *
          in.index_k[static_cast<size_t>(seen[static_cast<size_t>(i)] * kIndexDim + d)];
    double& score = scores[static_cast<size_t>(i / kBlock)];
    score = std::max(score, product);
  }
  for (int b = std::max(n_blocks - kLocal, 0); b < n_blocks; ++b)
    scores[static_cast<size_t>(b)] = INFINITY;
  std::vector<int> order(static_cast<size_t>(n_blocks));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater{},
                           [&](int b) { return scores[static_cast<size_t>(b)]; });
  order.resize(std::min<size_t>(order.size(), kChosen));
  std::ranges::sort(order);
  std::vector<int> tokens;
  for (const int b : order)
    for (int i = b * kBlock; i < std::min((b + 1) * kBlock, n); ++i)
      tokens.push_back(seen[static_cast<size_t>(i)]);
  return tokens;
}

std::vector<double> expected_out(const Inputs& in, int index, int head,
                                 const std::vector<int>& tokens) {
  std::vector<double> out(kDim, 0.0);
  const int kv = head / (kHeads / kKvHeads);
  double sum = 0;
  for (const int t : tokens) {
    double score = 0;
    const auto key = static_cast<size_t>((t * kKvHeads + kv) * kDim);
    for (int d = 0; d < kDim; ++d)
      score += double{in.q[static_cast<size_t>((index * kHeads + head) * kDim + d)]} *
               in.k[key + static_cast<size_t>(d)];
    const double weight = std::exp(0.2 * score);
    sum += weight;
    for (int d = 0; d < kDim; ++d)
      out[static_cast<size_t>(d)] += weight * in.v[key + static_cast<size_t>(d)];
  }
  for (double& value : out) value /= sum;
  return out;
}

class BlockSelection : public testing::TestWithParam<OpsUnderTest> {
 protected:
  void SetUp() override {
    ops_ = GetParam().make();
    if (!ops_->can_select()) GTEST_SKIP() << "no selection on this backend";
  }

  // The places of the tokens that the r-th of a step's tokens sees, behind `done` others.
  static std::vector<int> seen_by(int done, int r, std::span<const uint64_t> masks) {
    std::vector<int> seen(static_cast<size_t>(done));
    std::iota(seen.begin(), seen.end(), 0);
    for (int i = 0; i <= r; ++i)
      if (masks.empty() || (masks[static_cast<size_t>(r)] >> i & 1) != 0) seen.push_back(done + i);
    return seen;
  }

  // Computes the tokens in steps of these sizes, the last of which may be a tree of drafts, and
  // expects all of them.
  void check(const Inputs& in, std::span<const int> steps, std::span<const uint64_t> last_masks,
             KvDType dtype, double near) {
    CacheSpec spec;
    spec.layers = {{kKvHeads, kDim, 0, 0, 0}, {1, kIndexDim, 0, 0, kIndexDim}};
    spec.dtype = dtype;
    spec.first_index_layer = kKeys;
    const int n_blocks[] = {8};
    const auto cache = ops_->make_cache(spec, n_blocks).value();
    const std::vector<BlockId> table = {BlockId(5), BlockId(2), BlockId(7), BlockId(0), BlockId(3)};
    int done = 0;
    for (size_t step = 0; step < steps.size(); ++step) {
      const int n = steps[step];
      const std::span<const uint64_t> masks =
          step + 1 == steps.size() ? last_masks : std::span<const uint64_t>();
      std::vector<int32_t> positions, slots;
      for (int t = done; t < done + n; ++t) {
        positions.push_back(static_cast<int>(seen_by(done, t - done, masks).size()) - 1);
        slots.push_back(static_cast<int>(table[static_cast<size_t>(t / 16)]) * 16 + t % 16);
      }
      const std::vector<TokenId> tokens(static_cast<size_t>(n), 0);
      const int32_t seq_offsets[] = {0, n}, lens[] = {done + n},
                    table_offsets[] = {0, static_cast<int32_t>(table.size())};
      KvView view = {slots, table, table_offsets, {}};
      Batch batch = {tokens, positions, seq_offsets, lens, {&view, 1}, {}, {}};
      batch.tree_masks = masks;
      ops_->begin_step(&batch);
      const auto part = [&](const std::vector<float>& all, int cols) {
        return tensor_of(*ops_, rows_of(all, cols, done, n), n, cols);
      };
      const Tensor index_q = part(in.index_q, kKvHeads * kIndexDim),
                   selected = ops_->new_tensor(n, kKvHeads * kMost),
                   out = ops_->new_tensor(n, kHeads * kDim);
      ops_->rope_and_store(index_q, part(in.index_k, kIndexDim), Tensor(), nullptr, *cache, kKeys);
      ops_->select(
          index_q, Tensor(), *cache,
          {.layer = kKeys, .n_heads = kKvHeads, .top_k = kMost, .block = kBlock, .n_local = kLocal},
          selected);
      ops_->store_and_attend(part(in.q, kHeads * kDim), part(in.k, kKvHeads * kDim),
                             part(in.v, kKvHeads * kDim), nullptr, *cache,
                             {.layer = kTokens,
                              .n_heads = kHeads,
                              .scale = 0.2f,
                              .selected = selected,
                              .selected_block = kBlock},
                             out);
      const Values chosen = read(*ops_, selected), got = read(*ops_, out);
      for (int r = 0; r < n; ++r) {
        const std::vector<int> seen = seen_by(done, r, masks);
        for (int head = 0; head < kHeads; ++head) {
          const int kv = head / (kHeads / kKvHeads);
          const std::vector<int> wanted = expected_tokens(in, done + r, kv, seen);
          std::vector<int> indices;
          for (size_t i = 0; i < wanted.size(); ++i)
            indices.push_back(
                std::bit_cast<int32_t>(chosen.at(r, kv * kMost + static_cast<int>(i))));
          if (static_cast<int>(seen.size()) > kMost) {
            ASSERT_EQ(indices, wanted) << "token " << done + r << " head " << kv;
          }
          const std::vector<double> values = expected_out(in, done + r, head, wanted);
          for (int d = 0; d < kDim; ++d)
            ASSERT_NEAR(got.at(r, head * kDim + d), values[static_cast<size_t>(d)], near)
                << "token " << done + r << " head " << head;
        }
      }
      done += n;
    }
  }
  std::unique_ptr<Ops> ops_;
};

TEST_P(BlockSelection, TheBestOfEachHeadAndTheLast) {
  const Inputs in(70, false);
  const int whole[] = {70}, parts[] = {14, 1, 1, 1, 7, 30, 1, 15};
  check(in, whole, {}, KvDType::kF32, 1e-4);
  check(in, parts, {}, KvDType::kF32, 1e-4);
}

TEST_P(BlockSelection, TheLowerOfEqualBlocks) {
  const Inputs in(40, true);
  const int parts[] = {25, 1, 14};
  check(in, parts, {}, KvDType::kF32, 1e-4);
  check(in, parts, {}, KvDType::kF16, 0.02);
}

// Blocks are those of the tokens that a draft's token sees, not of places.
TEST_P(BlockSelection, DraftsThatBranch) {
  const Inputs in(40, false);
  const int parts[] = {32, 8};
  const uint64_t masks[] = {0b1, 0b11, 0b101, 0b1011, 0b10101, 0b101011, 0b1010101, 0b10101011};
  check(in, parts, masks, KvDType::kF32, 1e-4);
}

// Queries of Mistral Large 4, by the formula of transformers' MistralLarge4TextSoftmaxScaling.
TEST_P(BlockSelection, HeadsGrowWithThePosition) {
  const std::vector<float> slopes = {0.7f, -1.3f, 0.0f}, biases = {0.5f, 0.1f, -2.0f};
  constexpr int kWide = 5;
  const std::vector<int32_t> positions = {0, 3, 70000}, slots = {0, 1, 2};
  const std::vector<TokenId> tokens(3, 0);
  const int32_t seq_offsets[] = {0, 3}, lens[] = {3}, table_offsets[] = {0, 1};
  const std::vector<BlockId> table = {BlockId(0)};
  KvView view = {slots, table, table_offsets, {}};
  const Batch batch = {tokens, positions, seq_offsets, lens, {&view, 1}, {}, {}};
  const std::vector<float> x = random_floats(3 * 3 * kWide, 6);
  const auto s = ops_->pack_vector(slopes).value(), b = ops_->pack_vector(biases).value();
  ops_->begin_step(&batch);
  const Tensor scaled = tensor_of(*ops_, x, 3, 3 * kWide);
  ops_->scale_heads_by_position(scaled, *s, *b);
  const Values got = read(*ops_, scaled);
  for (int t = 0; t < 3; ++t)
    for (int i = 0; i < 3 * kWide; ++i) {
      const auto h = static_cast<size_t>(i / kWide);
      const double factor =
          slopes[h] * std::log(positions[static_cast<size_t>(t)] + 1.0) + biases[h];
      EXPECT_NEAR(got.at(t, i), factor * x[static_cast<size_t>(t * 3 * kWide + i)], 1e-4);
    }
}

INSTANTIATE_TEST_SUITE_P(Backends, BlockSelection, testing::ValuesIn(ops_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace blocks
}  // namespace
}  // namespace penstock
