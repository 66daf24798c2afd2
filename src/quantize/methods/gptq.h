// GPTQ: codes are chosen one input after the other, and what an input's rounding did to the output
// is made up for by the inputs that are still to come, as the Hessian of the calibration text says.
#pragma once
#include <Eigen/Core>

#include "base/thread_pool.h"
#include "quant/grouped_encode.h"
#include "quantize/plan/recipe.h"

namespace penstock {

struct GptqOptions {
  GroupCoding coding;
  ActOrder act_order = ActOrder::kStatic;
  double damping = 0.01;
};

struct GptqResult {
  GroupedCodes codes;
  // sum over outputs of d^T H d, d = the difference of the weights
  double error = 0;
  double rounded_error = 0;  // the same of rounding to nearest
  // outputs for which rounding to nearest was better, and taken
  int n_rounded_rows = 0;
};

// values: [rows, cols]; hessian: [cols, cols], symmetric. error <= rounded_error always.
GptqResult gptq(ThreadPool& pool, const GptqOptions& options, const std::vector<float>& values,
                int rows, int cols, const Eigen::MatrixXf& hessian);

}  // namespace penstock
