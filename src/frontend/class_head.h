// The head of a classifier or a reranker, which maps an encoder's or a decoder's states to logits.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "formats/weight_source.h"
#include "frontend/sentence_modules.h"
#include "text/tokenizer.h"

namespace penstock {

struct ClassHead {
  Pooling pooling = Pooling::kCls;
  // layers in order; the last one gives the logits
  std::vector<DenseModule> dense;
  // names of the classes; "LABEL_0", ... where the checkpoint has none
  std::vector<std::string> labels;
  enum class Activation { kNone, kSigmoid, kSoftmax };
  Activation activation = Activation::kNone;  // function from logits to probabilities
  // the head reads each token's state instead of the pooled state
  bool of_tokens = false;

  // Whether the head can be applied to each token's state: it is a token head, or a single matrix
  // on a decoder's last state.
  bool reads_tokens() const {
    return of_tokens || (pooling == Pooling::kLast && dense.size() == 1);
  }

  int n_classes() const { return dense.back().rows; }
};

// Reads the head of transformers' ...ForSequenceClassification and ...ForTokenClassification or of
// a GGUF file of one of llama.cpp's rerankers. source: the model's weights; dim: size of its
// states. A decoder whose config.json has vLLM's `classifier_from_token` (token names) is a
// classifier by the rows of these tokens in its output matrix; tokenizer: maps the names to ids;
// may be null. Returns nullopt when there is no head. Activations are those of vLLM: what
// config.json says (sentence-transformers' activation_fn, else problem_type), else sigmoid of one
// class and softmax of several. Errors: kCorruptFile (a tensor of the head is missing or
// misshapen), kUnsupported (another kind of head).
Result<std::optional<ClassHead>> read_class_head(const WeightSource& source, int dim, bool causal,
                                                 const Tokenizer* tokenizer);

}  // namespace penstock
