#include "ops/ngram_rows.h"

#include <sys/mman.h>

namespace penstock {
namespace {

int64_t modulo(int64_t value, int64_t divisor) {
  const int64_t rest = value % divisor;
  return rest < 0 ? rest + divisor : rest;
}

// Has the system read the pages of a row.
void read_ahead(std::span<const std::byte> bytes) {
  constexpr uintptr_t kPage = 4096;
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data()) / kPage * kPage,
             end = reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size();
  (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

}  // namespace

void hash_ngrams(const NgramParams& params, const TokenId* recent, int64_t* rows) {
  bool ended = false;
  uint64_t mixed = 0;
  for (int i = 0; i < params.ngram_size; ++i) {
    ended = ended || (i > 0 && recent[i] == params.end_token);
    const TokenId token = ended ? params.end_token : recent[i];
    mixed ^= static_cast<uint64_t>(token) *
             static_cast<uint64_t>(params.multipliers[static_cast<size_t>(i)]);
    for (int h = 0; i > 0 && h < params.heads_per_ngram; ++h) {
      const auto head = static_cast<size_t>((i - 1) * params.heads_per_ngram + h);
      rows[head] = modulo(static_cast<int64_t>(mixed), params.sizes[head]) + params.offsets[head];
    }
  }
}

void decode_ngram_rows(ThreadPool& pool, const RowTable& table, std::span<const int64_t> rows,
                       const std::function<float*(int64_t i)>& to) {
  const auto n = static_cast<int64_t>(rows.size());
  pool.for_ranges(n, 64, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) read_ahead(table.row(rows[static_cast<size_t>(i)]).bytes);
  });
  pool.for_ranges(n, 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const RowTable::Row row = table.row(rows[static_cast<size_t>(i)]);
      dequantize_row(row.type, row.bytes.data(), to(i), table.n_cols());
    }
  });
}

}  // namespace penstock
