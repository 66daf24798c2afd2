// The modules that turn a model's states into a vector (pooling, dense layers, normalization), read
// from sentence-transformers' modules.json and the files that it names, or from a GGUF file's
// metadata.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/weight_source.h"
#include "penstock/embed.h"

namespace penstock {

// A dense layer: y = norm(f(W x + b)).
struct DenseModule {
  enum class Function { kNone, kTanh, kGelu, kRelu };
  int rows = 0, cols = 0;
  std::vector<float> weight;  // [rows, cols]
  std::vector<float> bias;    // [rows] or empty
  Function function = Function::kNone;
  std::vector<float> norm_weight, norm_bias;  // layer norm, [rows]; empty: none
  double norm_eps = 0;

  std::vector<float> apply(std::span<const float> in) const;
};

struct SentenceModules {
  std::vector<Pooling> poolings;  // empty: not specified
  std::vector<DenseModule> dense;
  bool normalize = false;
  // maximum tokens of a text; 0: the model's limit
  int max_tokens = 0;
  bool with_prompt = true;  // whether the prompt's tokens are pooled too
  std::map<std::string, std::string> prompts;
  std::string default_prompt;  // key into prompts, or ""
};

// source: the model's weights; dim: size of its states. Errors: kCorruptFile, kUnsupported (unknown
// modules and settings).
Result<SentenceModules> read_sentence_modules(const WeightSource& source, int dim);

}  // namespace penstock
