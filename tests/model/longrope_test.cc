// Longrope's two kinds of sequences: which a sequence is of, and batches that have both. What they
// give is held to transformers by golden_test.cc.
#include <gtest/gtest.h>

#include "model/runner.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using testing::max_difference;
using testing::Rows;
using testing::Runner;

const std::filesystem::path kLongRopeModels = tests_dir() / "golden" / "models";

TEST(LongRope, ModelsWithTwoListsOfFactorsHaveTwoKinds) {
  const auto ops = make_ops("cpu", {.n_threads = 1}).value();
  for (const char* name : {"phi3_longrope", "phi3_longrope/model.gguf"}) {
    const auto source = open_weights(kLongRopeModels / name).value();
    const auto model = Model::load(*source, *ops).value();
    EXPECT_EQ(model->short_rope_len(), 16) << name;
    EXPECT_FALSE(model->takes_long_rope(16)) << name;
    EXPECT_TRUE(model->takes_long_rope(17)) << name;
  }
  // Without longrope, or with the same factors twice.
  for (const char* name : {"phi3", "llama3", "minicpm3_scales", "phimoe_longrope"}) {
    const auto source = open_weights(kLongRopeModels / name).value();
    const auto model = Model::load(*source, *ops).value();
    EXPECT_EQ(model->short_rope_len(), 0) << name;
    EXPECT_FALSE(model->takes_long_rope(1 << 30)) << name;
  }
}

// Sequences of both kinds in the same steps: each has the bits that it has alone.
void expect_mixed_equals_alone(const std::string& backend, const OpsConfig& config, KvDType cache) {
  const auto made = make_ops(backend, config);
  if (!made) GTEST_SKIP() << made.error().message;
  for (const char* name : {"phi3_longrope", "phi3_longrope/model.gguf"}) {
    SCOPED_TRACE(name);
    const auto source = open_weights(kLongRopeModels / name).value();
    const auto model = Model::load(*source, **made).value();
    const std::vector<int> tokens = {5, 44, 9, 30, 2, 61, 17, 8, 50, 12, 33, 4};
    const auto part = [&](int seq, size_t from, size_t to) {
      return Runner::Part{seq,
                          {tokens.begin() + static_cast<ptrdiff_t>(from),
                           tokens.begin() + static_cast<ptrdiff_t>(to)}};
    };
    const auto alone = [&](int reach, std::span<const std::pair<size_t, size_t>> steps) {
      Runner runner(*model, **made, 64, 16, cache, reach);
      Rows rows;
      for (const auto& [from, to] : steps)
        for (auto& row : runner.step({part(0, from, to)})) rows.push_back(std::move(row));
      return rows;
    };
    const std::pair<size_t, size_t> one[] = {{0, 5}, {5, 9}, {9, 12}},
                                    other[] = {{0, 7}, {7, 8}, {8, 12}};
    const Rows short_kind = alone(16, one), long_kind = alone(17, other),
               same_as_short = alone(17, one);
    EXPECT_GT(max_difference(short_kind, same_as_short), 0.01f);  // the kinds are not the same
    Runner runner(*model, **made, 64, 16, cache);
    runner.set_reach(3, 16), runner.set_reach(4, 17);
    Rows of_short, of_long;
    for (size_t i = 0; i < std::size(one); ++i) {
      const auto [from, to] = one[i];
      const Rows rows = runner.step({part(3, from, to), part(4, other[i].first, other[i].second)});
      const auto n = static_cast<ptrdiff_t>(to - from);
      of_short.insert(of_short.end(), rows.begin(), rows.begin() + n);
      of_long.insert(of_long.end(), rows.begin() + n, rows.end());
    }
    EXPECT_EQ(of_short, short_kind);
    EXPECT_EQ(of_long, long_kind);
  }
}

TEST(LongRope, ABatchOfBothKindsGivesTheBitsOfEachAlone) {
  expect_mixed_equals_alone("cpu", {.n_threads = 1, .batch_invariant = true}, KvDType::kF32);
  expect_mixed_equals_alone("cpu", {.n_threads = 3, .batch_invariant = true}, KvDType::kF16);
}

TEST(LongRope, ABatchOfBothKindsOnEmulatedCuda) {
  expect_mixed_equals_alone("cuda_emulated", {.n_threads = 1, .batch_invariant = true},
                            KvDType::kF16);
}

}  // namespace
}  // namespace penstock
