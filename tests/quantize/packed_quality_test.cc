// For every encoding the packed kernels predict held-out stories as well as the same weights in F32
// do.
#include "quantize/packed_quality.h"
#include "support/test_data.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::expect_packed_quality;
using testing::story_tokens;

struct Case {
  const char* name;
  RecipeOptions recipe;
};

RecipeOptions type(const char* name, int group = -1, bool asymmetric = false,
                   const char* layout = "") {
  RecipeOptions options;
  options.type = name;
  options.group_size = group;
  options.asymmetric = asymmetric;
  options.layout = layout;
  return options;
}

class PackedQuality : public ::testing::TestWithParam<Case> {};

TEST_P(PackedQuality, IsThatOfF32) {
  const TempDir dir;
  QuantizeJob job;
  // Blocks of 256 need rows of that length.
  job.in = models_dir() / (std::string(GetParam().name).starts_with("blocks")
                               ? "penstock-stories-sliding-4m-q8_0.gguf"
                               : "penstock-stories-1m-bf16");
  job.recipe = GetParam().recipe;
  const bool gguf = std::string(GetParam().name).find("gguf") != std::string::npos;
  job.out = gguf ? dir / "packed.gguf" : dir / "packed";
  job.threads = 1;
  const auto stories = story_tokens("penstock-4096");
  for (const auto& story : stories) job.samples.emplace_back(story.begin(), story.begin() + 64);
  const auto done = quantize(job);
  ASSERT_TRUE(done) << done.error().message;
  expect_packed_quality(job.out, dir, stories);
}

RecipeOptions act_order() {
  RecipeOptions options = type("int4", 32);
  options.method = "gptq";
  options.act_order = "group";
  return options;
}

INSTANTIATE_TEST_SUITE_P(
    All, PackedQuality,
    ::testing::Values(
        Case{"gguf_f16", type("f16")}, Case{"gguf_bf16", type("bf16")},
        Case{"gguf_q8_0", type("q8_0")}, Case{"gguf_q5_0", type("q5_0")},
        Case{"gguf_q5_1", type("q5_1")}, Case{"gguf_q4_0", type("q4_0")},
        Case{"gguf_q4_1", type("q4_1")}, Case{"blocks_gguf_q2_k", type("q2_k")},
        Case{"blocks_gguf_q3_k", type("q3_k")}, Case{"blocks_gguf_q4_k", type("q4_k")},
        Case{"blocks_gguf_q5_k", type("q5_k")}, Case{"blocks_gguf_q6_k", type("q6_k")},
        Case{"blocks_gguf_q4_k_m", type("q4_k_m")}, Case{"gguf_iq4_nl", type("iq4_nl")},
        Case{"blocks_gguf_iq4_xs", type("iq4_xs")}, Case{"gguf_mxfp4", type("mxfp4")},
        Case{"int8", type("int8")}, Case{"int8_rows", type("int8", 0)},
        Case{"int8_asymmetric", type("int8", 32, true)}, Case{"int7", type("int7")},
        Case{"int6", type("int6")}, Case{"int5", type("int5", 32)},
        Case{"int5_asymmetric", type("int5", 32, true)}, Case{"int4", type("int4")},
        Case{"int4_groups_of_32", type("int4", 32)}, Case{"int4_groups_of_16", type("int4", 16)},
        Case{"int4_asymmetric", type("int4", -1, true)},
        Case{"int4_awq", type("int4", 32, true, "awq")}, Case{"int4_act_order", act_order()},
        Case{"int3", type("int3", 32)}, Case{"int3_asymmetric", type("int3", 128, true)},
        Case{"int2", type("int2", 32, true)}, Case{"nf4", type("nf4")}, Case{"fp4", type("fp4")},
        Case{"fp8", type("fp8")}, Case{"w8a8", type("w8a8")}),
    [](const ::testing::TestParamInfo<Case>& info) { return std::string(info.param.name); });

// A model that was trained for them.
TEST(PackedQuality, Ternary) {
  const fs::path model = models_dir() / "penstock-stories-ternary-4m-tq2_0.gguf";
  for (const char* name : {"tq2_0", "tq1_0"}) {
    const TempDir dir;
    QuantizeJob job;
    job.in = model;
    job.out = dir / "packed.gguf";
    job.threads = 1;
    job.recipe.type = name;
    const auto done = quantize(job);
    ASSERT_TRUE(done) << done.error().message;
    expect_packed_quality(job.out, dir, story_tokens("penstock-4096"));
  }
}

}  // namespace
}  // namespace penstock
