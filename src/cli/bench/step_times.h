// Measures the duration of a model's steps on this machine, as input of `plan --spec` and of the
// benchmarks of speculation.
#pragma once
#include <vector>

#include "base/result.h"
#include "formats/weight_source.h"
#include "ops/ops.h"

namespace penstock {

struct StepTimesConfig {
  OpsConfig ops = {};
  // number of tokens in the cache before the step
  int context = 64;
  int max_rows = 1;  // measure steps of 1 to max_rows rows
  // Repetitions of each step, alternating; the lower quartile counts, since other load only adds
  // time.
  int repetitions = 13;
};

// Returns the step times: [i] is the seconds of a step of i + 1 tokens of one sequence, with the
// logits of every token.
Result<std::vector<double>> measure_step_times(const WeightSource& source,
                                               const StepTimesConfig& config);

}  // namespace penstock
