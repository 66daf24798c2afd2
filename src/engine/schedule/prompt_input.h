// Input of a prompt beside its token ids: rows in place of embeddings (pictures, sounds, embeddings
// that a caller made), and positions on several axes. Immutable; shared by the sequences of a
// request.
#pragma once
#include <vector>

#include "draft/block_allocator.h"
#include "ops/batch.h"

namespace penstock {

struct PromptInput {
  // Ascending, disjoint; `first` is an index in the prompt. The values live as long as the request.
  std::vector<GivenRows> rows;
  // Origin of each of `rows`: the hash of the picture that it is a part of, and its first row there.
  struct Identity {
    BlockHash whole;
    int first_row = 0;
  };
  std::vector<Identity> identities;
  int levels = 1, dim = 0;  // of all rows
  // Batch::encoded; empty without an encoder.
  std::span<const float> encoded;
  AttentionWatch* watch = nullptr;  // Batch::watched; lives as long as the request
  // The tokens of each of `rows` see each other, so a step has all of them.
  bool parts_see = false;
  TokenId given_token = -1;  // BatchPart::given_token
  // BatchPart::axes of the prompt's tokens, and BatchPart::axis_delta of later ones
  std::vector<AxisPosition> axes;
  int axis_delta = 0;

  // Returns the index of the first token in [first, end) that has a given row, or `end`.
  int first_given(int first, int end) const;
  // Returns how many of `count` tokens from `first` on are a step's: no part that sees itself is cut.
  // `most`: the most that a step may have, for a part at its beginning. 0: the next part is longer.
  int without_cut(int first, int count, int most) const;
  // Returns the hash of a block that holds the tokens [first, end), whose ids have the hash `ids`.
  BlockHash with_rows(BlockHash ids, int first, int end) const;

 private:
  // Returns the index of the first rows that end behind a token.
  size_t first_behind(int token) const;
};

}  // namespace penstock
