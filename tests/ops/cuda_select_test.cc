// Sparse attention on the emulated device beside the scalar CPU: whole numbers, whose scores are exact
// and often equal, so that both select the same.
#include <algorithm>
#include <bit>
#include <numeric>

#include "ops/cuda/cuda_ops.h"
#include "ops/ops_under_test.h"

namespace penstock {
namespace {

struct SelectionShape {
  KvDType dtype = KvDType::kF16;
  int index_heads = 4, index_dim = 16;
  int heads = 4, kv_heads = 1, dim = 32, value_dim = 16;  // values in keys with one kv head
  int top_k = 8, pool = 1, block = 0;
  bool weighed = true;
  bool few_numbers = false;  // keys that FP8 holds

  SelectParams select() const {
    SelectParams params{.layer = 1, .n_heads = index_heads, .top_k = top_k, .pool = pool};
    params.block = block, params.n_local = block > 0 ? 1 : 0;
    return params;
  }
  bool latent() const { return kv_heads == 1; }
};

std::vector<float> whole_numbers(size_t n, unsigned seed, int most) {
  std::minstd_rand generator(seed * 77 + 5);
  std::vector<float> x(n);
  for (float& v : x) v = static_cast<float>(static_cast<int>(generator() % (2 * most + 1)) - most);
  return x;
}

struct Selected {
  std::vector<float> selected, out;
  std::vector<int> seen;  // of each token: how many tokens it sees
};

// Sequences in one backend, whose inputs depend on sequence and index alone.
class SelectionRun {
 public:
  SelectionRun(Ops& ops, const SelectionShape& shape, int n_seqs, int max_len)
      : ops_(ops), shape_(shape), lens_(static_cast<size_t>(n_seqs), 0) {
    n_blocks_ = (max_len + 15) / 16;
    CacheSpec spec;
    const int own_values = shape.latent() ? shape.value_dim : 0;
    spec.layers = {{shape.kv_heads, shape.dim, 0, 0, own_values},
                   {1, shape.index_dim, 0, 0, shape.index_dim}};
    spec.dtype = shape.dtype, spec.first_index_layer = 1;
    const int n_blocks[] = {n_seqs * n_blocks_ + 1};
    cache_ = std::move(ops.make_cache(spec, n_blocks).value());
    blocks_.resize(static_cast<size_t>(n_blocks[0]));
    std::iota(blocks_.begin(), blocks_.end(), 0);
    std::shuffle(blocks_.begin(), blocks_.end(), std::mt19937(3));
  }

  // Steps store keys, and nothing is selected or attended to.
  void store_only(bool on) { store_only_ = on; }
  Selected step(const std::vector<int>& counts, const std::vector<uint64_t>& masks = {}) {
    std::vector<int32_t> positions, slots, seq_offsets = {0}, lens, table_offsets = {0};
    std::vector<BlockId> tables;
    Inputs in;
    for (size_t s = 0; s < counts.size(); ++s) {
      for (int b = 0; b < n_blocks_; ++b)
        tables.push_back(BlockId(blocks_[s * static_cast<size_t>(n_blocks_) + b]));
      for (int i = 0; i < counts[s]; ++i) {
        const int at = lens_[s] + i;
        const uint64_t mask = masks.empty() ? 0 : masks[positions.size()];
        in.seen.push_back(mask != 0 ? lens_[s] + std::popcount(mask) : at + 1);
        positions.push_back(at);
        slots.push_back(blocks_[s * static_cast<size_t>(n_blocks_) + static_cast<size_t>(at / 16)] *
                            16 +
                        at % 16);
        append(in, static_cast<unsigned>(s) * 100003 + static_cast<unsigned>(at) * 7);
      }
      lens_[s] += counts[s];
      lens.push_back(lens_[s]);
      seq_offsets.push_back(static_cast<int>(positions.size()));
      table_offsets.push_back(static_cast<int>(tables.size()));
    }
    const std::vector<TokenId> tokens(positions.size(), 0);
    KvView view = {slots, tables, table_offsets, {}};
    Batch batch = {tokens, positions, seq_offsets, lens, {&view, 1}, masks, {}};
    return compute(batch, in);
  }

