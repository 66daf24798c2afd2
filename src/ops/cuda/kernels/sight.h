// Visibility: which tokens of its sequence a token attends to.
#pragma once
#include "ops/cuda/kernels/attention.h"
#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {

inline constexpr float kNothing = -INFINITY;

PENSTOCK_DEVICE int bits_of(uint64_t mask) {
  int n = 0;
  for (; mask != 0; mask &= mask - 1) ++n;
  return n;
}

// The tokens of its sequence that a token sees.
struct Sight {
  // candidates [first, end), by index in the sequence
  int sequence, first, end;
  // with a mask: tokens from here on are seen only if their bit is set
  int tree_begin;
  uint64_t mask;
  int position;

  PENSTOCK_DEVICE bool sees(int index) const {
    if (index < first || index >= end) return false;
    return mask == 0 || index < tree_begin || (mask >> (index - tree_begin) & 1) != 0;
  }
  // Position of a visible token: a draft's depth is its number of ancestors.
  PENSTOCK_DEVICE int position_of(int index) const {
    if (mask == 0 || index <= tree_begin) return index;
    return tree_begin + bits_of(mask & ((uint64_t{1} << (index - tree_begin)) - 1));
  }
};

// mask: the token's tree mask, or 0 for its visibility without one.
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
    // Drafts of one depth lie one after another, so a window that begins among drafts is counted by
    // depth: the first ancestors lose their bits, and positions are relative to the rest.
    for (; sight.first > sight.tree_begin; --sight.first, --sight.position)
      sight.mask &= sight.mask - 1;
  } else if (k.both_ways) {
    const int last = sight.position + k.window;  // exclusive
    sight.end = k.window > 0 && last < len ? last : len;
  } else if (k.sees_parts && batch.sights != nullptr && batch.sights[token] > sight.end) {
    sight.end = batch.sights[token];
  }
  return sight;
}

PENSTOCK_DEVICE Sight sight_of(const AttentionOnDevice& k, int token) {
  return sight_of(k, token, k.batch->tree_masks[token]);
}

// Number of a token's pieces, if it is split (BatchOnDevice::first_pieces).
PENSTOCK_DEVICE int pieces_of(const BatchOnDevice& batch, int token) {
  constexpr int kTokens = BatchOnDevice::kPieceTokens;
  return (batch.seq_lens[batch.sequences[token]] + kTokens - 1) / kTokens;
}

}  // namespace penstock::cuda
