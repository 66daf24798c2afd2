// Finds out what steps of few rows and a drafter's passes take before the first request comes.
#pragma once
#include "engine/compute/step_model.h"
#include "engine/steps/speculation.h"

namespace penstock {

struct CalibrationConfig {
  int n_groups = 1;  // of the cache
  int block_size = 16;
  int max_rows = 32;      // as far as the cache, the model and a step's tokens go
  double seconds = 0.15;  // of work: no new step is begun after so long
};

// Computes steps of one sequence in the first blocks of every group, whose content is lost: only before
// anything is in the cache. The shortest time of each size counts, since a busy machine only adds to it. Then the drafter, if it has
// weights of its own, guesses for a sequence that it forgets again: its first passes put them in order.
void calibrate(StepModel& model, const CalibrationConfig& config, Speculation& speculation);

}  // namespace penstock
