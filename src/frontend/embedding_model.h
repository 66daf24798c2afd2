// What the layers above know of an EmbeddingModel besides its interface. REQUIRES: a model that EmbeddingModel::open() made.
#pragma once
#include <string>

#include "penstock/embed.h"
#include "penstock/metrics.h"
#include "text/tokenizer.h"

namespace penstock {

// Null: the checkpoint has none. Lives as long as the model.
const Tokenizer* tokenizer_of(const EmbeddingModel& model);
// Ok, or why nothing can be computed any more: one of several ranks has ended. Never waits; any thread.
Status status_of(const EmbeddingModel& model);
// Those of the ranks that share it; any thread.
void set_ranks(const EmbeddingModel& model, Metrics& metrics);

// Whether a checkpoint was made for vectors, classes or scores: it gives no text, or has sentence-transformers' modules, a
// classification head or a GGUF pooling type. Errors: of opening it.
Result<bool> is_made_for_pooling(const std::string& model);

}  // namespace penstock
