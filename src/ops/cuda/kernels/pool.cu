#include "ops/cuda/kernels/pool.h"

#include "ops/cuda/kernels/state_rows.h"
#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {
namespace {

// The tokens of a sequence by their index in it.
struct PooledSequence {
  const PooledTokens& k;
  StateRows rows;
  int before;  // tokens before the step

  PENSTOCK_DEVICE PooledSequence(const PooledTokens& of, int sequence)
      : k(of),
        rows(*of.batch, of.states, sequence),
        before(of.batch->seq_lens[sequence] - rows.n) {}
  // Place in a state of a token's key or score.
  PENSTOCK_DEVICE int64_t at(bool score, int token, int column) const {
    const int n = k.taps - 1;
    return static_cast<int64_t>((score ? n : 0) + token % n) * k.keys.cols + column;
  }
  // The value of a token for the block that ends with token `last`.
  template <class T>
  PENSTOCK_DEVICE float value(const T* states, bool score, int token, int last, int column) const {
    if (token < before)
      return widened(states[k.states.of_block(rows.blocks[0]) + at(score, token, column)]);
    const float own = (score ? k.scores : k.keys).row(rows.first + token - before)[column];
    if (token == last) return own;
    T stored;
    put(own, stored);
    return widened(stored);
  }
};

}  // namespace

PENSTOCK_BODY void PoolKeys::operator()(const Thread& t) const {
  const int feature = t.y * kThreads + t.index, features = out.cols;
  if (feature >= features) return;
  float& to = out.row(t.x)[feature];
  to = 0.0f;
  if (t.x >= batch->n_tokens) return;
  const PooledSequence sequence(*this, batch->sequences[t.x]);
  const int last = sequence.before + t.x - sequence.rows.first;
  if ((last + 1) % pool != 0) return;
  const int first = last + 1 < taps ? 0 : last + 1 - taps;
  // Of overlapping blocks the first half of the columns is for the block behind a token's own.
  const bool overlaps = keys.cols > features;
  const auto column_of = [&](int token) {
    return feature + (overlaps && token > last - pool ? features : 0);
  };
  states.with_values([&](const auto* values) {
    const auto score_of = [&](int token) {
      const int column = column_of(token);
      return sequence.value(values, true, token, last, column) +
             places[token % pool * keys.cols + column];
    };
    float most = -INFINITY, sum = 0.0f, mean = 0.0f;
    for (int token = first; token <= last; ++token) most = fmaxf(most, score_of(token));
    for (int token = first; token <= last; ++token) {
      const float weight = expf(score_of(token) - most);
      sum += weight;
      mean += weight * sequence.value(values, false, token, last, column_of(token));
    }
    to = mean / sum;
  });
}
PENSTOCK_KERNEL(PoolKeys)

// With a block per token, that of the first has the state before all and is written last.
PENSTOCK_BODY void KeepPooled::operator()(const Thread& t) const {
  const int column = t.y * kThreads + t.index, n_kept = taps - 1;
  if (t.x >= batch->n_seqs || column >= keys.cols) return;
  const PooledSequence sequence(*this, t.x);
  const StateRows& rows = sequence.rows;
  states.with_values([&](auto* values) {
    // Values of tokens [first, last] of the step, and, copied, of those before.
    const auto keep = [&](int block, int last, bool copies) {
      auto* const to = values + states.of_block(rows.blocks[block]);
      for (int token = last - n_kept + 1 > 0 ? last - n_kept + 1 : 0; token <= last; ++token) {
        if (token < sequence.before && !copies) continue;
        for (int score = 0; score < 2; ++score)
          put(sequence.value(values, score == 1, token, token, column),
              to[sequence.at(score == 1, token, column)]);
      }
    };
    if (!rows.each) return keep(0, sequence.before + rows.n - 1, false);
    for (int i = rows.n - 1; i >= 0; --i) keep(i, sequence.before + i, i > 0);
  });
}
PENSTOCK_KERNEL(KeepPooled)

namespace {

PENSTOCK_DEVICE int token_of(const BatchOnDevice& batch, int row) {
  const int token = batch.tokens[row];
  return token < 0 ? batch.drawn[-1 - token] : token;
}

template <class T>
PENSTOCK_DEVICE int stored_token(const RecentTokens& k, const T* at) {
  uint32_t code = 0;
  for (int i = 0; i < RecentTokens::kParts; ++i)
    code |= static_cast<uint32_t>(widened(at[i])) << (RecentTokens::kPartBits * i);
  return code == 0 ? k.end_token : static_cast<int>(code - 1);
}

template <class T>
PENSTOCK_DEVICE void store_token(const RecentTokens& k, int token, T* at) {
  const uint32_t code = token == k.end_token ? 0 : static_cast<uint32_t>(token) + 1;
  for (int i = 0; i < RecentTokens::kParts; ++i)
    put(static_cast<float>(code >> (RecentTokens::kPartBits * i) & 0xffu), at[i]);
}

// Token `at` of the step's tokens of a sequence; below 0 those before it.
template <class T>
PENSTOCK_DEVICE int token_at(const RecentTokens& k, const StateRows& rows, const T* values,
                             int at) {
  if (at >= 0) return token_of(*k.batch, rows.first + at);
  if (rows.fresh) return k.end_token;
  return stored_token(
      k, values + k.states.of_block(rows.blocks[0]) + (k.n - 1 + at) * RecentTokens::kParts);
}

}  // namespace

PENSTOCK_BODY void ListRecent::operator()(const Thread& t) const {
  const int row = t.x * kThreads + t.index;
  if (row >= rows || row >= batch->n_tokens) return;
  const StateRows of(*batch, states, batch->sequences[row]);
  states.with_values([&](const auto* values) {
    for (int i = 0; i < n; ++i)
      recent[static_cast<int64_t>(row) * n + i] = token_at(*this, of, values, row - of.first - i);
  });
}
PENSTOCK_KERNEL(ListRecent)

// A state is shifted from its oldest token on; blocks of later tokens first, as in KeepPooled.
PENSTOCK_BODY void KeepRecent::operator()(const Thread& t) const {
  if (t.x >= batch->n_seqs || t.index != 0) return;
  const StateRows rows(*batch, states, t.x);
  states.with_values([&](auto* values) {
    const auto keep = [&](int block, int last) {
      auto* const to = values + states.of_block(rows.blocks[block]);
      for (int i = 0; i < n - 1; ++i)
        store_token(*this, token_at(*this, rows, values, last - (n - 2) + i), to + i * kParts);
    };
    if (!rows.each) return keep(0, rows.n - 1);
    for (int i = rows.n - 1; i >= 0; --i) keep(i, i);
  });
}
PENSTOCK_KERNEL(KeepRecent)

PENSTOCK_BODY void ListTokens::operator()(const Thread& t) const {
  const int row = t.x * kThreads + t.index;
  if (row < batch->n_tokens) tokens[row] = token_of(*batch, row);
}
PENSTOCK_KERNEL(ListTokens)

}  // namespace penstock::cuda
