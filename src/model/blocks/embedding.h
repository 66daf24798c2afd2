// Configuration of the embedding before the layers and of the output layer after them.
#pragma once
#include <string_view>

#include "penstock/types.h"

namespace penstock {

struct EmbeddingConfig {
  // Multiplies embeddings.
  float scale = 1.0f;
  // A norm follows the embedding.
  bool norm = false;
  // That norm has no weights (Muse Glimmer).
  bool bare_norm = false;
  // Features of the embedding tables, from which a projection makes those of the stream; 0 = the
  // stream's (ALBERT).
  int width = 0;
  // Rows of the tables in the file, of which the first ones are tokens; 0 = all of them.
  int n_rows = 0;
  // Number of token types, each with a vector that is added to the embeddings (BERT); 0 = none.
  int n_token_types = 0;
  // Number of leading layers behind each of which a level of the given rows is added (GivenRows;
  // DeepStack).
  int deep_levels = 0;
  // The embedding table is also the output matrix.
  bool tied = false;
};

struct PositionsConfig {
  // Learned positions: rows of a table are added to embeddings, and nothing is rotated.
  bool learned = false;
  // Leading rows of the table that belong to no position (OPT); they are not loaded.
  int skipped = 0;
  // The table consists of sines and cosines and is not in the file (XGLM).
  bool computed = false;
  // Row of the first token of a sequence (RoBERTa).
  int first = 0;
  // Token that takes the row before `first` and is not counted (RoBERTa's padding); -1 = none.
  TokenId uncounted = -1;
  // Rotation (RoPE) of adjacent pairs of a head's dimensions; false: of dimension i and i +
  // rotary_dim / 2.
  bool rope_interleaved = false;
  // Rows of queries and keys are stored for adjacent pairs in GGUF files, for halves in Hugging
  // Face directories.
  bool rope_by_format = false;
};

struct OutputConfig {
  // The model has an output layer; false: it only computes states (encoders).
  bool has_head = true;
  // Multiplies logits.
  float scale = 1.0f;
  // Soft bound of logits, softcap * tanh(logit / softcap); 0 = no bound.
  float softcap = 0.0f;
  // Rows of the output matrix, those of the vocabulary's first tokens; the logits of the others are so
  // low that they are impossible. 0: a row for every token.
  int rows = 0;
  // Rows of the file's output matrix are divided by their lengths (Baichuan 2).
  bool unit_rows = false;
};

std::string_view difference(const EmbeddingConfig& a, const EmbeddingConfig& b);
std::string_view difference(const PositionsConfig& a, const PositionsConfig& b);
std::string_view difference(const OutputConfig& a, const OutputConfig& b);

}  // namespace penstock
