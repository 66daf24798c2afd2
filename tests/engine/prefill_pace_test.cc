#include "engine/schedule/prefill_pace.h"

#include <gtest/gtest.h>

#include <random>

namespace penstock {
namespace {

// Milliseconds of a step on a machine whose kernels work on 32 rows at a time, then on many.
double step_time(int n_decoding, int n_prompt) {
  const int rows = n_decoding + n_prompt;
  return rows <= 32 ? 32 + 0.6 * rows : 60 + 0.75 * rows;
}

// A batch with prompts to take in at every step; the last prompt tokens per step.
int settle(PrefillPace& pace, int n_decoding, int n_prompts, double noise, int steps = 300) {
  std::mt19937 random(1);
  std::exponential_distribution<double> slower(1);
  int last = 0;
  pace.note(0, 512, step_time(0, 512));
  for (int i = 0; i < steps; ++i) {
    const int n = pace.limit(n_decoding, n_prompts);
    if (n > 0) last = n;
    pace.note(n_decoding, n, step_time(n_decoding, n) * (1 + noise * slower(random)));
  }
  return last;
}

TEST(PrefillPace, StretchesAStepByTheSameFactor) {
  for (const int n : {4, 16, 64}) {
    PrefillPace pace(2048, n);
    const int tokens = settle(pace, n, 8, 0);
    EXPECT_NEAR(step_time(n, tokens) / step_time(n, 0), 2.8, 0.3) << n << " decode";
  }
}

TEST(PrefillPace, ThinnedBatchesFillUpAtThePaceOfFullOnes) {
  PrefillPace pace(2048, 64);
  settle(pace, 64, 8, 0);
  const int full = pace.limit(64, 8);
  EXPECT_GT(pace.limit(16, 48), full) << "fewer rows decode in the same time";
  EXPECT_LT(pace.limit(16, 0), full) << "nobody waits";
}

TEST(PrefillPace, TakesLessPerStepWhilePlacesAreToSpareAndPromptsFew) {
  PrefillPace spare(2048, 64);
  settle(spare, 16, 9, 0);
  const double haste = spare.limit(16, 9);
  EXPECT_NEAR(spare.limit(16, 8) / haste, 0.7, 0.05) << "half as many prompts as decode are few";
  PrefillPace full(2048, 18);
  settle(full, 16, 9, 0);
  EXPECT_EQ(full.limit(16, 2), full.limit(16, 9)) << "no place is to spare";
}

TEST(PrefillPace, DisturbedStepsMoveItLittle) {
  PrefillPace quiet(2048, 16), noisy(2048, 16);
  const int tokens = settle(quiet, 16, 8, 0);
  const int disturbed = settle(noisy, 16, 8, 0.3);
  EXPECT_GT(disturbed, tokens / 2);
  EXPECT_LT(disturbed, tokens * 2);
}

TEST(PrefillPace, MeasuresStepsWithoutPromptsNowAndThen) {
  PrefillPace pace(2048, 16);
  settle(pace, 16, 8, 0);
  int without = 0;
  for (int i = 0; i < 200; ++i) {
    const int n = pace.limit(16, 8);
    without += n == 0;
    pace.note(16, n, step_time(16, n));
  }
  EXPECT_GE(without, 2);
  EXPECT_LE(without, 4);
}

TEST(PrefillPace, PromptsAloneAreNotLimited) {
  PrefillPace pace(2048, 16);
  EXPECT_EQ(pace.limit(0, 16), 2048);
  settle(pace, 16, 8, 0);
  EXPECT_EQ(pace.limit(0, 16), 2048);
}

TEST(PrefillPace, StaysWithinAStepsTokens) {
  PrefillPace pace(100, 8);
  for (int i = 0; i < 100; ++i) pace.note(2, pace.limit(2, 4), 0.01);  // prompt tokens cost nothing
  EXPECT_LE(pace.limit(2, 4), 100);
  PrefillPace tiny(8, 8);
  for (int i = 0; i < 100; ++i) tiny.note(2, tiny.limit(2, 4), 0.01);
  EXPECT_LE(tiny.limit(2, 4), 8);
}

}  // namespace
}  // namespace penstock
