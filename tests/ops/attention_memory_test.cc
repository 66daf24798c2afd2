// Memory of attention over a long prompt. The kernels are stand-ins: they have no memory but what
// the planner gives them, so it is measured without multiplying anything, alike on every machine.
// And what bounds that memory in batch-invariant mode changes no bit of a result.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/kernel_table.h"
#include "ops/cpu/attention.h"

namespace penstock {
namespace {

constexpr int kTokens = 32'768, kHeads = 32, kKvHeads = 8, kHeadDim = 64;

std::atomic<int64_t> n_finished_rows = 0;
std::atomic<int64_t> n_seen_tokens = 0;  // of all rows

void attend(const AttentionTile& tile, const AttentionState& state) {
  for (int r = 0; r < tile.n_rows; ++r) {
    state.sum[r] = 1;
    n_seen_tokens += std::max(
        0, std::min(tile.rows[r].end, tile.end) - std::max(tile.rows[r].first, tile.begin));
  }
  // The ends of what a real kernel may write.
  tile.scratch[tile_scratch_floats(tile.layout->padded_dim) - 1] = 0;
  state.out[int64_t{tile.n_rows} * tile.layout->padded_dim - 1] = 0;
}
void merge(const AttentionState&, const AttentionState&, int, int) {}
void finish_row(const float*, float, int, float*) { ++n_finished_rows; }

void expect_bounded_memory(bool batch_invariant) {
  CacheSpec spec;
  spec.layers.assign(1, KvLayerSpec{kKvHeads, kHeadDim, 0, 0});
  const int one_block[] = {1};
  const auto cache = std::move(CpuKvCache::make(spec, one_block).value());
  AttentionKernels kernels = *select_kernels("scalar").value()->attention;
  std::fill(std::begin(kernels.attend), std::end(kernels.attend), attend);
  kernels.merge = merge;
  kernels.scale_row = finish_row;

  const std::vector<TokenId> tokens(kTokens);
  std::vector<int32_t> positions(kTokens);
  std::iota(positions.begin(), positions.end(), 0);
  const int32_t seq_offsets[] = {0, kTokens}, seq_lens[] = {kTokens};
  // nothing is read: all the same block
  const std::vector<BlockId> table(kTokens / spec.block_size);
  const int32_t table_offsets[] = {0, static_cast<int32_t>(table.size())};
  const KvView view = {positions, table, table_offsets, {}};
  const Batch batch = {tokens, positions, seq_offsets, seq_lens, {&view, 1}, {}, {}};
  std::vector<float> row(kHeads * kHeadDim);
  const Tensor same_row = {row.data(), DType::kF32, kTokens, kHeads * kHeadDim, 0};

  ThreadPool pool(2);
  Arena scratch;
  n_finished_rows = n_seen_tokens = 0;
  cpu_attend({pool, scratch, kernels, batch_invariant}, same_row, batch, *cache,
             {0, kHeads, 0.125f, 0.0f}, same_row);
  EXPECT_EQ(n_finished_rows, int64_t{kTokens} * kHeads);
  EXPECT_EQ(n_seen_tokens, int64_t{kTokens} * (kTokens + 1) / 2 * kHeads);
  EXPECT_GT(scratch.capacity(), 0u);
  EXPECT_LE(scratch.capacity(), size_t{64} << 20);
  testing::Test::RecordProperty("scratch_bytes", std::to_string(scratch.capacity()));
}

TEST(AttentionMemory, PrefillOf32768TokensOfThe1BShape) { expect_bounded_memory(false); }
TEST(AttentionMemory, TheSameInBatchInvariantMode) { expect_bounded_memory(true); }

// The last 5 tokens of 9,000, of which the first block's values repeat.
std::vector<float> attend_long(const AttentionKernels& kernels, int n_threads,
                               int64_t most_state_bytes) {
  constexpr int kLen = 9'000, kNew = 5, kSmallHeads = 4, kDim = 32;
  CacheSpec spec;
  spec.dtype = KvDType::kF32;
  spec.layers.assign(1, KvLayerSpec{2, kDim, 0, 0});
  const int n_blocks[] = {97};
  const auto cache = std::move(CpuKvCache::make(spec, n_blocks).value());
  std::mt19937 random(3);
  std::vector<float> k(kDim), v(kDim), q(size_t{kNew} * kSmallHeads * kDim), out(q.size());
  const auto fill = [&](std::vector<float>& x) {
    for (float& value : x) value = static_cast<float>(random() % 2001) / 500.0f - 2.0f;
  };
  for (int slot = 0; slot < n_blocks[0] * spec.block_size; ++slot) {
    for (int head = 0; head < 2; ++head) {
      fill(k), fill(v);
      kernels.store[static_cast<int>(KvFormat::kF32)](cache->layout(0), k.data(), v.data(),
                                                      cache->unit_of_slot(0, head, slot),
                                                      slot % kUnitTokens);
    }
  }
  fill(q);
  std::vector<BlockId> table((kLen + spec.block_size - 1) / spec.block_size);
  for (size_t i = 0; i < table.size(); ++i)
    table[i] = BlockId{static_cast<uint32_t>(i * 31 % n_blocks[0])};
  const std::vector<TokenId> tokens(kNew);
  const std::vector<int32_t> positions = {kLen - 5, kLen - 4, kLen - 3, kLen - 2, kLen - 1};
  const int32_t seq_offsets[] = {0, kNew}, seq_lens[] = {kLen};
  const int32_t table_offsets[] = {0, static_cast<int32_t>(table.size())};
  const KvView view = {positions, table, table_offsets, {}};
  const Batch batch = {tokens, positions, seq_offsets, seq_lens, {&view, 1}, {}, {}};
  constexpr int kCols = kSmallHeads * kDim;
  ThreadPool pool(n_threads);
  Arena scratch;
  cpu_attend({pool, scratch, kernels, true, most_state_bytes},
             {q.data(), DType::kF32, kNew, kCols, kCols}, batch, *cache,
             {0, kSmallHeads, 0.2f, 0.0f}, {out.data(), DType::kF32, kNew, kCols, kCols});
  return out;
}

TEST(AttentionMemory, SplitsInOrderGiveTheSameBits) {
  for (const KernelTable& table : available_kernels()) {
    const std::vector<float> expected = attend_long(*table.attention, 3, int64_t{1} << 40);
    EXPECT_EQ(expected, attend_long(*table.attention, 1, 0)) << table.name;
    EXPECT_EQ(expected, attend_long(*table.attention, 3, 0)) << table.name;
    // Not because all are alike:
    EXPECT_NE(expected[0], expected[1]);
    EXPECT_GT(*std::max_element(expected.begin(), expected.end()), 0.0f);
  }
}

}  // namespace
}  // namespace penstock
