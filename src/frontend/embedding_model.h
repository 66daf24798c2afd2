// Functions on an EmbeddingModel beyond its public interface. REQUIRES: the model was made by
// EmbeddingModel::open().
#pragma once
#include <string>

#include "penstock/embed.h"
#include "penstock/metrics.h"
#include "text/tokenizer.h"

namespace penstock {

// Returns the model's tokenizer, which lives as long as the model; null: the checkpoint has none.
const Tokenizer* tokenizer_of(const EmbeddingModel& model);
// Returns ok, or the error after which the model cannot compute any more (one of several ranks has
// ended). Does not block. Thread-safe.
Status status_of(const EmbeddingModel& model);
// Sets the metrics of the ranks that share the model. Thread-safe.
void set_ranks(const EmbeddingModel& model, Metrics& metrics);

// Whether a checkpoint was made for vectors, classes or scores: it gives no text, or has
// sentence-transformers' modules, a classification head or a GGUF pooling type. Errors: those of
// open_weights().
Result<bool> is_made_for_pooling(const std::string& model);

}  // namespace penstock
