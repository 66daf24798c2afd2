// How long a model's steps take here: what `plan --spec` and the benches of speculation calculate with.
#pragma once
#include <vector>

#include "base/result.h"
#include "formats/weight_source.h"
#include "ops/ops.h"

namespace penstock {

struct StepTimesConfig {
  OpsConfig ops = {};
  int context = 64;      // tokens in the cache before the step
  int max_rows = 1;      // rows of one step, from 1 to this many
  int repetitions = 13;  // taken in turn; of each the lower quartile, since a busy machine only adds time
};

// [i]: seconds of a step of i + 1 tokens of one sequence, with the logits of every token.
Result<std::vector<double>> measure_step_times(const WeightSource& source, const StepTimesConfig& config);

}  // namespace penstock
