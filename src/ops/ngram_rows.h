// Rows of n-grams on the host: which they are, and what they hold.
#pragma once
#include <cstdint>
#include <functional>
#include <span>

#include "base/thread_pool.h"
#include "ops/ngram_params.h"

namespace penstock {

// Writes the rows of a token, of each head. recent: the token, then the ngram_size - 1 before it.
void hash_ngrams(const NgramParams& params, const TokenId* recent, int64_t* rows);

// Decodes the i-th of these rows to to(i); the system is asked for all of them first.
void decode_ngram_rows(ThreadPool& pool, const RowTable& table, std::span<const int64_t> rows,
                       const std::function<float*(int64_t i)>& to);

}  // namespace penstock
