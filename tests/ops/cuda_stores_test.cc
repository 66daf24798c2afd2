// Rotating and storing within attention (FlashPieces that stores) gives the bits of StoreKv and
// attention one after the other, in the cache too, with a kernel less.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "ops/cuda/cuda_ops.h"
#include "ops/ops_under_test.h"

#ifdef PENSTOCK_CUDA_EMULATION
#include "emulation/cuda/trouble.h"

namespace penstock::cuda {
namespace {

struct Shape {
  int n_heads = 4, n_kv_heads = 2, head_dim = 32;
  int n_rotated = 32, first = 0;  // features of a head; 0: none
  bool interleaved = false;
  KvDType dtype = KvDType::kF16;
  int window = 0;
  bool chunked = false, both_ways = false, drops_blocks = false;
  float softcap = 0.0f;
  bool sinks = false, slopes = false;
  bool two_kinds = false;  // the second sequence is rotated by other frequencies
};

struct Step {
  std::vector<int> counts;  // new tokens of each sequence
  std::vector<uint64_t> masks = {};
  bool in_one = true;   // rotating, storing and attention
  bool stored = false;  // of the layer before, which this one attends to
};

// Sequences in a cache of two layers: all that steps give, and what the cache has at the end.
class Run {
 public:
  Run(const Shape& shape, bool fuses, bool apart) : shape_(shape), fuses_(fuses) {
    ops_ = make_ops("cuda_emulated", {.n_threads = 1}).value();
    auto& device = static_cast<CudaOps&>(*ops_);
    device.attention().fuse_stores(fuses), device.take_apart(apart);
    CacheSpec spec;
    spec.layers.assign(1, {.n_kv_heads = shape.n_kv_heads,
                           .head_dim = shape.head_dim,
                           .window = shape.window,
                           .chunked = shape.chunked,
                           .both_ways = shape.both_ways});
    spec.dtype = shape.dtype;
    const int n_blocks[] = {kSeqs * kBlocks};
    cache_ = ops_->make_cache(spec, n_blocks).value();
    const auto vector = [&](size_t n, unsigned seed) {
      return ops_->pack_vector(random_floats(n, seed)).value();
    };
    sinks_ = vector(static_cast<size_t>(shape.n_heads), 5),
    slopes_ = vector(static_cast<size_t>(shape.n_heads), 6);
    std::vector<float> frequencies;
    for (int i = 0; 2 * i < shape.n_rotated; ++i)
      frequencies.push_back(std::pow(100.0f, -static_cast<float>(i) / 8));
    if (!frequencies.empty()) frequencies_ = ops_->pack_vector(frequencies).value();
    for (float& frequency : frequencies) frequency *= 0.375f;
    if (shape.two_kinds) long_frequencies_ = ops_->pack_vector(frequencies).value();
  }

  void step(const Step& step) {
    std::vector<int32_t> positions, slots, seq_offsets = {0}, lens, table_offsets = {0},
                                           first_positions;
    std::vector<BlockId> tables;
    for (int s = 0; s < kSeqs; ++s) {
      const int old = lens_[s];
      const auto block = [&](int i) { return s * kBlocks + (i * 5 + 3) % kBlocks; };
      lens_[s] += step.counts[static_cast<size_t>(s)];
      for (int i = old; i < lens_[s]; ++i) {
        const uint64_t mask = step.masks.empty() ? 0 : step.masks[positions.size()];
        positions.push_back(mask != 0 ? old + std::popcount(mask) - 1 : i);
        slots.push_back(block(i / 16) * 16 + i % 16);
      }
      seq_offsets.push_back(static_cast<int>(positions.size())), lens.push_back(lens_[s]);
      const int first = !shape_.drops_blocks || shape_.window == 0 ? 0
                        : shape_.chunked ? old / shape_.window * shape_.window
                                         : std::max(0, old + 1 - shape_.window);
      for (int i = first / 16; i < kBlocks; ++i)
        tables.push_back(BlockId(static_cast<uint32_t>(block(i))));
      table_offsets.push_back(static_cast<int>(tables.size())),
          first_positions.push_back(first / 16 * 16);
    }
    const std::vector<TokenId> tokens(positions.size());
    const KvView view = {slots, tables, table_offsets, first_positions};
    Batch batch = {tokens, positions, seq_offsets, lens, {&view, 1}, step.masks, {}};
    const int32_t kinds[kSeqs] = {0, 1, 0};
    if (shape_.two_kinds) batch.long_ropes = kinds;
    const int rows = ops_->begin_step(&batch).tokens, n = batch.n_tokens();
    const int q_cols = shape_.n_heads * shape_.head_dim,
              kv_cols = shape_.n_kv_heads * shape_.head_dim;
    const auto random = [&](int cols) {  // rows behind the batch stay as memory is
      const Tensor tensor = ops_->new_tensor(rows, cols);
      ops_->write_rows(random_floats(static_cast<size_t>(n) * cols, ++seed_),
                       tensor.row_range(0, n));
      return tensor;
    };
    const Tensor q = random(q_cols), k = random(kv_cols), v = random(kv_cols),
                 out = ops_->new_tensor(rows, q_cols);
    const RopeParams rope{.inv_freq = frequencies_.get(),
                          .scale = 1.25f,
                          .interleaved = shape_.interleaved,
                          .first = shape_.first,
                          .long_inv_freq = long_frequencies_.get()};
    const RopeParams* const rotates = frequencies_ ? &rope : nullptr;
    const AttentionParams params{0,
                                 shape_.n_heads,
                                 0.3f,
                                 shape_.softcap,
                                 shape_.sinks ? sinks_.get() : nullptr,
                                 shape_.slopes ? slopes_.get() : nullptr};
    if (step.stored) ops_->rope_and_store(Tensor(), k, v, rotates, *cache_, 0);
    fail_emulated_call(0, EmulatedCalls::kLaunches);
    ops_->store_and_attend(q, step.stored ? Tensor() : k, step.stored ? Tensor() : v, rotates,
                           *cache_, params, out);
    const auto n_launches = static_cast<int>(fail_emulated_call(0));
    if (static_cast<CudaOps&>(*ops_).device().emulated())  // a GPU does not count them
      launches_.push_back(n_launches + (fuses_ && step.in_one ? 1 : 0));
    const std::vector<float> values = read(*ops_, out).all;
    results_.insert(results_.end(), values.begin(), values.end());
  }

