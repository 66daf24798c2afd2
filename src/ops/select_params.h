// Parameters of the selection of tokens for sparse attention (Ops::select).
#pragma once

namespace penstock {

// An indexer's scores of the tokens that a query sees: sum over heads of weight * max(0, q . k),
// with keys of one head that are a layer of the cache.
struct SelectParams {
  int layer = 0;    // of the cache
  int n_heads = 0;  // of queries
  int top_k = 0;    // tokens that are selected, a multiple of `pool`
  // Tokens that share a key and are selected together: the sequence's tokens from pool * b on are
  // block b. The key of a block is stored with its last token; those of other tokens are not read.
  // Tokens behind the last whole block that a query sees are selected too. > 1: without trees of
  // drafts that branch.
  int pool = 1;
  // > 0: each head of queries selects for itself, whole blocks of so many tokens, of which top_k is a
  // multiple. The score of a block is the greatest q . k of its tokens that the query sees, of any
  // sign. The n_local last blocks that it sees are always among them. REQUIRES: n_local is at least
  // 1 and at most top_k / block; pool is 1; there are no weights.
  int block = 0;
  int n_local = 0;
  // With `pool`: the last tokens of the selected blocks are listed, and no others. They are the places
  // of entries that stand for the blocks (EntryParams).
  bool entries = false;

  // most tokens that are selected
  int most() const { return top_k + pool - 1; }
  int n_selections() const { return block > 0 ? n_heads : 1; }
  int cols() const { return entries ? top_k / pool : n_selections() * most(); }
};

}  // namespace penstock
