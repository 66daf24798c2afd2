// Parameters of attention over the cache (Ops::attend, Ops::store_and_attend).
#pragma once
#include "ops/tensor.h"

namespace penstock {

class Vector;

// Terms of scores that depend on the distance from a query's token to a key's (its position less the
// query's). Each distance has a column of the terms.
struct RelativeTerms {
  // [2 * reach + 1] columns of distances -reach to reach, whole numbers below n_columns; the
  // outermost ones are those of all larger distances. null: there are no terms.
  const Vector* columns = nullptr;
  int n_columns = 0;
  // The term of head h for column c is at h * n_columns + c: of a table [n_heads * n_columns] for
  // all tokens, or null; of the query's token, and of the key's, each [n_tokens, n_heads *
  // n_columns] or without columns. Their sum is added to the scaled score. REQUIRES: not both table
  // and of_query; with of_key, sequences are whole in the step.
  const Vector* table = nullptr;
  Tensor of_query = {}, of_key = {};
};

// Entries that attention reads beside the tokens of a window: entry w stands for the sequence's tokens
// from ratio * w on. It is kept with the last of them, in a layer of the cache whose heads have the
// sizes of the tokens' own layer, and is visible from that token on.
struct EntryParams {
  int layer = 0;  // of the cache
  int ratio = 0;  // tokens of an entry; 0 = there are no entries
  // [tokens, most entries]: places of the selected entries, from Ops::select(), in rows of tokens
  // that see more; no columns: all that are visible.
  Tensor selected = {};
};

struct AttentionParams {
  int layer = 0;
  // query heads; K and V heads are in the cache spec
  int n_heads = 0;
  float scale = 1.0f;    // multiplies q.k
  float softcap = 0.0f;  // 0 = off; cap * tanh(score / cap)
  // [n_heads] or null. Attention sinks: the score of a token without a value that joins each head's
  // softmax.
  const Vector* sinks = nullptr;
  // [n_heads] or null (ALiBi): slope * |key's position - query's position| is subtracted from every
  // score.
  const Vector* slopes = nullptr;
  // Sparse attention: what each token attends to, from Ops::select(). No columns: all that it sees.
  // REQUIRES: the layer has no window; there are neither slopes nor relative terms.
  Tensor selected = {};
  int selected_pool = 1;  // SelectParams::pool of that selection
  // Each KV head has a selection of its own, of whole blocks of so many tokens
  // (SelectParams::block); 0: all heads attend to the same tokens.
  int selected_block = 0;
  RelativeTerms relative = {};
  // One softmax over the tokens of the layer's window, these entries and the sink. REQUIRES: the
  // layer has a window; there are no slopes, no relative terms, no selected tokens and no trees of drafts that branch.
  EntryParams entries = {};

  // [tokens, n_heads] or no columns: attention sinks of each token. REQUIRES: has_all(); there are
  // no other sinks, no selected tokens and no entries.
  Tensor token_sinks = {};

  // SelectParams::most() of that selection
  int selected_most(int n_kv_heads) const {
    return selected_block > 0 ? selected.cols / n_kv_heads : selected.cols;
  }
};

}  // namespace penstock
