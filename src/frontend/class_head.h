// The head of a classifier or a reranker: what makes logits of an encoder's or a decoder's states.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "formats/weight_source.h"
#include "frontend/sentence_modules.h"

namespace penstock {

struct ClassHead {
  Pooling pooling = Pooling::kCls;
  std::vector<DenseModule> dense;   // the last gives the logits
  std::vector<std::string> labels;  // of the logits; "LABEL_0", ... where the checkpoint has no names
  enum class Activation { kNone, kSigmoid, kSoftmax };
  Activation activation = Activation::kNone;  // of logits to probabilities

  int n_classes() const { return dense.back().rows; }
};

// Of transformers' ...ForSequenceClassification, and of GGUF files of llama.cpp's rerankers; `source` is the model's, dim that of
// its states. Nothing where there is no head. Activations are those of vLLM: what config.json says (sentence-transformers'
// activation_fn, else problem_type), else sigmoid of one class and softmax of several. Errors: kCorruptFile (a tensor of the head is
// missing or misshapen), kUnsupported (a head of another kind).
Result<std::optional<ClassHead>> read_class_head(const WeightSource& source, int dim, bool causal);

}  // namespace penstock
