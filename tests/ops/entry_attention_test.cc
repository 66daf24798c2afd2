// Attention to the tokens of a window and to entries beside them, against a plain computation.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/ops_under_test.h"

namespace penstock {
namespace {
namespace entries {

constexpr int kHeads = 5, kDim = 20, kIndexHeads = 3, kIndexDim = 12, kWindow = 7, kTokens = 700;
constexpr int kOwn = 0, kKeys = 1, kEntries = 2;  // layers of the cache
constexpr float kScale = 0.2f;

// Inputs of one sequence. Entries and the indexer's keys are given for every token; those of tokens
// that end no entry must not be read.
struct Inputs {
  std::vector<float> q = random_floats(kTokens * kHeads * kDim, 1),
                     k = random_floats(kTokens * kDim, 2), entry = random_floats(kTokens * kDim, 3),
                     index_q = random_floats(kTokens * kIndexHeads * kIndexDim, 4),
                     index_k = random_floats(kTokens * kIndexDim, 5),
                     index_weights = random_floats(kTokens * kIndexHeads, 6),
                     sinks = random_floats(kHeads, 7);
};

struct Case {
  int ratio, top_k;  // 0: all entries
};

std::vector<float> rows_of(const std::vector<float>& all, int cols, int first, int n) {
  const auto begin = all.begin() + static_cast<ptrdiff_t>(first) * cols;
  return {begin, begin + static_cast<ptrdiff_t>(n) * cols};
}

double dot(const std::vector<float>& a, int first_a, const std::vector<float>& b, int first_b,
           int n) {
  double sum = 0;
  for (int d = 0; d < n; ++d)
    sum += double{a[static_cast<size_t>(first_a + d)]} * b[static_cast<size_t>(first_b + d)];
  return sum;
}

// Places of the entries that the token at `index` reads.
std::vector<int> expected_entries(const Inputs& in, const Case& c, int index) {
  std::vector<int> places;
  for (int last = c.ratio - 1; last <= index; last += c.ratio) places.push_back(last);
  if (c.top_k == 0 || static_cast<int>(places.size()) <= c.top_k) return places;
  std::ranges::stable_sort(places, std::greater{}, [&](int last) {
    double score = 0;
    for (int h = 0; h < kIndexHeads; ++h)
      score += in.index_weights[static_cast<size_t>(index * kIndexHeads + h)] *
               std::max(0.0, dot(in.index_q, (index * kIndexHeads + h) * kIndexDim, in.index_k,
                                 last * kIndexDim, kIndexDim));
    return score;
  });
  places.resize(static_cast<size_t>(c.top_k));
  return places;
}

std::vector<double> expected_out(const Inputs& in, const Case& c, int index) {
  const std::vector<int> places = expected_entries(in, c, index);
  std::vector<double> out(kHeads * kDim, 0.0);
  for (int h = 0; h < kHeads; ++h) {
    double sum = std::exp(double{in.sinks[static_cast<size_t>(h)]});
    const auto add = [&](const std::vector<float>& keys, int token) {
      const double weight =
          std::exp(kScale * dot(in.q, (index * kHeads + h) * kDim, keys, token * kDim, kDim));
      sum += weight;
      for (int d = 0; d < kDim; ++d)
        out[static_cast<size_t>(h * kDim + d)] +=
            weight * keys[static_cast<size_t>(token * kDim + d)];
    };
    for (int t = std::max(0, index + 1 - kWindow); t <= index; ++t) add(in.k, t);
    for (const int last : places) add(in.entry, last);
    for (int d = 0; d < kDim; ++d) out[static_cast<size_t>(h * kDim + d)] /= sum;
  }
  return out;
}

class EntryAttention : public testing::TestWithParam<OpsUnderTest> {
 protected:
  void SetUp() override {
    ops_ = GetParam().make();
    if (!ops_->can_select()) GTEST_SKIP() << "no selection on this backend";
  }
  // Reads all blocks of group 0 and writes each to the place of the next.
  static void move_blocks(KvCache& cache, std::vector<BlockId>& table) {
    std::vector<std::vector<std::byte>> images;
    for (const BlockId block : table) {
      images.emplace_back(static_cast<size_t>(cache.block_bytes(0)));
      cache.read_block(0, block, images.back());
    }
    for (size_t i = 0; i < table.size(); ++i) {
      table[i] = BlockId((static_cast<int>(table[i]) + 1) % static_cast<int>(table.size()));
      cache.write_block(0, table[i], images[i]);
    }
  }
  // Computes the tokens in steps of these sizes and expects all of them. In a group of its own the
  // window's layer has blocks in another order, and its table begins behind the first ones. Between the
  // steps blocks are moved.
  void check(const Case& c, std::span<const int> steps, KvDType dtype, double near, int group) {
    const Inputs in;
    CacheSpec spec;
    spec.layers = {
        {1, kDim, kWindow, group, kDim}, {1, kIndexDim, 0, 0, kIndexDim}, {1, kDim, 0, 0, kDim}};
    spec.layers[kEntries].every = std::gcd(c.ratio, spec.block_size);
    spec.dtype = dtype;
    spec.first_index_layer = kKeys, spec.first_entry_layer = kEntries;
    constexpr int kBlocks = kTokens / 16 + 1;
    const int n_blocks[] = {kBlocks, kBlocks};
    const auto cache =
        ops_->make_cache(spec, std::span(n_blocks).first(static_cast<size_t>(group) + 1)).value();
    std::vector<BlockId> table, other;
    for (int b = 0; b < kBlocks; ++b)
      table.push_back(BlockId((b * 5 + 3) % kBlocks)), other.push_back(BlockId(kBlocks - 1 - b));
    const auto sinks = ops_->pack_vector(in.sinks).value();
    int done = 0;
    for (const int n : steps) {
      const int dropped = group > 0 ? std::max(0, done + 1 - kWindow) / 16 : 0;
      const std::vector<BlockId> kept(other.begin() + dropped, other.end());
      std::vector<int32_t> positions, slots, other_slots;
      for (int t = done; t < done + n; ++t) {
        const auto block = static_cast<size_t>(t / 16);
        positions.push_back(t);
        slots.push_back(static_cast<int>(table[block]) * 16 + t % 16);
        other_slots.push_back(static_cast<int>(other[block]) * 16 + t % 16);
      }
      const std::vector<TokenId> tokens(static_cast<size_t>(n), 0);
      const int32_t seq_offsets[] = {0, n}, lens[] = {done + n},
                    offsets[] = {0, static_cast<int32_t>(table.size())},
                    kept_offsets[] = {0, static_cast<int32_t>(kept.size())},
                    first[] = {16 * dropped};
      const KvView views[] = {{slots, table, offsets, {}},
                              {other_slots, kept, kept_offsets, first}};
      const Batch batch = {tokens,
                           positions,
                           seq_offsets,
                           lens,
                           std::span(views).first(static_cast<size_t>(group) + 1),
                           {},
                           {}};
      ops_->begin_step(&batch);
      const auto part = [&](const std::vector<float>& all, int cols) {
        return tensor_of(*ops_, rows_of(all, cols, done, n), n, cols);
      };
      const Tensor index_q = part(in.index_q, kIndexHeads * kIndexDim),
                   entry = part(in.entry, kDim), out = ops_->new_tensor(n, kHeads * kDim);
      EntryParams read_entries{kEntries, c.ratio, {}};
      ops_->rope_and_store(entry.columns(0, 0), entry, Tensor(), nullptr, *cache, kEntries);
      if (c.top_k > 0) {
        ops_->rope_and_store(index_q, part(in.index_k, kIndexDim), Tensor(), nullptr, *cache,
                             kKeys);
        SelectParams select{kKeys, kIndexHeads, c.top_k * c.ratio, c.ratio};
        select.entries = true;
        read_entries.selected = ops_->new_tensor(n, select.cols());
        ops_->select(index_q, part(in.index_weights, kIndexHeads), *cache, select,
                     read_entries.selected);
      }
      ops_->store_and_attend(part(in.q, kHeads * kDim), part(in.k, kDim), Tensor(), nullptr, *cache,
                             {.layer = kOwn,
                              .n_heads = kHeads,
                              .scale = kScale,
                              .sinks = sinks.get(),
                              .entries = read_entries},
                             out);
      const Values got = read(*ops_, out);
      for (int r = 0; r < n; ++r) {
        const std::vector<double> values = expected_out(in, c, done + r);
        for (int i = 0; i < kHeads * kDim; ++i)
          ASSERT_NEAR(got.at(r, i), values[static_cast<size_t>(i)], near)
              << "token " << done + r << " ratio " << c.ratio;
      }
      done += n;
      move_blocks(*cache, table);
    }
  }
  std::unique_ptr<Ops> ops_;
};

// Few entries, more than are copied together, and selected ones.
TEST_P(EntryAttention, OneSoftmaxOverWindowEntriesAndSink) {
  const int parts[] = {3, 1, 1, 20, 100, 1}, whole[] = {600};
  for (const Case& c : {Case{16, 0}, Case{2, 0}, Case{3, 5}, Case{2, 290}})
    for (const int group : {0, 1}) check(c, parts, KvDType::kF32, 1e-4, group);
  check({2, 0}, whole, KvDType::kF32, 1e-4, 0);
  check({2, 290}, whole, KvDType::kF32, 1e-4, 1);
}

TEST_P(EntryAttention, OfEveryTypeOfCache) {
  const int parts[] = {30, 1, 9};
  check({4, 0}, parts, KvDType::kF16, 0.02, 0);
  check({4, 0}, parts, KvDType::kI8, 0.1, 1);
}

INSTANTIATE_TEST_SUITE_P(Backends, EntryAttention, testing::ValuesIn(ops_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace entries
}  // namespace
}  // namespace penstock