  const std::vector<float>& results() const { return results_; }
  // Of each step, and one more where there is one less.
  const std::vector<int>& launches() const { return launches_; }
  std::vector<std::byte> cached() const {
    std::vector<std::byte> all;
    for (uint32_t b = 0; b < kSeqs * kBlocks; ++b) {
      std::vector<std::byte> bytes(static_cast<size_t>(cache_->block_bytes(0)));
      cache_->read_block(0, BlockId(b), bytes);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }

 private:
  static constexpr int kSeqs = 3, kBlocks = 24;
  Shape shape_;
  bool fuses_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<Vector> sinks_, slopes_, frequencies_, long_frequencies_;
  int lens_[kSeqs] = {};
  unsigned seed_ = 0;
  std::vector<float> results_;
  std::vector<int> launches_;
};

void expect_same(const Shape& shape, const std::vector<Step>& steps, bool apart = true) {
  Run after(shape, false, apart), within(shape, true, apart);
  for (const Step& step : steps) after.step(step), within.step(step);
  EXPECT_EQ(after.results(), within.results());
  EXPECT_EQ(after.launches(), within.launches());
  EXPECT_TRUE(after.cached() == within.cached());
}

// Single tokens, chains and trees of drafts, of sequences of one piece, across the end of one, and
// of several.
const std::vector<Step> kSteps = {{{14, 250, 3}, {}, false},
                                  {{1, 1, 1}},
                                  {{4, 6, 1}},
                                  {{0, 8, 0}},
                                  {{4, 1, 2}, {0b1, 0b11, 0b101, 0b1011, 0, 0b1, 0b11}},
                                  {{1, 6, 0}, {0b1, 0b1, 0b11, 0b11, 0b1011, 0b101, 0b10101}},
                                  {{1, 12, 1}, {}, false},  // beside tokens that tiles take
                                  {{6, 6, 6}, {}, false},   // more than is worth it
                                  {{1, 1, 1}}};

TEST(CudaStores, WithinAttentionGivesTheBitsOfOneAfterTheOther) {
  for (const bool apart : {true, false}) {
    expect_same({}, kSteps, apart);
    expect_same(
        {.n_heads = 1, .n_kv_heads = 1, .head_dim = 128, .n_rotated = 128, .dtype = KvDType::kBF16},
        kSteps, apart);
    expect_same({.n_heads = 4, .n_kv_heads = 1, .head_dim = 240, .n_rotated = 60, .first = 20},
                kSteps, apart);
  }
}

std::vector<float> within_attention(const Shape& shape, const std::vector<Step>& steps) {
  Run run(shape, true, true);
  for (const Step& step : steps) run.step(step);
  return run.results();
}

// Those of the second kind are not rotated as the others.
TEST(CudaStores, SequencesOfTwoKinds) {
  for (const bool apart : {true, false}) expect_same({.two_kinds = true}, kSteps, apart);
  EXPECT_NE(within_attention({}, {{{1, 1, 1}}, {{1, 1, 1}}}),
            within_attention({.two_kinds = true}, {{{1, 1, 1}}, {{1, 1, 1}}}));
}

// Several blocks have the heads of one kv head, of which one stores.
TEST(CudaStores, OneBlockOfAKvHeadStores) {
  expect_same({.n_heads = 36, .n_kv_heads = 2, .head_dim = 16, .n_rotated = 8, .interleaved = true},
              kSteps);
}

TEST(CudaStores, WhateverATokenSees) {
  const Shape any{
      .n_heads = 3, .n_kv_heads = 1, .head_dim = 48, .n_rotated = 48, .dtype = KvDType::kBF16};
  Shape capped = any, sloped = any, near = any, behind = any, chunked = any, around = any;
  capped.softcap = 2.0f, capped.sinks = true;
  sloped.slopes = true, sloped.n_rotated = 0;
  near.window = 3, near.sinks = true;  // less than a chain of drafts
  behind.window = 40, behind.drops_blocks = true;
  chunked.window = 32, chunked.chunked = true;
  around.both_ways = true, around.window = 5;
  for (const Shape& shape : {capped, sloped, near, behind, chunked, around})
    expect_same(shape, kSteps);
}

// Layers that attend to what another one has stored: queries alone are rotated.
TEST(CudaStores, LayersWithoutKeysRotateTheirQueries) {
  std::vector<Step> steps = kSteps;
  for (Step& step : steps) step.stored = true;
  expect_same({}, steps);
}

// Caches of other types, batch-invariant runs and queries that nothing is done to have no such
// kernel.
TEST(CudaStores, WhatDoesNotFitIsOneAfterTheOther) {
  std::vector<Step> steps = kSteps;
  for (Step& step : steps) step.in_one = false;
  for (const KvDType dtype : {KvDType::kF32, KvDType::kI8, KvDType::kF8, KvDType::kI4})
    expect_same({.dtype = dtype}, steps);
  expect_same({.head_dim = 24, .n_rotated = 24}, steps);
  for (Step& step : steps) step.stored = true;
  expect_same({.n_rotated = 0}, steps);
}

}  // namespace
}  // namespace penstock::cuda
#endif