 private:
  struct Inputs {
    std::vector<float> q, k, v, index_q, index_k, weights;
    std::vector<int> seen;
  };
  void append(Inputs& in, unsigned seed) const {
    const auto add = [&](std::vector<float>& to, int n, unsigned kind, int most, float by) {
      for (const float x : whole_numbers(static_cast<size_t>(n), seed + kind, most))
        to.push_back(x * by);
    };
    add(in.q, shape_.heads * shape_.dim, 0, 8, 0.125f);
    add(in.k, shape_.kv_heads * shape_.dim, 1, shape_.few_numbers ? 1 : 8, 0.25f);
    if (!shape_.latent()) add(in.v, shape_.kv_heads * shape_.dim, 2, 8, 0.25f);
    add(in.index_q, shape_.index_heads * shape_.index_dim, 3, 1, 1.0f);
    add(in.index_k, shape_.index_dim, 4, 1, 1.0f);
    // Codes of 8 bits hold whole numbers up to 127 exactly if that is the largest, E4M3 up to 448.
    if (shape_.dtype == KvDType::kI8) in.index_k.back() = 127.0f;
    if (shape_.few_numbers) in.index_k.back() = 448.0f;
    add(in.weights, shape_.index_heads, 5, 3, 1.0f);
  }
  Selected compute(const Batch& batch, const Inputs& in) {
    const int n = batch.n_tokens();
    const SelectParams params = shape_.select();
    const SelectionShape& s = shape_;
    ops_.begin_step(&batch);
    const Tensor index_q = tensor_of(ops_, in.index_q, n, s.index_heads * s.index_dim),
                 index_k = tensor_of(ops_, in.index_k, n, s.index_dim),
                 weights = s.weighed ? tensor_of(ops_, in.weights, n, s.index_heads) : Tensor();
    const int value_dim = s.latent() ? s.value_dim : s.dim;
    const Tensor selected = ops_.new_tensor(n, params.cols()),
                 out = ops_.new_tensor(n, s.heads * value_dim);
    ops_.write_rows(std::vector<float>(static_cast<size_t>(n * params.cols())), selected);
    ops_.rope_and_store(index_q, index_k, Tensor(), nullptr, *cache_, 1);
    if (store_only_) {
      ops_.rope_and_store(Tensor{nullptr, DType::kF32, n, 0, 0}, tensor_of(ops_, in.k, n, s.dim),
                          Tensor(), nullptr, *cache_, 0);
      return {};
    }
    ops_.select(index_q, weights, *cache_, params, selected);
    AttentionParams attention{.layer = 0, .n_heads = s.heads, .scale = 0.25f, .selected = selected};
    attention.selected_pool = s.pool, attention.selected_block = s.block;
    ops_.store_and_attend(tensor_of(ops_, in.q, n, s.heads * s.dim),
                          tensor_of(ops_, in.k, n, s.kv_heads * s.dim),
                          s.latent() ? Tensor() : tensor_of(ops_, in.v, n, s.kv_heads * s.dim),
                          nullptr, *cache_, attention, out);
    return {read(ops_, selected).all, read(ops_, out).all, in.seen};
  }

