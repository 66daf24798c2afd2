// Memory of attention over a long prompt. The kernels are stand-ins: they have no memory but what the planner
// gives them, so it is measured without multiplying anything, alike on every machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <vector>

#include "ops/cpu/attention.h"

namespace penstock {
namespace {

constexpr int kTokens = 32'768, kHeads = 32, kKvHeads = 8, kHeadDim = 64;

std::atomic<int64_t> n_finished_rows = 0;
std::atomic<int64_t> n_seen_tokens = 0;  // of all rows

void attend(const AttentionTile& tile, const AttentionState& state) {
  for (int r = 0; r < tile.n_rows; ++r) {
    state.sum[r] = 1;
    n_seen_tokens +=
        std::max(0, std::min(tile.rows[r].end, tile.end) - std::max(tile.rows[r].first, tile.begin));
  }
  // The ends of what a real kernel may write.
  tile.scratch[tile_scratch_floats(tile.layout->padded_dim) - 1] = 0;
  state.out[int64_t{tile.n_rows} * tile.layout->padded_dim - 1] = 0;
}
void merge(const AttentionState&, const AttentionState&, int, int) {}
void finish_row(const float*, float, int, float*) { ++n_finished_rows; }

TEST(AttentionMemory, PrefillOf32768TokensOfThe1BShape) {
  CacheSpec spec;
  spec.layers.assign(1, KvLayerSpec{kKvHeads, kHeadDim, 0, 0});
  const int one_block[] = {1};
  const auto cache = std::move(CpuKvCache::make(spec, one_block).value());
  AttentionKernels kernels = kScalarAttentionKernels;
  std::fill(std::begin(kernels.attend), std::end(kernels.attend), attend);
  kernels.merge = merge;
  kernels.scale_row = finish_row;

  const std::vector<TokenId> tokens(kTokens);
  std::vector<int32_t> positions(kTokens);
  std::iota(positions.begin(), positions.end(), 0);
  const int32_t seq_offsets[] = {0, kTokens}, seq_lens[] = {kTokens};
  const std::vector<BlockId> table(kTokens / spec.block_size);  // nothing is read: all the same block
  const int32_t table_offsets[] = {0, static_cast<int32_t>(table.size())};
  const KvView view = {positions, table, table_offsets, {}};
  const Batch batch = {tokens, positions, seq_offsets, seq_lens, {&view, 1}, {}, {}};
  std::vector<float> row(kHeads * kHeadDim);
  const Tensor same_row = {row.data(), DType::kF32, kTokens, kHeads * kHeadDim, 0};

  ThreadPool pool(2);
  Arena scratch;
  n_finished_rows = n_seen_tokens = 0;
  cpu_attend({pool, scratch, kernels}, same_row, batch, *cache, {0, kHeads, 0.125f, 0.0f}, same_row);
  EXPECT_EQ(n_finished_rows, int64_t{kTokens} * kHeads);
  EXPECT_EQ(n_seen_tokens, int64_t{kTokens} * (kTokens + 1) / 2 * kHeads);
  EXPECT_GT(scratch.capacity(), 0u);
  EXPECT_LE(scratch.capacity(), size_t{64} << 20);
  RecordProperty("scratch_bytes", std::to_string(scratch.capacity()));
}

}  // namespace
}  // namespace penstock
