// The plan of every product: encoding by rows by instruction set, those of other processors
// included.
#include "ops/cpu/gemm_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kernels/amx/plans.h"
#include "kernels/avx2/plans.h"
#include "kernels/avx512/plans.h"
#include "kernels/avx512bf16/plans.h"
#include "kernels/gemm_kernels.h"
#include "kernels/neon/plans.h"
#include "kernels/scalar/plans.h"
#include "kernels/tile_unpacking.h"
#include "ops/product_plans.h"

namespace penstock {
namespace {

// Encodings that are multiplied alike, with activations that have a scale for every group.
const std::map<std::string, std::vector<PanelType>>& encodings() {
  const auto of = [](std::initializer_list<QuantType> types,
                     std::initializer_list<PanelType> grouped) {
    std::vector<PanelType> all(grouped);
    for (const QuantType type : types) all.push_back(panel_type(type));
    return all;
  };
  using enum QuantType;
  using enum PanelType;
  static const std::map<std::string, std::vector<PanelType>> all = {
      {"f32", of({kF32}, {})},
      {"f16", of({kF16}, {kF8Row, kF8G64})},
      {"bf16", of({kBF16}, {})},
      {"nibbles", of({kQ4_0, kQ4_1, kQ4_K}, {kI4Z32, kI4Z128, kI4G128})},
      {"bytes", of({kQ8_0}, {kI8Z32, kI8Row})},
      {"grid", of({kIQ1_S, kIQ1_M, kIQ2_XXS, kIQ2_XS, kIQ2_S, kIQ3_XXS, kIQ3_S}, {})},
      {"codes", of({kQ5_0, kQ5_1, kQ2_K, kQ3_K, kQ5_K, kQ6_K, kIQ4_NL, kIQ4_XS, kTQ2_0, kMXFP4,
                    kNVFP4, kQ1_0, kQ2_0},
                   {kI2Z32, kI2Z128, kI3Z32, kI3Z128, kTernaryRow, kLevels16, kLevels64})},
  };
  return all;
}
// Encodings that are multiplied in another way where activations have one scale for each row.
const std::map<std::string, std::vector<PanelType>>& whole_encodings() {
  static const std::map<std::string, std::vector<PanelType>> all = {
      {"whole-bytes", {PanelType::kI8Row}}, {"whole-codes", {PanelType::kTernaryRow}}};
  return all;
}

struct Processor {
  std::string name;
  GemmPlans plans;
  GemmTraits traits;
};

std::vector<Processor> processors() {
  return {
      {"scalar", {scalar::kPlans, {}}, {}},
      {"neon", {neon::kPlans, {}}, {}},
      {"avx2", {avx2::kPlans, {}}, {}},
      {"avx2, one stream", {avx2::kPlans, {}}, {.one_stream = true}},
      {"avx512", {avx512::kPlans, {}}, {}},
      {"avx512, one stream", {avx512::kPlans, {}}, {.one_stream = true}},
      {"avx512bf16", {avx512::kPlans, avx512bf16::kPlans}, {}},
      {"avx512bf16, batch-invariant",
       {avx512::kPlans, avx512bf16::kPlans},
       {.batch_invariant = true}},
      {"amx", {avx512::kPlans, amx::kPlans}, {}},
      {"amx, between", {avx512::kPlans, amx::kPlans}, {.unpack_between = true}},
      {"amx, batch-invariant", {avx512::kPlans, amx::kPlans}, {.batch_invariant = true}},
      {"amx, batch-invariant, between",
       {avx512::kPlans, amx::kPlans},
       {.unpack_between = true, .batch_invariant = true}},
  };
}

// "1 streams 1x4 units; 2 2x4 units; 9 unpacked 4x2": from so many rows on the strategy (where it
// changes), block x panels, and what is fetched ahead. Beside tiles, what vectors compute is told
// as "vectors".
std::string told(const Processor& processor, PanelType type, bool one_scale) {
  const auto vectors_only = [&](int n_rows) {
    return choose_gemm({processor.plans.vectors, {}}, type, one_scale, n_rows, processor.traits)
        .plan;
  };
  std::string all, last;
  for (int n_rows = 1; n_rows <= 1100; ++n_rows) {
    const GemmChoice choice =
        choose_gemm(processor.plans, type, one_scale, n_rows, processor.traits);
    const GemmPlan& plan = *choice.plan;
    const bool by_vectors = plan.path == GemmPath::kF32 || plan.path == GemmPath::kInt8;
    EXPECT_EQ(&(by_vectors ? processor.plans.vectors : processor.plans.tiles)[choice.index], &plan);
    EXPECT_EQ(by_vectors, &plan == vectors_only(n_rows));
    std::string one = "vectors";
    if (!by_vectors || processor.plans.tiles.empty()) {
      one = std::string(gemm_strategy_name(plan.strategy)) + " " + std::to_string(plan.block) +
            "x" + std::to_string(plan.panels);
      if (plan.prefetch.ahead == Prefetch::kUnits) one += " units";
      if (plan.prefetch.ahead == Prefetch::kStep) one += " step";
      if (plan.prefetch.ahead > 0) one += " " + std::to_string(plan.prefetch.ahead);
    }
    if (one == last) continue;
    const size_t word = one.find(' ');
    const bool same_strategy =
        word != std::string::npos && last.substr(0, word + 1) == one.substr(0, word + 1);
    last = one;
    all += (all.empty() ? "" : "; ") + std::to_string(n_rows) +
           (same_strategy ? one.substr(word) : " " + one);
  }
  return all;
}

// What bench/notes/2026-11-kernels.md has measured. A plan that changes is measured anew.
const std::map<std::string, std::map<std::string, std::string>>& expected_plans() {
  // By processor: encodings, and their plans.
  static const std::map<std::string, std::map<std::string, std::string>> all = {
      {"scalar",
       {{"bf16 bytes codes f16 f32 grid nibbles whole-bytes whole-codes", "1 blocks 16x1"}}},
      {"neon",
       {{"bf16 f16 f32",
         "1 streams 1x2 1152; 2 2x2 1152; 3 blocks 4x1; 4 streams 4x1 1152; 5 blocks 4x1"},
        {"bytes codes grid nibbles whole-bytes whole-codes",
         "1 streams 1x2 units; 2 2x2 units; 3 3x1 units; 4 4x1 units; 5 blocks 3x1; 7 4x1"}}},
      {"avx2",
       {{"bf16 f16 f32", "1 streams 1x2 1152; 2 2x2 1152; 3 columns 5x1 2304"},
        {"bytes",
         "1 streams 1x2 step; 2 2x2 step; 3 3x1 units; 4 4x1 units; 5 blocks 3x1; "
         "7 unpacked 4x1"},
        {"codes grid",
         "1 streams 1x2 units; 2 2x2 units; 3 3x1 units; 4 4x1 units; 5 blocks 3x1; "
         "7 unpacked 4x1"},
        {"nibbles",
         "1 streams 1x2 units; 2 2x2 units; 3 3x1 units; 4 4x1 units; 5 panel 3x1 units; "
         "7 4x1 units; 17 unpacked 4x1"},
        {"whole-bytes",
         "1 streams 1x2 step; 2 2x2 step; 3 3x1 units; 4 4x1 units; 5 blocks 3x1; 7 4x1"},
        {"whole-codes",
         "1 streams 1x2 units; 2 2x2 units; 3 3x1 units; 4 4x1 units; 5 blocks 3x1; 7 4x1"}}},
      {"avx2, one stream",
       {{"bf16 f16 f32", "1 streams 1x2 4736; 2 2x2 4736; 3 columns 5x1 2304"},
        {"bytes",
         "1 streams 1x1 6784; 2 2x1 6784; 3 3x1 6784; 4 4x1 6784; 5 blocks 3x1; "
         "7 unpacked 4x1"},
        {"codes grid",
         "1 streams 1x1 9216; 2 2x1 9216; 3 3x1 9216; 4 4x1 9216; 5 blocks 3x1; "
         "7 unpacked 4x1"},
        {"nibbles",
         "1 streams 1x1 9216; 2 2x1 9216; 3 3x1 9216; 4 4x1 9216; 5 panel 3x1 units; "
         "7 4x1 units; 17 unpacked 4x1"},
        {"whole-bytes",
         "1 streams 1x1 6784; 2 2x1 6784; 3 3x1 6784; 4 4x1 6784; 5 blocks 3x1; 7 4x1"},
        {"whole-codes",
         "1 streams 1x1 9216; 2 2x1 9216; 3 3x1 9216; 4 4x1 9216; 5 blocks 3x1; 7 4x1"}}},
      {"avx512",
       {{"bf16 f16 f32",
         "1 streams 1x4 1152; 2 2x4 1152; 3 blocks 8x2; 4 streams 4x2 1152; 5 blocks 8x2"},
        {"bytes",
         "1 streams 1x4 units; 2 2x4 units; 3 3x2 units; 4 4x2 units; 5 6x1 units; "
         "7 8x1 units; 9 unpacked 4x2"},
        {"codes nibbles",
         "1 streams 1x4 units; 2 2x4 units; 3 3x2 units; 4 4x2 units; 5 6x1 units; "
         "7 8x1 units; 9 12x1 units; 13 16x1 units; 17 panel 16x1 units; 49 unpacked 4x2"},
        {"grid",
         "1 streams 1x4 units; 2 2x4 units; 3 3x2 units; 4 4x2 units; 5 6x1 units; "
         "7 8x1 units; 9 12x1 units; 13 16x1 units; 17 unpacked 4x2"},
        {"whole-bytes whole-codes",
         "1 streams 1x4 units; 2 2x4 units; 3 3x2 units; 4 4x2 units; 5 6x1 units; "
         "7 8x1 units; 9 16x1 units; 17 blocks 16x1"}}},
      {"avx512, one stream",
       {{"bf16 f16 f32",
         "1 streams 1x2 4736; 2 2x2 4736; 3 blocks 8x2; 4 streams 4x2 1152; 5 blocks 8x2"},
        {"bytes",
         "1 streams 1x1 6784; 2 2x1 6784; 3 3x1 6784; 4 4x1 6784; 5 6x1 9216; 7 8x1 9216; "
         "9 unpacked 4x2"},
        {"codes nibbles",
         "1 streams 1x1 9216; 2 2x1 9216; 3 3x1 9216; 4 4x1 9216; 5 6x1 9216; 7 8x1 9216; "
         "9 12x1 9216; 13 16x1 9216; 17 panel 16x1 units; 49 unpacked 4x2"},
        {"grid",
         "1 streams 1x1 9216; 2 2x1 9216; 3 3x1 9216; 4 4x1 9216; 5 6x1 9216; 7 8x1 9216; "
         "9 12x1 9216; 13 16x1 9216; 17 unpacked 4x2"},
        {"whole-bytes",
         "1 streams 1x1 6784; 2 2x1 6784; 3 3x1 6784; 4 4x1 6784; 5 6x1 9216; 7 8x1 9216; "
         "9 16x1 9216; 17 blocks 16x1"},
        {"whole-codes",
         "1 streams 1x1 9216; 2 2x1 9216; 3 3x1 9216; 4 4x1 9216; 5 6x1 9216; 7 8x1 9216; "
         "9 16x1 9216; 17 blocks 16x1"}}},
      {"avx512bf16",
       {{"bf16", "1 vectors; 3 pairs 6x4 1152"},
        {"bytes codes f16 f32 grid nibbles whole-bytes whole-codes", "1 vectors"}}},
      {"avx512bf16, batch-invariant",
       {{"bf16 bytes codes f16 f32 grid nibbles whole-bytes whole-codes", "1 vectors"}}},
      {"amx",
       {{"bf16", "1 vectors; 3 few-tiles 16x2; 17 32x2; 33 tiles 512x2"},
        {"bytes codes grid nibbles", "1 vectors; 9 few-tiles 16x2; 17 32x2; 33 tiles 288x2"},
        {"f16", "1 vectors; 3 few-tiles 16x2; 17 32x2; 33 tiles 288x2"},
        {"f32", "1 vectors"},
        {"whole-bytes", "1 vectors; 5 few-tiles 16x2; 17 32x2; 33 tiles 512x2"},
        {"whole-codes", "1 vectors; 5 few-tiles 16x2; 17 32x2; 33 tiles 288x2"}}},
      {"amx, between",
       {{"bf16", "1 vectors; 3 few-tiles 16x2; 17 32x2; 33 tiles 512x2"},
        {"bytes codes nibbles", "1 vectors; 9 few-tiles 16x2; 17 32x2; 33 tiles-between 288x2"},
        {"f16", "1 vectors; 3 few-tiles 16x2; 17 32x2; 33 tiles 288x2"},
        {"f32", "1 vectors"},
        {"grid", "1 vectors; 9 few-tiles 16x2; 17 32x2; 33 tiles 288x2"},
        {"whole-bytes", "1 vectors; 5 few-tiles 16x2; 17 32x2; 33 tiles 512x2"},
        {"whole-codes", "1 vectors; 5 few-tiles 16x2; 17 32x2; 33 tiles-between 288x2"}}},
      {"amx, batch-invariant",
       {{"bf16 f16 f32", "1 vectors"},
        {"bytes codes grid nibbles", "1 vectors; 9 scaled-tiles 16x1"},
        {"whole-bytes", "1 vectors; 5 few-tiles 16x2; 17 32x2; 33 tiles 512x2"},
        {"whole-codes", "1 vectors; 5 few-tiles 16x2; 17 32x2; 33 tiles 288x2"}}},
      {"amx, batch-invariant, between",
       {{"bf16 f16 f32", "1 vectors"},
        {"bytes codes grid nibbles", "1 vectors; 9 scaled-tiles 16x1"},
        {"whole-bytes", "1 vectors; 5 few-tiles 16x2; 17 32x2; 33 tiles 512x2"},
        {"whole-codes", "1 vectors; 5 few-tiles 16x2; 17 32x2; 33 tiles-between 288x2"}}},
  };
  return all;
}

TEST(GemmChoice, IsTheMeasuredOneForEveryEncodingAndNumberOfRows) {
  int n_told = 0;
  for (const Processor& processor : processors()) {
    std::map<std::string, std::string> plans;  // by encodings
    for (const auto& [names, plan] : expected_plans().at(processor.name)) {
      for (size_t begin = 0; begin < names.size();) {
        const size_t end = std::min(names.find(' ', begin), names.size());
        plans[names.substr(begin, end - begin)] = plan;
        begin = end + 1;
      }
    }
    const auto expect = [&](const std::string& name, const std::vector<PanelType>& types,
                            bool one_scale) {
      for (const PanelType type : types) {
        EXPECT_EQ(told(processor, type, one_scale), plans.at(name))
            << processor.name << ", " << name << ", panel type " << static_cast<int>(type);
        ++n_told;
      }
    };
    for (const auto& [name, types] : encodings()) expect(name, types, false);
    for (const auto& [name, types] : whole_encodings()) expect(name, types, true);
  }
  int n_multiplied = 2;  // in two ways
  for (int type = 0; type < kPanelTypeCount; ++type)
    n_multiplied += panel_kind(static_cast<PanelType>(type), false) != PanelKind::kNone;
  EXPECT_EQ(n_told, n_multiplied * static_cast<int>(processors().size()));
}

// Only rows without scales inside are told apart by the activations' scales.
TEST(GemmChoice, OneScaleMattersToWholeRowsAlone) {
  for (const Processor& processor : processors()) {
    for (const auto& [name, types] : encodings()) {
      for (const PanelType type : types) {
        if (type == PanelType::kI8Row || type == PanelType::kTernaryRow) continue;
        EXPECT_EQ(told(processor, type, true), told(processor, type, false))
            << processor.name << " " << name;
      }
    }
  }
}

TEST(GemmChoice, LaysActivationsOutInBlocks) {
  const GemmPlans vectors{avx512::kPlans, {}}, tiles{avx512::kPlans, amx::kPlans};
  const auto block = [](const GemmPlans& plans, bool one_scale, int n_rows) {
    return choose_gemm(plans, panel_type(QuantType::kQ4_0), one_scale, n_rows,
                       {.batch_invariant = true})
        .block_rows;
  };
  const std::map<int, int> blocks = {{1, 1}, {2, 2}, {3, 4}, {4, 4},  {5, 6},
                                     {6, 6}, {7, 8}, {8, 8}, {9, 16}, {48, 16}};
  for (const auto& [n_rows, expected] : blocks) {
    for (const bool one_scale : {false, true}) {
      EXPECT_EQ(block(vectors, one_scale, n_rows), expected) << n_rows;
      EXPECT_EQ(block(tiles, one_scale, n_rows), expected) << n_rows;
    }
  }
  EXPECT_EQ(block(vectors, false, 49), 4);
  EXPECT_EQ(block(vectors, true, 49), 16);
  EXPECT_EQ(block(tiles, false, 49), 16);
  EXPECT_EQ(choose_gemm(vectors, panel_type(QuantType::kF16), false, 9, {}).block_rows, 0);
}

// Every plan has a kernel for what it multiplies, and for nothing else.
TEST(GemmChoice, EveryPlanHasItsKernels) {
  const auto expect = [](const char* isa, std::span<const GemmPlan> plans, GemmPath path,
                         const auto& kernels) {
    for (int type = 0; type < kPanelTypeCount; ++type) {
      for (size_t i = 0; i < plans.size(); ++i) {
        const auto multiplies = [&](bool one_scale) {
          return plans[i].multiplies(panel_kind(static_cast<PanelType>(type), one_scale));
        };
        const bool is_path = plans[i].path == path || (path == GemmPath::kBf16Tiles &&
                                                       plans[i].path == GemmPath::kInt8RowTiles);
        EXPECT_EQ(kernels[type][i] != nullptr, is_path && (multiplies(false) || multiplies(true)))
            << isa << ", panel type " << type << ", plan " << i;
      }
    }
  };
  for (const KernelTable& table : available_kernels()) {
    expect(table.name, table.gemm->plans, GemmPath::kInt8, table.gemm->int8);
    expect(table.name, table.gemm->plans, GemmPath::kF32, table.gemm->f32);
    if (table.tiles == nullptr) continue;
    expect(table.name, table.tiles->plans, GemmPath::kInt8Tiles, table.tiles->int8);
    expect(table.name, table.tiles->plans, GemmPath::kBf16Tiles, table.tiles->tiles);
  }
}

TEST(GemmChoice, IsToldInReports) {
  setenv("PENSTOCK_ISA", "scalar", 1);
  const std::vector<ProductPlan> plans = product_plans();
  unsetenv("PENSTOCK_ISA");
  ASSERT_EQ(plans.size(), size_t{kNumPanelKinds} - 1);
  EXPECT_EQ(plans.front().weights, "f32");
  EXPECT_EQ(plans.front().path, "f32");
  EXPECT_EQ(plans.front().prefetch, "none");
  EXPECT_EQ(plans.back().weights, "whole-codes");
  for (const ProductPlan& plan : plans) {
    EXPECT_EQ(plan.rows, 1);
    EXPECT_EQ(plan.strategy, "blocks");
    EXPECT_EQ(plan.block, 16);
    EXPECT_EQ(plan.panels, 1);
  }
}

}  // namespace
}  // namespace penstock
