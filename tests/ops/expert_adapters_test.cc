// Ops::moe with adapters of experts: what the same experts give when their adapters are merged.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "ops/ops_under_test.h"
#include "quant/quant_type.h"

namespace penstock {
namespace {

constexpr int kExperts = 5, kTokens = 24, kDim = 256, kHidden = 192, kTopK = 2, kSlots = 3,
              kRank = 3;

// Of all experts one matrix, plain and with each adapter's part in it.
struct Matrices {
  std::vector<std::unique_ptr<Weight>> weights;
  std::array<std::vector<std::unique_ptr<Weight>>, kSlots + 1> merged;  // the last without
  std::vector<AdapterTerms> terms;
  std::vector<std::unique_ptr<Weight>> thin;
};

Matrices make_matrices(Ops& ops, QuantType type, int rows, int cols, unsigned seed) {
  Matrices made;
  for (int e = 0; e < kExperts; ++e) {
    std::vector<float> values =
        random_floats(static_cast<size_t>(rows) * static_cast<size_t>(cols), seed + 7 * e,
                      1 / std::sqrt(static_cast<float>(cols)));
    std::vector<std::byte> bytes(static_cast<size_t>(rows) * quant_bytes(type, cols));
    for (int r = 0; r < rows; ++r) {
      float* const row = values.data() + static_cast<ptrdiff_t>(r) * cols;
      std::byte* const to = bytes.data() + static_cast<size_t>(r) * quant_bytes(type, cols);
      quantize_row(type, row, to, cols);
      dequantize_row(type, to, row, cols);
    }
    made.weights.push_back(ops.pack({type, rows, cols, bytes}).value());
    AdapterTerms terms(kSlots);
    for (int slot = 0; slot <= kSlots; ++slot) {
      std::vector<float> sum = values;
      // An adapter need not have every expert.
      if (slot < kSlots && (slot + e) % 4 != 0) {
        const unsigned own =
            seed + 1000 + 10 * static_cast<unsigned>(slot) + static_cast<unsigned>(e);
        const auto a = random_floats(static_cast<size_t>(kRank * cols), own,
                                     1 / std::sqrt(static_cast<float>(cols)));
        const auto b = random_floats(static_cast<size_t>(rows * kRank), own + 500, 0.5f);
        for (const auto& [thin, n, k] : {std::tuple{&a, kRank, cols}, std::tuple{&b, rows, kRank}})
          made.thin.push_back(
              ops.pack({QuantType::kF32, n, k, std::as_bytes(std::span(*thin))}).value());
        terms[static_cast<size_t>(slot)] = {made.thin[made.thin.size() - 2].get(),
                                            made.thin.back().get()};
        for (int r = 0; r < rows; ++r) {
          for (int c = 0; c < cols; ++c) {
            for (int k = 0; k < kRank; ++k) sum[r * cols + c] += b[r * kRank + k] * a[k * cols + c];
          }
        }
      }
      made.merged[static_cast<size_t>(slot)].push_back(
          ops.pack({QuantType::kF32, rows, cols, std::as_bytes(std::span(sum))}).value());
    }
    made.terms.push_back(std::move(terms));
  }
  return made;
}

class ExpertAdaptersTest : public testing::TestWithParam<OpsUnderTest> {
 protected:
  static int slot_of(int token) { return token % 4 == 3 ? -1 : token * 5 % kSlots; }

  // Rows of tokens [first, first + n). adapted: the tokens have their adapters.
  std::vector<float> rows_of(Ops& ops, const MoeParams& params, int first, int n,
                             bool adapted) const {
    const auto part = [&](const std::vector<float>& all, int cols) {
      return std::vector<float>(all.begin() + static_cast<ptrdiff_t>(first) * cols,
                                all.begin() + static_cast<ptrdiff_t>(first + n) * cols);
    };
    const std::vector<TokenId> tokens(static_cast<size_t>(n));
    const std::vector<int32_t> lens(static_cast<size_t>(n), 1);
    std::vector<int32_t> offsets(static_cast<size_t>(n) + 1), slots;
    std::iota(offsets.begin(), offsets.end(), 0);
    for (int t = 0; t < n; ++t) slots.push_back(adapted ? slot_of(first + t) : -1);
    const Batch batch{
        .tokens = tokens, .seq_offsets = offsets, .seq_lens = lens, .adapters = slots};
    ops.begin_step(&batch);
    const Tensor out = ops.new_tensor(n, kDim);
    ops.moe(tensor_of(ops, part(x_, kDim), n, kDim),
            tensor_of(ops, part(logits_, kExperts), n, kExperts), params, out);
    return read(ops, out).all;
  }

  const std::vector<float> x_ = random_floats(size_t{kTokens} * kDim, 71),
                           logits_ = random_floats(size_t{kTokens} * kExperts, 72);
};

TEST_P(ExpertAdaptersTest, GiveWhatMergedExpertsGiveWhateverTheCompany) {
  const auto ops = GetParam().make();
  for (const QuantType type : {QuantType::kF32, QuantType::kQ4_0, QuantType::kQ8_0}) {
    const Matrices gate = make_matrices(*ops, type, kHidden, kDim, 1),
                   up = make_matrices(*ops, type, kHidden, kDim, 2),
                   down = make_matrices(*ops, type, kDim, kHidden, 3);
    for (const auto& [gated, weigh_input] :
         {std::pair{true, false}, std::pair{true, true}, std::pair{false, false}}) {
      MoeParams params{.up = up.weights, .down = down.weights};
      if (gated) params.gate = gate.weights, params.gate_adapters = gate.terms;
      params.up_adapters = up.terms, params.down_adapters = down.terms;
      params.routing = {.n_active = kTopK, .weigh_input = weigh_input};
      const std::vector<float> got = rows_of(*ops, params, 0, kTokens, true);
      float largest = 0, difference = 0;
      for (int slot = -1; slot < kSlots; ++slot) {
        const auto i = static_cast<size_t>(slot < 0 ? kSlots : slot);
        MoeParams merged{.up = up.merged[i], .down = down.merged[i]};
        if (gated) merged.gate = gate.merged[i];
        merged.routing = params.routing;
        const std::vector<float> expected = rows_of(*ops, merged, 0, kTokens, false);
        for (int t = 0; t < kTokens; ++t) {
          for (int c = 0; slot_of(t) == slot && c < kDim; ++c) {
            largest = std::max(largest, std::abs(expected[t * kDim + c]));
            difference = std::max(difference, std::abs(expected[t * kDim + c] - got[t * kDim + c]));
          }
        }
      }
      EXPECT_LE(difference, (type == QuantType::kF32 ? 1e-5f : 0.03f) * largest)
          << quant_info(type).name;
      if (!GetParam().config.batch_invariant) continue;
      for (const int n : {1, 7}) {
        for (int first = 0; first < kTokens; first += n) {
          const auto alone = rows_of(*ops, params, first, std::min(n, kTokens - first), true);
          ASSERT_TRUE(std::ranges::equal(
              alone, std::span(got).subspan(static_cast<size_t>(first) * kDim, alone.size())))
              << quant_info(type).name << " " << n << " " << first;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ExpertAdaptersTest, testing::ValuesIn(ops_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock
