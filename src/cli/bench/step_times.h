// Measures the duration of a model's steps on this machine, as input of `plan --spec`, of `plan
// --first-token` and of the benchmarks of speculation.
#pragma once
#include <vector>

#include "base/result.h"
#include "formats/weight_source.h"
#include "ops/ops.h"

namespace penstock {

double median(std::vector<double> values);  // REQUIRES: not empty

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

struct DepthTimesConfig {
  OpsConfig ops = {};
  CacheTypes cache = KvDType::kF16;
  int block_size = 16;
  int chunk = 512;                // tokens of a step of a prompt
  std::vector<int> depths = {0};  // tokens in the cache before the step, ascending
  int repetitions = 3;            // of each step of a prompt; of decoding five times as many
  double enough_seconds = 30;     // of steps of a prompt, after which no repetition begins
};

// Medians of the steps behind one depth.
struct DepthTimes {
  int depth = 0;
  double chunk_seconds = 0;  // a step of `chunk` tokens of a prompt
  double token_seconds = 0;  // a step of one token
};

struct DepthMeasurement {
  std::vector<DepthTimes> times;    // [depths]
  int64_t active_weight_bytes = 0;  // that a token reads
  MachineLimits limits;
};

// Runs steps of one sequence behind each of the depths in turn. What is in the cache is not computed
// but made up, so a depth costs its memory and no time. Errors: those of the model and of the cache.
Result<DepthMeasurement> measure_depth_times(const WeightSource& source,
                                             const DepthTimesConfig& config);

}  // namespace penstock
