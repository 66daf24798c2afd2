// Measures the time of steps of few rows and of a drafter's passes before the first request comes.
#pragma once
#include "engine/compute/step_model.h"
#include "engine/steps/speculation.h"

namespace penstock {

struct CalibrationConfig {
  int n_groups = 1;  // groups of the cache
  int block_size = 16;
  int state_group = -1;  // CacheSpec::state_group()
  // most rows of a step; within what the cache, the model and a step's tokens allow
  int max_rows = 32;
  double seconds = 0.15;  // work time after which no new step is begun
};

// Computes steps of one sequence in the first blocks of every group and passes the shortest time of
// each size to `speculation`, since a busy machine only adds time. Then a drafter with weights of
// its own drafts for a sequence that it forgets again: its first passes may prepare its weights.
// REQUIRES: the cache is empty; the content of these blocks is lost.
void calibrate(StepModel& model, const CalibrationConfig& config, Speculation& speculation);

}  // namespace penstock