  Ops& ops_;
  SelectionShape shape_;
  int n_blocks_;
  bool store_only_ = false;
  std::vector<int> lens_;
  std::unique_ptr<KvCache> cache_;
  std::vector<int> blocks_;
};

class CudaSelect : public testing::Test {
 protected:
  void SetUp() override {
    auto made = make_ops("cuda_emulated", {.n_threads = 1});
    if (!made) GTEST_SKIP() << made.error().message;
    device_ = std::move(*made);
    cpu_ = std::make_unique<CpuOps>(**select_kernels("scalar"), OpsConfig{.n_threads = 2});
  }
  // Feeds both backends with steps of these sizes, the last of which may be a tree.
  void compare(const SelectionShape& shape, const std::vector<std::vector<int>>& steps,
               const std::vector<uint64_t>& last_masks = {}, float near = 2e-3f) {
    std::vector<int> totals(steps[0].size(), 0);
    for (const auto& step : steps)
      for (size_t s = 0; s < step.size(); ++s) totals[s] += step[s];
    const int longest = *std::ranges::max_element(totals);
    const auto n_seqs = static_cast<int>(totals.size());
    // The CPU has no FP8; numbers that FP8 holds are the same in F32.
    SelectionShape on_cpu = shape;
    if (shape.dtype == KvDType::kF8) on_cpu.dtype = KvDType::kF32;
    SelectionRun wanted(*cpu_, on_cpu, n_seqs, longest), got(*device_, shape, n_seqs, longest);
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto& masks = i + 1 == steps.size() ? last_masks : std::vector<uint64_t>();
      const Selected a = wanted.step(steps[i], masks), b = got.step(steps[i], masks);
      ASSERT_EQ(a.out.size(), b.out.size());
      const auto n_rows = std::accumulate(steps[i].begin(), steps[i].end(), size_t{0});
      for (size_t j = 0; j < a.out.size(); ++j)
        ASSERT_NEAR(a.out[j], b.out[j], near)
            << "step " << i << " row " << j / (a.out.size() / n_rows);
      const size_t cols = a.selected.size() / n_rows;
      for (size_t j = 0; j < a.selected.size(); ++j) {
        if (a.seen[j / cols] <= shape.select().most()) continue;
        ASSERT_EQ(std::bit_cast<int32_t>(a.selected[j]), std::bit_cast<int32_t>(b.selected[j]))
            << "step " << i << " row " << j / cols;
      }
    }
  }
  std::unique_ptr<Ops> device_, cpu_;
};

// Heads of several products, features that are no whole step, sequences of several lengths.
TEST_F(CudaSelect, TheSameAsTheCpuWhateverTheCache) {
  for (const KvDType dtype :
       {KvDType::kF32, KvDType::kF16, KvDType::kBF16, KvDType::kI8, KvDType::kF8}) {
    SCOPED_TRACE(static_cast<int>(dtype));
    SelectionShape shape;
    shape.dtype = dtype, shape.index_heads = 70, shape.index_dim = 24, shape.top_k = 12;
    shape.few_numbers = dtype == KvDType::kF8;
    const float near = dtype == KvDType::kI8 ? 0.05f : 3e-3f;
    compare(shape, {{40, 5, 290}, {1, 20, 1}, {1, 1, 3}}, {}, near);
  }
}

TEST_F(CudaSelect, ManyHeadsOfLatents) {
  SelectionShape shape;
  shape.heads = 40, shape.dim = 80, shape.value_dim = 48, shape.top_k = 300;
  compare(shape, {{310, 2}, {1, 320}, {2, 1}});
  shape.dtype = KvDType::kBF16, shape.top_k = 20;
  compare(shape, {{50, 2}, {1, 60}}, {}, 0.02f);
}

TEST_F(CudaSelect, BlocksOfTokensAndTheTail) {
  SelectionShape shape;
  shape.kv_heads = 2, shape.pool = 4, shape.top_k = 16, shape.weighed = false;
  compare(shape, {{70, 3}, {1, 30}, {1, 1}, {3, 17}});
  shape.dtype = KvDType::kI8;
  compare(shape, {{41, 30}, {1, 1}}, {}, 0.05f);
}

TEST_F(CudaSelect, WholeBlocksOfEachHead) {
  SelectionShape shape;
  shape.kv_heads = shape.index_heads = 2, shape.block = 5, shape.top_k = 15, shape.weighed = false;
  compare(shape, {{70, 3}, {1, 30}, {1, 1}});
  compare(
      shape, {{33, 20}, {6, 6}},
      {0b1, 0b11, 0b101, 0b1011, 0b10101, 0b100001, 0b1, 0b11, 0b101, 0b1011, 0b10101, 0b100001});
}

TEST_F(CudaSelect, TreesOfDrafts) {
  SelectionShape shape;
  shape.top_k = 24;
  const std::vector<uint64_t> tree = {0b1, 0b11, 0b101, 0b1011, 0b10101, 0b100001};
  std::vector<uint64_t> masks = tree;
  masks.insert(masks.end(), tree.begin(), tree.end());
  compare(shape, {{40, 22}, {6, 6}}, masks);
}

// A block of 1,024 threads selects, scores lie in memory beyond those that are kept.
TEST_F(CudaSelect, OfManyTokens) {
  SelectionShape shape;
  shape.index_heads = 1, shape.heads = 1, shape.dim = 16, shape.top_k = 700;
  static_cast<cuda::CudaOps&>(*device_).device().limit_shared_bytes(60 << 10);
  SelectionRun wanted(*cpu_, shape, 1, 17000), got(*device_, shape, 1, 17000);
  for (SelectionRun* run : {&wanted, &got}) run->store_only(true), run->step({16'990});
  for (SelectionRun* run : {&wanted, &got}) run->store_only(false);
  for (const int n : {1, 2}) {
    const Selected a = wanted.step({n}), b = got.step({n});
    for (size_t j = 0; j < a.selected.size(); ++j)
      ASSERT_EQ(std::bit_cast<int32_t>(a.selected[j]), std::bit_cast<int32_t>(b.selected[j]))
          << j / static_cast<size_t>(shape.top_k);
    for (size_t j = 0; j < a.out.size(); ++j) ASSERT_NEAR(a.out[j], b.out[j], 2e-3f);
  }
}

// Kernels of products and those of a thread for each token are near one another.
TEST_F(CudaSelect, ProductsAndTokensOneByOneAreNear) {
  SelectionShape shape;
  shape.heads = 20, shape.top_k = 280;
  auto& ops = static_cast<cuda::CudaOps&>(*device_);
  SelectionRun fast(ops, shape, 1, 400), plain(ops, shape, 1, 400);
  for (const int n : {300, 1, 40}) {
    ops.attention().sparse().flash(true);
    const Selected a = fast.step({n});
    ops.attention().sparse().flash(false);
    const Selected b = plain.step({n});
    for (size_t i = 0; i < a.out.size(); ++i) ASSERT_NEAR(a.out[i], b.out[i], 2e-5);
  }
}

}  // namespace
}  // namespace penstock
