// Real checkpoints in every GGUF encoding: the packed kernels against the same weights in F32.
#include "quantize/packed_quality.h"
#include "support/test_data.h"

namespace penstock {
namespace {

struct Checkpoint {
  const char *name, *file, *vocabulary;
  std::vector<const char*> types;
};

class RealCheckpoints : public ::testing::TestWithParam<Checkpoint> {};

TEST_P(RealCheckpoints, PackedIsAsGoodAsF32) {
  REQUIRE_TEST_DATA("models");
  for (const char* type : GetParam().types) {
    SCOPED_TRACE(type);
    const TempDir dir;
    QuantizeJob job;
    job.in = test_data_dir() / "models" / GetParam().file;
    job.out = dir / "packed.gguf";
    job.threads = 1;
    job.recipe.type = type;
    const auto done = quantize(job);
    ASSERT_TRUE(done) << done.error().message;
    testing::expect_packed_quality(job.out, dir, testing::story_tokens(GetParam().vocabulary));
  }
}

// Their rows are too short for blocks of 256.
const std::vector<const char*> kTypes = {"f16",  "bf16", "q8_0",   "q5_0", "q5_1",
                                         "q4_0", "q4_1", "iq4_nl", "mxfp4"};
INSTANTIATE_TEST_SUITE_P(
    All, RealCheckpoints,
    ::testing::Values(Checkpoint{"stories260K", "stories260K-f32.gguf", "tok512", kTypes},
                      Checkpoint{"stories3M", "stories3M-q8_0.gguf", "tok4096", kTypes},
                      Checkpoint{
                          "bitllama", "bitllama-3m-tq2_0.gguf", "tok512", {"tq2_0", "tq1_0"}}),
    [](const ::testing::TestParamInfo<Checkpoint>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace penstock
