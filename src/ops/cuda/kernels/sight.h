// What a token attends to of its sequence.
#pragma once
#include "ops/cuda/kernels/attention.h"

namespace penstock::cuda {

PENSTOCK_DEVICE int bits_of(uint64_t mask) {
  int n = 0;
  for (; mask != 0; mask &= mask - 1) ++n;
  return n;
}

// What a token sees of its sequence.
struct Sight {
  // the tokens [first, end) by index in the sequence
  int sequence, first, end;
  // with a mask: of those from here on the ones whose bit is set
  int tree_begin;
  uint64_t mask;
  int position;

  PENSTOCK_DEVICE bool sees(int index) const {
    if (index < first || index >= end) return false;
    return mask == 0 || index < tree_begin || (mask >> (index - tree_begin) & 1) != 0;
  }
  // Of a token that is seen: a draft is as deep as it has ancestors.
  PENSTOCK_DEVICE int position_of(int index) const {
    if (mask == 0 || index <= tree_begin) return index;
    return tree_begin + bits_of(mask & ((uint64_t{1} << (index - tree_begin)) - 1));
  }
};

// mask: the token's, or 0 for what it saw without.
PENSTOCK_DEVICE Sight sight_of(const AttentionOnDevice& k, int token, uint64_t mask) {
  const BatchOnDevice& batch = *k.batch;
  Sight sight;
  const int s = sight.sequence = batch.sequences[token];
  const int begin = batch.seq_offsets[s], n_new = batch.seq_offsets[s + 1] - begin,
            len = batch.seq_lens[s];
  const int index = len - n_new + token - begin;
  sight.mask = mask, sight.tree_begin = len - n_new;
  sight.position = sight.mask != 0 ? batch.positions[token] : index;
  sight.first = 0, sight.end = index + 1;
  if (k.window > 0) {
    const int within = sight.position + 1 - k.window;
    sight.first = k.chunked ? sight.position / k.window * k.window : within > 0 ? within : 0;
  }
  if (sight.mask != 0) {
    sight.end = sight.tree_begin;
    for (uint64_t rest = sight.mask; rest != 0; rest >>= 1) ++sight.end;
    // A draft lies behind others of its depth, so where its window begins among drafts is told by
    // their depth: that many ancestors are out of sight, and positions count from there.
    for (; sight.first > sight.tree_begin; --sight.first, --sight.position)
      sight.mask &= sight.mask - 1;
  } else if (k.both_ways) {
    const int last = sight.position + k.window;  // exclusive
    sight.end = k.window > 0 && last < len ? last : len;
  }
  return sight;
}

PENSTOCK_DEVICE Sight sight_of(const AttentionOnDevice& k, int token) {
  return sight_of(k, token, k.batch->tree_masks[token]);
}

// How many pieces a token has, where it has some (BatchOnDevice::first_pieces).
PENSTOCK_DEVICE int pieces_of(const BatchOnDevice& batch, int token) {
  constexpr int kTokens = BatchOnDevice::kPieceTokens;
  return (batch.seq_lens[batch.sequences[token]] + kTokens - 1) / kTokens;
}

}  // namespace penstock::cuda
