// GPTQ: inputs are rounded one after another, and the error of each in the output is compensated by
// the inputs not yet rounded, using the Hessian of the calibration text.
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
  double rounded_error = 0;  // the same for rounding to nearest
  // outputs for which rounding to nearest was better and was kept
  int n_rounded_rows = 0;
};

// values: [rows, cols]; hessian: [cols, cols], symmetric. error <= rounded_error always.
GptqResult gptq(ThreadPool& pool, const GptqOptions& options, const std::vector<float>& values,
                int rows, int cols, const Eigen::MatrixXf& hessian);

}  // namespace penstock
