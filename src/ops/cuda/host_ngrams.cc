#include "ops/cuda/host_ngrams.h"

#include <algorithm>

#include "base/check.h"
#include "ops/cuda/kernels/pool.h"
#include "ops/ngram_rows.h"

namespace penstock::cuda {

HostNgrams::Pinned HostNgrams::lay_out(Tensor out) const {
  auto* const values = reinterpret_cast<float*>(pinned_.data());
  const size_t n = static_cast<size_t>(out.rows) * static_cast<size_t>(out.cols);
  return {{values, DType::kF32, out.rows, out.cols, out.cols},
          reinterpret_cast<int32_t*>(values + n)};
}

void HostNgrams::embed(const NgramParams& params, const States& states, const BatchOnDevice* batch,
                       Tensor out) {
  static_assert(RecentTokens::kParts == NgramParams::kTokenParts);
  PENSTOCK_CHECK(params.ngram_size <= kMostNgram &&
                 out.cols == static_cast<int>(params.sizes.size()) * params.table->n_cols());
  const size_t n_values =
      static_cast<size_t>(out.rows) * static_cast<size_t>(out.cols + params.ngram_size);
  const std::byte* const before = pinned_.data();
  if (const Status room = pinned_.make_room(n_values * sizeof(float)); !room)
    return device_.give_up(room.error());
  if (pinned_.data() != before) graphs_.expire();
  const Pinned at = lay_out(out);
  const RecentTokens recent{params.ngram_size, params.end_token, at.recent, states, batch};
  constexpr int kThreads = RecentTokens::kThreads;
  device_.launch(ListRecent{recent, out.rows}, Grid{(out.rows + kThreads - 1) / kThreads});
  device_.launch(KeepRecent{recent}, Grid{out.rows});
  graphs_.between([this] { listed_ = device_.mark(); });
  graphs_.between([this, at, params] {
    device_.wait(listed_);
    if (device_.status()) decode(params, at);
  });
  ops_.copy(at.out, out);
}

// Rows beyond the batch are zeros.
void HostNgrams::decode(const NgramParams& params, const Pinned& at) {
  const auto heads = static_cast<int64_t>(params.sizes.size());
  const int n = std::min(n_tokens_, at.out.rows);
  rows_.resize(static_cast<size_t>(n * heads));
  for (int t = 0; t < n; ++t)
    hash_ngrams(params, at.recent + int64_t{t} * params.ngram_size, rows_.data() + t * heads);
  auto* const values = static_cast<float*>(at.out.data);
  decode_ngram_rows(pool_, *params.table, rows_,
                    [&](int64_t i) { return values + i * params.table->n_cols(); });
  std::fill(values + int64_t{n} * at.out.cols, values + int64_t{at.out.rows} * at.out.cols, 0.0f);
}

}  // namespace penstock::cuda
