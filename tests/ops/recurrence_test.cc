// Operations with a state, of every backend, against plain loops over whole sequences.
#include <algorithm>
#include <cmath>

#include "ops/ops_under_test.h"

namespace penstock {
namespace {

class Recurrence : public ::testing::TestWithParam<OpsUnderTest> {};

struct Sequence {
  std::vector<float> x;  // [length, channels]
  BlockId state{};
  int done = 0;
};

// out[t][c] = bias[c] + sum over taps of weight[k][c] * x[t - taps + 1 + k][c].
float expected(const Sequence& sequence, int t, int c, int channels, const std::vector<float>& weight,
               const std::vector<float>& bias) {
  double sum = bias.empty() ? 0.0 : bias[c];
  const int taps = static_cast<int>(weight.size()) / channels;
  for (int k = 0; k < taps; ++k) {
    const int from = t - taps + 1 + k;
    if (from >= 0) sum += static_cast<double>(weight[k * channels + c]) * sequence.x[from * channels + c];
  }
  return static_cast<float>(sum);
}

void check_conv(Ops& ops, int channels, int taps, bool with_bias) {
  constexpr int kOffset = 5, kLayer = 1, kLength = 23;
  CacheSpec spec;
  spec.layers.assign(2, KvLayerSpec{1, 16, 0, 0});
  spec.state_values = {3, kOffset + int64_t{taps - 1} * channels};
  const int n_blocks[] = {8, 4};
  const auto cache = ops.make_cache(spec, n_blocks).value();
  const std::vector<float> weight = random_floats(static_cast<size_t>(taps) * channels, 3);
  const std::vector<float> bias = with_bias ? random_floats(channels, 4) : std::vector<float>();
  const auto packed = ops.pack_vector(weight).value();
  const auto packed_bias = with_bias ? ops.pack_vector(bias).value() : nullptr;
  std::vector<Sequence> sequences;
  for (unsigned s = 0; s < 3; ++s) {
    sequences.push_back({random_floats(static_cast<size_t>(kLength) * channels, 10 + s), BlockId(3 - s)});
  }
  // States of other sequences lie in the blocks before.
  for (int b = 0; b < 4; ++b) {
    const std::vector<float> old(spec.state_bytes() / sizeof(float), 1e6f);
    cache->write_block(1, BlockId(b), std::as_bytes(std::span(old)));
  }
  const std::vector<std::vector<int>> steps = {{1, 0, 4}, {1, 9, 0}, {7, 1, 1}, {0, 3, 1}, {14, 10, 17}};
  for (const std::vector<int>& counts : steps) {
    std::vector<float> x;
    std::vector<std::pair<int, int>> rows;  // sequence, token
    std::vector<int32_t> positions, seq_offsets = {0}, lens, table_offsets = {0};
    std::vector<BlockId> tables;
    for (size_t s = 0; s < sequences.size(); ++s) {
      Sequence& sequence = sequences[s];
      if (counts[s] == 0) continue;
      for (int i = 0; i < counts[s]; ++i, ++sequence.done) {
        rows.emplace_back(static_cast<int>(s), sequence.done);
        positions.push_back(sequence.done);
        const auto row = sequence.x.begin() + static_cast<ptrdiff_t>(sequence.done) * channels;
        x.insert(x.end(), row, row + channels);
      }
      seq_offsets.push_back(static_cast<int32_t>(rows.size()));
      lens.push_back(sequence.done);
      tables.push_back(sequence.state);
      table_offsets.push_back(static_cast<int32_t>(tables.size()));
    }
    const std::vector<TokenId> tokens(rows.size(), 0);
    const KvView views[] = {{}, {{}, tables, table_offsets, {}}};
    const Batch batch{tokens, positions, seq_offsets, lens, views, {}, {}};
    const StepShape shape = ops.begin_step(&batch);
    x.resize(static_cast<size_t>(shape.tokens) * channels);
    const Tensor wide = ops.new_tensor(shape.tokens, 3 * channels);  // its columns are not contiguous
    const Tensor in = wide.columns(channels, channels);
    ops.copy(tensor_of(ops, x, shape.tokens, channels), in);
    const Tensor out = ops.new_tensor(shape.tokens, channels);
    ops.causal_conv(in, {packed.get(), packed_bias.get(), taps, kLayer, kOffset}, *cache, out);
    ops.wait(ops.submit());
    const Values got = read(ops, out);
    for (size_t r = 0; r < rows.size(); ++r) {
      for (int c = 0; c < channels; ++c) {
        const float want = expected(sequences[rows[r].first], rows[r].second, c, channels, weight, bias);
        ASSERT_NEAR(got.at(static_cast<int>(r), c), want, 1e-5f * (1 + std::fabs(want)))
            << "sequence " << rows[r].first << " token " << rows[r].second << " channel " << c;
      }
    }
  }
}

TEST_P(Recurrence, ConvolutionsGoOnWhereTheStepBeforeEnded) {
  const auto ops = GetParam().make();
  check_conv(*ops, 24, 3, false);
  check_conv(*ops, 600, 4, true);  // more channels than are taken together
  check_conv(*ops, 7, 1, true);    // without a tail
  check_conv(*ops, 5, 9, false);   // a tail longer than most steps
}

TEST_P(Recurrence, StatesAreCopiedFromBlockToBlock) {
  const auto ops = GetParam().make();
  CacheSpec spec;
  spec.layers.assign(2, KvLayerSpec{1, 16, 0, 0});
  spec.state_values = {3, 6};
  const int n_blocks[] = {1, 3};
  const auto cache = ops->make_cache(spec, n_blocks).value();
  ASSERT_EQ(cache->block_bytes(1), 36);
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  cache->write_block(1, BlockId(0), std::as_bytes(std::span(values)));
  const int32_t from[] = {0, 2}, to[] = {2, 1};
  ops->begin_step(nullptr);
  ops->move_kv(*cache, 1, from, to);
  ops->wait(ops->submit());
  for (const int block : {1, 2}) {
    std::vector<float> got(values.size());
    cache->read_block(1, BlockId(block), std::as_writable_bytes(std::span(got)));
    EXPECT_EQ(got, values) << block;
  }
}

TEST_P(Recurrence, MultiplyIsByElement) {
  const auto ops = GetParam().make();
  ops->begin_step(nullptr);
  const std::vector<float> a = random_floats(3 * 70, 1), b = random_floats(3 * 70, 2);
  const Tensor x = tensor_of(*ops, a, 3, 70);
  ops->multiply(x, tensor_of(*ops, b, 3, 70));
  const Values got = read(*ops, x);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(got.all[i], a[i] * b[i]);
}

INSTANTIATE_TEST_SUITE_P(Backends, Recurrence, ::testing::ValuesIn(ops_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock
