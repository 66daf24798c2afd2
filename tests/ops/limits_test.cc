// What the machine can do at most: the units that are measured are those that the kernels use, or
// faster ones.
#include "ops/limits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "kernels/gemm_kernels.h"
#include "kernels/kernel_table.h"
#include "kernels/probe_kernels.h"
#include "ops/ops.h"
#include "ops/thread_limits.h"

namespace penstock {
namespace {

using Operand = ComputeProbe::Operand;

class Probes : public testing::TestWithParam<const KernelTable*> {};

// Products of integers held against a unit for floats came out at 300 % of it.
TEST_P(Probes, MultiplyWhatTheKernelsMultiply) {
  const KernelTable& table = *GetParam();
  std::set<Operand> operands;
  std::set<std::string> names;
  for (const ComputeProbe& probe : compute_probes(table)) {
    operands.insert(probe.operand);
    EXPECT_TRUE(names.insert(probe.name).second) << probe.name;
    EXPECT_GT(probe.operations_per_iteration, 0) << probe.name;
    EXPECT_TRUE(std::isfinite(probe.run(100))) << probe.name;
  }
  EXPECT_TRUE(operands.contains(Operand::kFloats));
  EXPECT_TRUE(operands.contains(Operand::kIntegers));
  const bool tiles = table.name == std::string("amx");
  EXPECT_EQ(names.contains("AMX BF16"), tiles);
  EXPECT_EQ(names.contains("AMX INT8"), tiles);
  EXPECT_EQ(names.contains("AVX-512 BF16"),
            tiles || table.emulated || table.name == std::string("avx512bf16"));
}

// Every order of reading sees every byte.
TEST_P(Probes, ReadAllThatTheyAreGiven) {
  alignas(64) static char data[8192];
  for (const ReadProbe read : read_probes(*GetParam())) {
    std::fill(std::begin(data), std::end(data), 0);
    EXPECT_EQ(read(data, sizeof data), 0u);
    for (size_t i = 0; i < sizeof data; i += 8) {
      data[i] = 1;
      EXPECT_NE(read(data, sizeof data), 0u) << i;
      data[i] = 0;
    }
  }
}

std::vector<const KernelTable*> all_tables() {
  std::vector<const KernelTable*> all;
  for (const KernelTable& table : available_kernels()) all.push_back(&table);
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Probes, testing::ValuesIn(all_tables()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(Limits, AreMeasured) {
  const auto ops = make_ops("cpu", {.n_threads = 1});
  ASSERT_TRUE(ops) << ops.error().message;
  const MachineLimits limits = (*ops)->limits(1 << 20);
  EXPECT_GT(limits.read_bytes_per_second, 1e6);
  EXPECT_GT(limits.floats.operations_per_second, 1e6);
  EXPECT_GE(limits.integers.operations_per_second, limits.floats.operations_per_second);
  EXPECT_FALSE(limits.floats.unit.empty());
  EXPECT_FALSE(limits.integers.unit.empty());
}

TEST(Limits, TheHigherOfTwoCounts) {
  const MachineLimits a{10, {"A", 5}, {"A8", 20}}, b{12, {"B", 4}, {"B8", 30}};
  for (const MachineLimits& both : {better(a, b), better(b, a)}) {
    EXPECT_EQ(both.read_bytes_per_second, 12);
    EXPECT_EQ(both.floats.unit, "A");
    EXPECT_EQ(both.integers.unit, "B8");
    EXPECT_EQ(both.integers.operations_per_second, 30);
  }
  EXPECT_EQ(better(a, {}).read_bytes_per_second, 10);
}

TEST(Limits, OfOneThreadAndOfAll) {
  const KernelTable& kernels = *select_kernels().value();
  std::set<std::string> names;
  for (const ThreadLimit& limit : sample_threads(2, 1)) {
    EXPECT_TRUE(names.insert(limit.name).second) << limit.name;
    EXPECT_GT(limit.all, 1e6) << limit.name;
    EXPECT_GT(limit.one, 1e6) << limit.name;
  }
  for (const ComputeProbe& probe : compute_probes(kernels))
    EXPECT_TRUE(names.contains(probe.name)) << probe.name;
  EXPECT_TRUE(names.contains("read"));
}

TEST(Limits, OfAPromptGoByTheTypesOfItsWeights) {
  const MachineLimits limits{1, {"float", 100}, {"integer", 400}};
  EXPECT_DOUBLE_EQ(prefill_limit(limits, {.of_floats = 100}), 1);
  EXPECT_DOUBLE_EQ(prefill_limit(limits, {.of_integers = 100}), 4);
  EXPECT_DOUBLE_EQ(prefill_limit(limits, {.of_floats = 50, .of_integers = 200}), 1);
  EXPECT_EQ(prefill_limit({}, {.of_floats = 50}), 0);
}

}  // namespace
}  // namespace penstock
