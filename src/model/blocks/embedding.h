// What stands before and behind the layers: tokens to the residual stream, and states to logits.
#pragma once
#include <string_view>

#include "penstock/types.h"

namespace penstock {

struct EmbeddingConfig {
  // Factor of embeddings.
  float scale = 1.0f;
  // Norm behind the embedding.
  bool norm = false;
  // Types of tokens, each with a vector that is added to their embeddings (BERT); 0 = none.
  int n_token_types = 0;
  // One table for embeddings and logits.
  bool tied = false;
};

struct PositionsConfig {
  // Table whose rows are added to embeddings, in the place of rotation.
  bool learned = false;
  // Rows that the table begins with and no position has (OPT); not loaded.
  int skipped = 0;
  // Table of sines and cosines that is not in the file (XGLM).
  bool computed = false;
  // Row of a sequence's first token (RoBERTa).
  int first = 0;
  // Token that has the row before the first and is not counted (RoBERTa's padding); -1 = none.
  TokenId uncounted = -1;
  // Rotation of adjacent pairs of a head's dimensions; false: of halves.
  bool rope_interleaved = false;
  // Rows of queries and keys lie as adjacent pairs in GGUF files, as halves in Hugging Face directories.
  bool rope_by_format = false;
};

struct OutputConfig {
  // Logits are computed; false: states are all there is (encoders).
  bool has_head = true;
  // Factor of logits.
  float scale = 1.0f;
  // Soft bound of logits, softcap * tanh(logit / softcap); 0 = no bound.
  float softcap = 0.0f;
};

std::string_view difference(const EmbeddingConfig& a, const EmbeddingConfig& b);
std::string_view difference(const PositionsConfig& a, const PositionsConfig& b);
std::string_view difference(const OutputConfig& a, const OutputConfig& b);

}  // namespace penstock
