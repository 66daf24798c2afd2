// The head of a classifier or a reranker: what makes logits of an encoder's or a decoder's states.
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
  std::vector<DenseModule> dense;   // the last gives the logits
  std::vector<std::string> labels;  // of the logits; "LABEL_0", ... where the checkpoint has no names
  enum class Activation { kNone, kSigmoid, kSoftmax };
  Activation activation = Activation::kNone;  // of logits to probabilities
  bool of_tokens = false;                     // reads the state of each token, not what is pooled of them

  // Whether each token's state can be read: the head is one of tokens, or one matrix that a decoder's last state goes through.
  bool reads_tokens() const { return of_tokens || (pooling == Pooling::kLast && dense.size() == 1); }

  int n_classes() const { return dense.back().rows; }
};

// Of transformers' ...ForSequenceClassification and ...ForTokenClassification, and of GGUF files of llama.cpp's rerankers; `source`
// is the model's, dim that of its states. A decoder whose config.json has vLLM's `classifier_from_token` (token names) is a classifier
// by the rows of these tokens in its output matrix; `tokenizer`, which may be null, knows them. Nothing where there is no head. Activations are those of vLLM: what config.json says (sentence-transformers'
// activation_fn, else problem_type), else sigmoid of one class and softmax of several. Errors: kCorruptFile (a tensor of the head is
// missing or misshapen), kUnsupported (a head of another kind).
Result<std::optional<ClassHead>> read_class_head(const WeightSource& source, int dim, bool causal,
                                                 const Tokenizer* tokenizer);

}  // namespace penstock
