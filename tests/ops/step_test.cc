// A step of a decoder layer by layer: rope against its definition, and no allocation once warm.
#include <malloc.h>

#include <cmath>
#include <numeric>

#include "base/memory.h"
#include "ops/ops_under_test.h"
#include "support/counted_memory.h"

extern "C" void* aligned_alloc(size_t alignment, size_t size) {
  penstock::n_allocations.fetch_add(1, std::memory_order_relaxed);
  return memalign(alignment, size);
}

namespace penstock {
namespace {

constexpr int kDim = 64, kHeads = 4, kKvHeads = 2, kHeadDim = 16, kFfn = 128, kLayers = 2;

struct Layer {
  std::unique_ptr<Weight> q, k, v, o, gate, up, down;
};

std::unique_ptr<Weight> random_weight(Ops& ops, int rows, int cols, unsigned seed) {
  const std::vector<float> values = random_floats(static_cast<size_t>(rows) * cols, seed, 0.1f);
  const auto bytes = std::as_bytes(std::span(values));
  return std::move(ops.pack({QuantType::kF32, rows, cols, bytes}).value());
}

class StepTest : public testing::TestWithParam<OpsUnderTest> {
 protected:
  void SetUp() override {
    ops_ = GetParam().make();
    unsigned seed = 1;
    const auto weight = [&](int rows, int cols) {
      return random_weight(*ops_, rows, cols, ++seed);
    };
    for (Layer& layer : layers_) {
      layer = {weight(kDim, kDim),
               weight(kKvHeads * kHeadDim, kDim),
               weight(kKvHeads * kHeadDim, kDim),
               weight(kDim, kDim),
               weight(kFfn, kDim),
               weight(kFfn, kDim),
               weight(kDim, kFfn)};
    }
    table_ = weight(100, kDim);
    CacheSpec spec;
    spec.layers.assign(kLayers, {kKvHeads, kHeadDim, 0, 0});
    const int n_blocks[] = {32};
    cache_ = std::move(ops_->make_cache(spec, n_blocks).value());
    blocks_.resize(32);
    for (uint32_t i = 0; i < 32; ++i) blocks_[i] = BlockId{i};
    for (int i = 0; i < 8; ++i) inv_freq_.push_back(std::pow(100.0f, -static_cast<float>(i) / 8));
    packed_freq_ = ops_->pack_vector(inv_freq_).value();
    numbers_.resize(512);
    std::iota(numbers_.begin(), numbers_.end(), 0);
    tokens_.assign(512, 7);
  }

  // Computes tokens [first, first + n) of the only sequence.
  Tensor step(int first, int n) {
    const auto range = std::span(numbers_).subspan(first, n);
    const int32_t offsets[] = {0, n}, lens[] = {first + n}, table_offsets[] = {0, 32};
    const KvView view = {range, blocks_, table_offsets, {}};
    const Batch batch = {std::span(tokens_).first(n), range, offsets, lens, {&view, 1}, {}, {}};
    ops_->begin_step(&batch);
    const Tensor x = ops_->new_tensor(n, kDim), h = ops_->new_tensor(n, kDim);
    ops_->embed_tokens(*table_, 1.0f, x);
    const RopeParams rope = {packed_freq_.get(), 1.0f, false};
    for (int i = 0; i < kLayers; ++i) {
      const Layer& layer = layers_[i];
      ops_->norm(x, {}, h);
      const Tensor q = ops_->new_tensor(n, kDim), k = ops_->new_tensor(n, 32),
                   v = ops_->new_tensor(n, 32);
      const LinearTarget qkv[] = {
          {layer.q.get(), nullptr, q}, {layer.k.get(), nullptr, k}, {layer.v.get(), nullptr, v}};
      ops_->linear(h, qkv);
      ops_->rope_and_store(q, k, v, &rope, *cache_, i);
      ops_->attend(q, *cache_, {i, kHeads, 0.25f, 0.0f}, h);
      const Tensor delta = ops_->new_tensor(n, kDim);
      const LinearTarget o[] = {{layer.o.get(), nullptr, delta}};
      ops_->linear(h, o);
      ops_->add_norm(x, delta, 1.0f, {}, h);
      const Tensor gate = ops_->new_tensor(n, kFfn), up = ops_->new_tensor(n, kFfn);
      const LinearTarget gate_up[] = {{layer.gate.get(), nullptr, gate},
                                      {layer.up.get(), nullptr, up}};
      ops_->linear(h, gate_up);
      ops_->activate_mul(gate, up, Activation::kSilu, gate);
      const LinearTarget down[] = {{layer.down.get(), nullptr, delta}};
      ops_->linear(gate, down);
      ops_->add(x, delta, 1.0f);
    }
    return x;
  }

