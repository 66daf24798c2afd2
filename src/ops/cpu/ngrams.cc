#include "ops/cpu/ngrams.h"

#include "base/check.h"
#include "base/half.h"
#include "ops/cpu/host_tensor.h"
#include "ops/cpu/state_runs.h"
#include "ops/ngram_rows.h"

namespace penstock {
namespace {

constexpr int kParts = NgramParams::kTokenParts;
constexpr int kPartBits = 8;

float to_number(float value) { return value; }
float to_number(BFloat16 value) { return to_float(value); }
void put_number(float value, float& to) { to = value; }
void put_number(float value, BFloat16& to) { to = to_bfloat16(value); }

// A token in a state: zeros are the end token, other tokens are stored plus one.
template <class T>
TokenId stored_token(const T* at, TokenId end_token) {
  uint32_t code = 0;
  for (int i = 0; i < kParts; ++i)
    code |= static_cast<uint32_t>(to_number(at[i])) << (kPartBits * i);
  return code == 0 ? end_token : static_cast<TokenId>(code - 1);
}

template <class T>
void store_token(TokenId token, TokenId end_token, T* at) {
  const uint32_t code = token == end_token ? 0 : static_cast<uint32_t>(token) + 1;
  for (int i = 0; i < kParts; ++i)
    put_number(static_cast<float>(code >> (kPartBits * i) & 0xff), at[i]);
}

// Rows of the tokens of one run, and the state after it.
template <class T>
void hash_run(const RecurrenceContext& context, const NgramParams& params, const StateRun& run,
              int64_t* rows) {
  const int before = params.ngram_size - 1;
  const size_t heads = params.sizes.size();
  T* const state = begin_state<T>(context.cache, params.layer, run, params.state_offset,
                                  NgramParams::state_values(params.ngram_size));
  TokenId recent[kMostNgram];
  // The state has the oldest token first.
  const auto token_at = [&](int t) {
    return t >= 0 ? context.batch.tokens[static_cast<size_t>(run.first + t)]
                  : stored_token(state + (before + t) * kParts, params.end_token);
  };
  for (int t = 0; t < run.n; ++t) {
    for (int i = 0; i <= before; ++i) recent[i] = token_at(t - i);
    hash_ngrams(params, recent, rows + static_cast<size_t>(run.first + t) * heads);
  }
  for (int i = 0; i < before; ++i) recent[i] = token_at(run.n - before + i);
  for (int i = 0; i < before; ++i) store_token(recent[i], params.end_token, state + i * kParts);
}

template <class T>
void hash_all(const RecurrenceContext& context, const NgramParams& params, int64_t* rows) {
  const KvView& states = context.batch.kv[static_cast<size_t>(context.cache.spec().state_group())];
  for (size_t s = 0; s < static_cast<size_t>(context.batch.n_seqs()); ++s)
    for_each_run(context.batch, states, s, false,
                 [&](const StateRun& run) { hash_run<T>(context, params, run, rows); });
}

}  // namespace

void cpu_embed_ngrams(const RecurrenceContext& context, const NgramParams& params, Tensor out) {
  const RowTable& table = *params.table;
  const auto heads = static_cast<int64_t>(params.sizes.size());
  PENSTOCK_CHECK(params.ngram_size <= kMostNgram && out.cols == heads * table.n_cols());
  context.scratch.reset();
  const int64_t n = context.batch.n_tokens() * heads;
  auto* rows = context.scratch.allocate_array<int64_t>(static_cast<size_t>(n));
  context.cache.spec().state_dtype == StateDType::kF32 ? hash_all<float>(context, params, rows)
                                                       : hash_all<BFloat16>(context, params, rows);
  decode_ngram_rows(context.pool, table, {rows, static_cast<size_t>(n)}, [&](int64_t i) {
    return f32(out, static_cast<int>(i / heads)) + i % heads * table.n_cols();
  });
}

}  // namespace penstock
