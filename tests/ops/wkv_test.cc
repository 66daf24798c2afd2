// RWKV's recurrence and columns that are added, of every CPU, against plain loops over whole sequences.
#include <algorithm>
#include <cmath>

#include "ops/ops_under_test.h"

namespace penstock {
namespace {

constexpr int kHeads = 3, kDim = 5, kWidth = kHeads * kDim, kLength = 21, kOffset = 4, kLayer = 1;

// Inputs of one sequence, [kLength, kWidth] each, and what is expected of them.
struct Sequence {
  std::vector<float> r, w, k, v, a, b, out, bonus;
  BlockId state{};
  int done = 0;
};

void expect_all(const WkvParams& params, const std::vector<float>& u, bool removes, Sequence& s) {
  s.out.resize(s.r.size()), s.bonus.resize(s.r.size());
  for (int h = 0; h < kHeads; ++h) {
    double state[kDim][kDim] = {};
    for (int t = 0; t < kLength; ++t) {
      const size_t at = static_cast<size_t>(t) * kWidth + static_cast<size_t>(h) * kDim;
      double next[kDim][kDim], share = 0;
      for (int i = 0; i < kDim; ++i) {
        const double w = s.w[at + i],
                     rate = params.by_sigmoid ? std::exp(-0.5) / (1 + std::exp(-w)) : std::exp(w);
        share +=
            static_cast<double>(s.r[at + i]) * u[static_cast<size_t>(h) * kDim + i] * s.k[at + i];
        for (int j = 0; j < kDim; ++j) {
          double said = 0;
          for (int l = 0; removes && l < kDim; ++l) said += s.a[at + l] * state[l][j];
          next[i][j] = std::exp(-rate) * state[i][j] +
                       static_cast<double>(s.k[at + i]) * s.v[at + j] +
                       (removes ? s.b[at + i] * said : 0.0);
        }
      }
      for (int j = 0; j < kDim; ++j) {
        double sum = 0;
        for (int i = 0; i < kDim; ++i)
          sum += s.r[at + i] * (params.reads_before ? state[i][j] : next[i][j]);
        s.out[at + j] = static_cast<float>(sum);
        s.bonus[at + j] = static_cast<float>(share * s.v[at + j]);
      }
      std::copy(&next[0][0], &next[0][0] + kDim * kDim, &state[0][0]);
    }
  }
}

class Wkv : public ::testing::TestWithParam<OpsUnderTest> {};

// In states of BF16 values are off by 2^-9 of themselves behind each step.
void check_wkv(const OpsUnderTest& under_test, WkvParams params, bool removes, StateDType type) {
  const auto made = under_test.make();
  Ops& ops = *made;
  const float tolerance = type == StateDType::kBF16 ? 0.05f : 2e-5f;
  CacheSpec spec;
  spec.layers.assign(2, KvLayerSpec{1, 16, 0, 0});
  spec.state_values = {3, kOffset + int64_t{kHeads} * kDim * kDim};
  spec.state_dtype = type;
  const int n_blocks[] = {8, 4};
  const auto cache = ops.make_cache(spec, n_blocks).value();
  for (int b = 0; b < 4; ++b)  // of other sequences
    cache->write_block(
        1, BlockId(b),
        std::vector<std::byte>(static_cast<size_t>(spec.state_bytes()), std::byte{0x49}));
  const std::vector<float> u = random_floats(kWidth, 1);
  const auto packed = ops.pack_vector(u).value();
  params.u = packed.get(), params.n_heads = kHeads, params.head_dim = kDim;
  params.layer = kLayer, params.state_offset = kOffset;
  std::vector<Sequence> sequences(2);
  for (unsigned i = 0; i < 2; ++i) {
    Sequence& s = sequences[i];
    unsigned seed = 10 * i + 2;
    for (std::vector<float>* each : {&s.r, &s.w, &s.k, &s.v, &s.a, &s.b})
      *each = random_floats(static_cast<size_t>(kLength) * kWidth, seed++, 0.5f);
    s.state = BlockId(2 - static_cast<int>(i));
    expect_all(params, u, removes, s);
  }
  const std::vector<std::vector<int>> steps = {{1, 4}, {7, 0}, {1, 1}, {12, 16}};
  for (const std::vector<int>& counts : steps) {
    std::vector<std::pair<const Sequence*, int>> rows;
    std::vector<int32_t> positions, seq_offsets = {0}, lens, table_offsets = {0};
    std::vector<BlockId> tables;
    for (size_t i = 0; i < 2; ++i) {
      Sequence& s = sequences[i];
      if (counts[i] == 0) continue;
      for (int t = 0; t < counts[i]; ++t, ++s.done)
        rows.emplace_back(&s, s.done), positions.push_back(s.done);
      seq_offsets.push_back(static_cast<int32_t>(rows.size()));
      lens.push_back(s.done), tables.push_back(s.state);
      table_offsets.push_back(static_cast<int32_t>(tables.size()));
    }
    const std::vector<TokenId> tokens(rows.size(), 0);
    const KvView views[] = {{}, {{}, tables, table_offsets, {}}};
    const Batch batch{tokens, positions, seq_offsets, lens, views, {}, {}};
    const StepShape shape = ops.begin_step(&batch);
    const auto input = [&](std::vector<float> Sequence::* of) {
      std::vector<float> values;
      for (const auto& [s, t] : rows) {
        const auto row = (s->*of).begin() + static_cast<ptrdiff_t>(t) * kWidth;
        values.insert(values.end(), row, row + kWidth);
      }
      values.resize(static_cast<size_t>(shape.tokens) * kWidth);
      return tensor_of(ops, values, shape.tokens, kWidth);
    };
    WkvTensors tensors{input(&Sequence::r),
                       input(&Sequence::w),
                       input(&Sequence::k),
                       input(&Sequence::v),
                       {},
                       {},
                       {},
                       {}};
    if (removes) tensors.a = input(&Sequence::a), tensors.b = input(&Sequence::b);
    tensors.out = ops.new_tensor(shape.tokens, kWidth);
    // its columns are not contiguous
    tensors.bonus = ops.new_tensor(shape.tokens, 2 * kWidth).columns(kWidth, kWidth);
    ops.wkv(tensors, params, *cache);
    ops.wait(ops.submit());
    const Values out = read(ops, tensors.out), bonus = read(ops, tensors.bonus);
    for (size_t row = 0; row < rows.size(); ++row) {
      for (int c = 0; c < kWidth; ++c) {
        const auto& [s, t] = rows[row];
        const size_t at = static_cast<size_t>(t) * kWidth + static_cast<size_t>(c);
        ASSERT_NEAR(out.at(static_cast<int>(row), c), s->out[at],
                    tolerance * (1 + std::fabs(s->out[at])))
            << "token " << t << " column " << c;
        ASSERT_NEAR(bonus.at(static_cast<int>(row), c), s->bonus[at], 1e-5f);
      }
    }
  }
}

TEST_P(Wkv, GoesOnWhereTheStepBeforeEnded) {
  for (const StateDType type : {StateDType::kF32, StateDType::kBF16}) {
    check_wkv(GetParam(), {.reads_before = true}, false, type);
    check_wkv(GetParam(), {.by_sigmoid = true}, true, type);
  }
}

TEST_P(Wkv, ColumnsAreAdded) {
  const auto ops = GetParam().make();
  const std::vector<float> x = random_floats(6, 1), by = random_floats(3, 2);
  const auto packed = ops->pack_vector(by).value();
  ops->begin_step(nullptr);
  const Tensor sum = tensor_of(*ops, x, 2, 3);
  ops->add_columns(sum, *packed);
  ops->wait(ops->submit());
  const Values got = read(*ops, sum);
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(got.at(i / 3, i % 3), x[static_cast<size_t>(i)] + by[static_cast<size_t>(i % 3)]);
}

std::vector<OpsUnderTest> cpus() {
  std::vector<OpsUnderTest> all = ops_under_test();
  std::erase_if(all, [](const OpsUnderTest& ops) { return !ops.is_cpu(); });
  return all;
}
INSTANTIATE_TEST_SUITE_P(Ops, Wkv, ::testing::ValuesIn(cpus()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock
