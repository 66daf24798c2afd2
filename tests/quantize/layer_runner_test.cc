// Passes that copy what earlier ones computed see what a pass that computes everything sees.
#include "quantize/methods/layer_runner.h"
#include "ops/cpu/host_tensor.h"
#include "support/test_data.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace penstock {
namespace {

using Pass = ObservingOps::Pass;

struct Heard {
  std::vector<std::vector<float>> inputs;  // of every call of the listener, in order
};

Heard run(LayerRunner& runner, bool keep, const Pass& pass) {
  Heard heard;
  runner.ops().listen([&](const Weight&, Tensor x, Tensor) {
    std::vector<float>& values = heard.inputs.emplace_back();
    for (int t = 0; t < x.rows; ++t) values.insert(values.end(), f32(x, t), f32(x, t) + x.cols);
  });
  EXPECT_TRUE(runner.run(keep, pass));
  runner.ops().listen({});
  return heard;
}

class Passes : public ::testing::TestWithParam<const char*> {};

TEST_P(Passes, CopyWhatIsKnown) {
  const auto source = open_weights(tests_dir() / "golden" / "models" / GetParam()).value();
  std::vector<std::vector<TokenId>> sequences;
  // More tokens than one batch takes, so that steps are told apart.
  for (int s = 0; s < 70; ++s) {
    sequences.emplace_back();
    for (int i = 0; i < 20 + s % 3; ++i) sequences.back().push_back((s * 5 + i * 7) % 50);
  }
  const auto runner = LayerRunner::open(*source, {2, true}, sequences).value();
  const bool moe = runner->config().experts.count > 0;
  ASSERT_TRUE(runner->load(0));
  const std::vector<float> before = runner->stream();
  const Heard all = run(*runner, false, {});
  run(*runner, true, {});
  const std::vector<float> wanted = runner->stream();
  runner->stream() = before;

  // Attention inputs, o's, gate and up's (the router's), down's (the experts'): the products 0, 2,
  // 3 and 4.
  const Pass passes[] = {
      {.stop = 0},
      {.stop = 2, .record_first = 1, .record_last = 1},
      {.stop = moe ? Pass::kNever : 3, .first = 1, .record_first = 2, .record_last = 2},
      {.stop = moe ? Pass::kNever : 4, .first = 2, .record_first = 3, .record_last = 3}};
  std::vector<std::vector<float>> seen;
  for (const Pass& pass : passes) {
    const Heard heard = run(*runner, false, pass);
    ASSERT_FALSE(heard.inputs.empty());
    seen.insert(seen.end(), heard.inputs.begin(), heard.inputs.end());
  }
  run(*runner, true, {.first = 2});
  EXPECT_EQ(runner->stream(), wanted);
  for (const std::vector<float>& input : all.inputs)
    EXPECT_NE(std::ranges::find(seen, input), seen.end()) << "an input that no pass saw";
  for (const std::vector<float>& input : seen)
    EXPECT_NE(std::ranges::find(all.inputs, input), all.inputs.end())
        << "an input that a whole pass does not see";
  if (moe) return;
  // Each product is heard where a pass stops and once more where it is computed, never twice.
  EXPECT_LT(seen.size(), 2 * all.inputs.size());
}

INSTANTIATE_TEST_SUITE_P(All, Passes, ::testing::Values("llama3", "gpt2", "qwen3", "mixtral"));

}  // namespace
}  // namespace penstock
