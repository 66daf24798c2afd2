// What follows a model's states on the way to a vector, by sentence-transformers' modules.json and the files that it names, or
// by a GGUF file's metadata.
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

// y = norm(f(W x + b)).
struct DenseModule {
  enum class Function { kNone, kTanh, kGelu, kRelu };
  int rows = 0, cols = 0;
  std::vector<float> weight;  // [rows, cols]
  std::vector<float> bias;    // [rows] or empty
  Function function = Function::kNone;
  std::vector<float> norm_weight, norm_bias;  // of a layer norm, [rows]; or empty
  double norm_eps = 0;

  std::vector<float> apply(std::span<const float> in) const;
};

struct SentenceModules {
  std::vector<Pooling> poolings;  // empty: nothing is said
  std::vector<DenseModule> dense;
  bool normalize = false;
  int max_tokens = 0;       // of a text; 0 = the model's limit
  bool with_prompt = true;  // the prompt's tokens are pooled too
  std::map<std::string, std::string> prompts;
  std::string default_prompt;  // its name, or ""
};

// `source` is the model's; dim is that of its states. Errors: kCorruptFile, kUnsupported (unknown modules and settings).
Result<SentenceModules> read_sentence_modules(const WeightSource& source, int dim);

}  // namespace penstock