  std::unique_ptr<Ops> ops_;
  Layer layers_[kLayers];
  std::unique_ptr<Weight> table_;
  std::unique_ptr<KvCache> cache_;
  std::vector<BlockId> blocks_;
  std::vector<float> inv_freq_;
  std::unique_ptr<Vector> packed_freq_;
  std::vector<int32_t> numbers_;
  std::vector<TokenId> tokens_;
};

TEST_P(StepTest, AllocatesNothingOnceWarm) {
  if (GetParam().backend == "cuda_emulated")
    GTEST_SKIP() << "threads of the emulation get their stacks when it first lets them wait";
  if (GetParam().backend == "cuda") GTEST_SKIP() << "the driver allocates as it likes";
  for (int i = 0; i < 2; ++i) {  // the second round merges the arenas' chunks
    step(0, 300);
    step(0, 300);
    step(300, 1);
  }
  step(0, 1);
  const int64_t before = n_allocations.load();
  step(0, 300);
  for (int i = 300; i < 340; ++i) step(i, 1);
  step(340, 60);
  EXPECT_EQ(n_allocations.load() - before, 0);
}

TEST_P(StepTest, ChunksAndDecodeGiveWhatOnePrefillGives) {
  const Tensor whole = step(0, 120);
  const std::vector<float> expected = read(*ops_, whole.row_range(119, 1)).all;
  step(0, 50);
  step(50, 69);
  const std::vector<float> last = read(*ops_, step(119, 1)).all;
  for (int i = 0; i < kDim; ++i) {
    if (GetParam().config.batch_invariant) {
      ASSERT_EQ(last[i], expected[i]);
    } else {
      ASSERT_NEAR(last[i], expected[i], 0.05f * (1 + std::fabs(expected[i])));
    }
  }
}

TEST_P(StepTest, RopeRotatesByPositionTimesFrequency) {
  const std::vector<float> values = random_floats(2 * kDim, 5);
  for (const bool interleaved : {false, true}) {
    const int32_t positions[] = {3, 250}, slots[] = {0, 1}, offsets[] = {0, 2}, lens[] = {2},
                  table_offsets[] = {0, 32};
    const KvView view = {slots, blocks_, table_offsets, {}};
    const Batch batch = {std::span(tokens_).first(2), positions, offsets, lens, {&view, 1}, {}, {}};
    ops_->begin_step(&batch);
    const std::vector<float> zeros(64);
    const Tensor q = tensor_of(*ops_, values, 2, kDim), k = tensor_of(*ops_, zeros, 2, 32),
                 v = tensor_of(*ops_, zeros, 2, 32);
    const RopeParams rope = {packed_freq_.get(), 1.5f, interleaved};
    ops_->rope_and_store(q, k, v, &rope, *cache_, 0);
    const Values rotated = read(*ops_, q);
    for (int t = 0; t < 2; ++t) {
      for (int h = 0; h < kHeads; ++h) {
        for (int i = 0; i < 8; ++i) {
          const int a = h * 16 + (interleaved ? 2 * i : i),
                    b = h * 16 + (interleaved ? 2 * i + 1 : i + 8);
          const double angle = double{static_cast<float>(positions[t]) * inv_freq_[i]};
          const double x = values[t * kDim + a], y = values[t * kDim + b];
          EXPECT_NEAR(rotated.at(t, a), 1.5 * (x * std::cos(angle) - y * std::sin(angle)), 1e-5);
          EXPECT_NEAR(rotated.at(t, b), 1.5 * (x * std::sin(angle) + y * std::cos(angle)), 1e-5);
        }
      }
    }
  }
}

// Sequences of two kinds beside each other, each by its own frequencies and as if it were alone.
TEST_P(StepTest, RopeHasTwoKindsOfSequences) {
  std::vector<float> long_freq = inv_freq_;
  for (float& frequency : long_freq) frequency *= 0.375f;
  const auto packed_long = ops_->pack_vector(long_freq).value();
  RopeParams rope = {packed_freq_.get(), 1.5f, false};
  const std::vector<float> values = random_floats(4 * kDim, 5), zeros(4 * 32);
  // Rotated queries of the tokens [first, end) of sequences of 1, 2 and 1 tokens.
  const auto rotated = [&](std::span<const int32_t> offsets, std::span<const int32_t> kinds,
                           size_t first) {
    const auto n = static_cast<size_t>(offsets.back()), n_seqs = offsets.size() - 1;
    const int32_t positions[] = {3, 250, 251, 17}, slots[] = {0, 16, 17, 32};
    const std::vector<int32_t> lens(n_seqs, 1), tables(n_seqs + 1, 0);
    const KvView view = {std::span(slots).first(n), blocks_, tables, {}};
    const Batch batch{.tokens = std::span(tokens_).first(n),
                      .positions = std::span(positions).subspan(first, n),
                      .seq_offsets = offsets,
                      .seq_lens = lens,
                      .kv = {&view, 1},
                      .long_ropes = kinds};
    ops_->begin_step(&batch);
    const int rows = static_cast<int>(n);
    const Tensor q = tensor_of(*ops_,
                               {values.begin() + static_cast<ptrdiff_t>(first * kDim),
                                values.begin() + static_cast<ptrdiff_t>((first + n) * kDim)},
                               rows, kDim);
    const Tensor k = tensor_of(*ops_, {zeros.begin(), zeros.begin() + 32 * rows}, rows, 32),
                 v = tensor_of(*ops_, {zeros.begin(), zeros.begin() + 32 * rows}, rows, 32);
    ops_->rope_and_store(q, k, v, &rope, *cache_, 0);
    return read(*ops_, q.row_range(0, rows)).all;
  };
  const int32_t offsets[] = {0, 1, 3, 4}, kinds[] = {0, 1, 0}, one[] = {0, 1}, two[] = {0, 2},
                is_long[] = {1};
  const std::vector<float> unmarked = rotated(offsets, kinds, 0);
  rope.long_inv_freq = packed_long.get();
  const std::vector<float> mixed = rotated(offsets, kinds, 0);
  std::vector<float> alone = rotated(one, {}, 0);
  for (const float value : rotated(two, is_long, 1)) alone.push_back(value);
  for (const float value : rotated(one, {}, 3)) alone.push_back(value);
  EXPECT_EQ(mixed, alone);
  EXPECT_NE(mixed, unmarked);
  rope = {packed_long.get(), 1.5f, false};
  const std::vector<float> all_long = rotated(offsets, {}, 0);
  for (size_t i = 0; i < mixed.size(); ++i)
    ASSERT_EQ(mixed[i], i / kDim == 1 || i / kDim == 2 ? all_long[i] : unmarked[i]) << i;
}

// Each pair turns by its axis; a token whose axes agree is rotated as by its position.
TEST_P(StepTest, RopeTurnsPairsByTheirAxes) {
  const std::vector<float> axes = {0, 1, 2, 0, 1, 2, 2, 1};
  const auto packed_axes = ops_->pack_vector(axes).value();
  const RopeParams plain = {packed_freq_.get(), 1.5f, false};
  RopeParams by_axis = plain;
  by_axis.axes = packed_axes.get();
  const std::vector<float> values = random_floats(2 * kDim, 5), zeros(64);
  const auto rotated = [&](const RopeParams& rope, std::array<int32_t, 2> positions,
                           std::span<const AxisPosition> places) {
    const int32_t slots[] = {0, 16}, offsets[] = {0, 1, 2}, lens[] = {1, 1}, tables[] = {0, 0, 0};
    const KvView view = {slots, blocks_, tables, {}};
    const Batch batch{.tokens = std::span(tokens_).first(2),
                      .positions = positions,
                      .seq_offsets = offsets,
                      .seq_lens = lens,
                      .kv = {&view, 1},
                      .axis_positions = places};
    ops_->begin_step(&batch);
    const Tensor q = tensor_of(*ops_, values, 2, kDim), k = tensor_of(*ops_, zeros, 2, 32),
                 v = tensor_of(*ops_, zeros, 2, 32);
    ops_->rope_and_store(q, k, v, &rope, *cache_, 0);
    return read(*ops_, q);
  };
  const AxisPosition places[] = {{3, 70, 9}, {251, 251, 251}};
  const Values got = rotated(by_axis, {77, 251}, places);
  const Values by_position = rotated(plain, {77, 251}, {});
  EXPECT_EQ(rotated(by_axis, {77, 251}, {}).all, by_position.all);
  for (size_t axis = 0; axis < 3; ++axis) {
    const Values of_axis = rotated(plain, {places[0][axis], 251}, {});
    for (int i = 0; i < 2 * kDim; ++i) {
      const bool turned = i >= kDim || axes[static_cast<size_t>(i % 8)] == static_cast<float>(axis);
      EXPECT_EQ(got.all[static_cast<size_t>(i)] == of_axis.all[static_cast<size_t>(i)], turned)
          << i;
    }
  }
  EXPECT_NE(got.all, by_position.all);
}

TEST_P(StepTest, GivenRowsReplaceEmbeddingsAndAreAdded) {
  constexpr int kRows = 5;
  const std::vector<float> first = random_floats(2 * 2 * kDim, 1),
                           second = random_floats(2 * kDim, 2);
  // two levels: rows 1 and 2 of the step, and row 4
  const GivenRows given[] = {{1, 2, first.data(), 2 * kDim}, {4, 1, second.data(), kDim}};
  Batch batch{.tokens = std::span(tokens_).first(kRows),
              .positions = std::span(numbers_).first(kRows)};
  EXPECT_FALSE(ops_->begin_step(&batch).given);
  batch.given = given, batch.given_levels = 2, batch.given_dim = kDim;
  EXPECT_TRUE(ops_->begin_step(&batch).given);
  const std::vector<float> before = random_floats(kRows * kDim, 3);
  const Tensor x = tensor_of(*ops_, before, kRows, kDim);
  const auto row_of = [&](int row) {
    return row == 4 ? second.data() : row == 1 || row == 2 ? &first[(row - 1) * kDim] : nullptr;
  };
  ops_->put_given(x);
  const Values put = read(*ops_, x);
  ops_->add_given(1, x);
  const Values added = read(*ops_, x);
  for (int row = 0; row < kRows; ++row) {
    const float* const from = row_of(row);
    const int64_t level = row == 4 ? kDim : 2 * kDim;
    for (int i = 0; i < kDim; ++i) {
      const float begun = from != nullptr ? from[i] : before[static_cast<size_t>(row * kDim + i)];
      EXPECT_EQ(put.at(row, i), begun);
      EXPECT_EQ(added.at(row, i), begun + (from != nullptr ? from[level + i] : 0.0f));
    }
  }
}

TEST_P(StepTest, GatherOutputs) {
  const int32_t rows[] = {0, 1, 4};
  const Batch batch{.output_rows = rows};
  EXPECT_EQ(ops_->begin_step(&batch).outputs, 3);
  const Tensor x = tensor_of(*ops_, random_floats(5 * kDim, 1), 5, kDim),
               out = ops_->new_tensor(3, kDim);
  ops_->gather_outputs(x, out);
  const Values from = read(*ops_, x), got = read(*ops_, out);
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(std::equal(got.row(i), got.row(i) + kDim, from.row(rows[i])));
}

TEST(MakeOps, NamesAreCheckedAndTheCacheKnowsItsLimits) {
  EXPECT_FALSE(make_ops("abacus", {}).has_value());
  auto ops = make_ops("", {.n_threads = 1});
  ASSERT_TRUE(ops.has_value());
  CacheSpec spec;
  spec.layers.assign(2, {8, 128, 0, 0});
  const int huge[] = {1 << 30}, some[] = {4};
  const auto too_big = (*ops)->make_cache(spec, huge);
  ASSERT_FALSE(too_big.has_value());
  EXPECT_EQ(too_big.error().code, ErrorCode::kResourceExhausted);
  // What a cache was promised nobody else gets, though it is not touched yet.
  const int64_t promised = promised_memory(), free = (*ops)->memory().free;
  const int many[] = {4096};
  const auto cache = (*ops)->make_cache(spec, many).value();
  EXPECT_GT(promised_memory() - promised, 4096 * spec.block_bytes(0) * 9 / 10);
  EXPECT_GT(free, 0);
  EXPECT_LE(free, (*ops)->memory().total);
  EXPECT_TRUE((*ops)->computes_here());
  spec.block_size = 5;
  EXPECT_FALSE((*ops)->make_cache(spec, some).has_value());
}

INSTANTIATE_TEST_SUITE_P(Backends, StepTest, testing::ValuesIn(ops_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock
