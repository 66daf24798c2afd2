// Measures the difference between a quantized checkpoint and its original.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "penstock/types.h"

namespace penstock {

// Comparison of the variant's distributions p' with the original's p, over the scored tokens.
struct Agreement {
  int64_t n_tokens = 0;
  // mean negative log likelihood of the text, and its standard error
  double nll = 0, nll_error = 0;
  // standard error of nll - the original's nll (paired)
  double nll_difference_error = 0;
  double kl = 0, kl_error = 0;  // mean of sum p log(p / p')
  // share of tokens whose most likely token is p's; mean overlap of the five
  double top1 = 0, top5 = 0;
  double perplexity() const;
  double perplexity_error() const;
};

struct LayerError {
  std::string tensor;
  // ||x w'^T - x w^T|| / ||x w^T|| on the original's activations
  double relative = 0;
};

struct EvaluateOptions {
  int threads = 0;
  bool layers = true;
  std::function<void(int64_t done, int64_t total)> progress;
  std::function<bool()> should_stop;
};

struct Evaluation {
  // of the original itself: its likelihood, and trivial values for the rest
  Agreement reference;
  std::vector<Agreement> variants;                    // in the order given
  std::vector<std::vector<LayerError>> layer_errors;  // per variant, worst first
};

// Evaluates the original and the variants on the same token sequences with the engine's kernels. At
// most two models are loaded at a time: the original and one variant. Errors: those of loading;
// kInvalidArgument (another vocabulary); kCancelled.
Result<Evaluation> evaluate(const std::filesystem::path& original,
                            const std::vector<std::filesystem::path>& variants,
                            const std::vector<std::vector<TokenId>>& sequences,
                            const EvaluateOptions& options);

}  // namespace penstock
