#include "ops/cuda/kernels/wide_product.h"

#include "ops/cuda/kernels/wide_body.h"

namespace penstock::cuda {

PENSTOCK_BODY void RoundToTiles::operator()(const Thread& t) const {
  const int piece = t.y * kThreads + t.index, token = t.x, n_parts = sums != nullptr ? 2 : 1;
  const bool inside = piece * kPieceInputs < padded_cols;
  Words<4> hi = {}, lo = {};
  float sum = 0.0f;
  int from = token;
  float factor = 1.0f;
  if (sources != nullptr) {
    const int source = sources[token];
    from = source < 0 ? x.rows : source / n_active;
    if (source >= 0 && choice_weights != nullptr) factor = choice_weights[source];
  }
  if (inside && from < x.rows) {
    const float* const row = x.row(from);
    const auto at = [&](int k) {
      return k < x.cols ? factor * row[input_order != nullptr ? input_order[k] : k] : 0.0f;
    };
    for (int i = 0; i < 4; ++i) {
      const float first = at(piece * kPieceInputs + 2 * i), second = at(piece * kPieceInputs + 2 * i + 1);
      const SplitPair pair = split_pair(first, second);
      hi.words[i] = pair.hi, lo.words[i] = pair.lo;
      sum += first + second;
    }
  }
  std::byte* const to = out + (int64_t{piece / 8} * n_parts * padded_tokens + token) * kTileRowBytes +
                        (piece % 8 ^ token % 8) * 16;
  if (inside) *reinterpret_cast<Words<4>*>(to) = hi;
  if (sums == nullptr) return;
  if (inside) *reinterpret_cast<Words<4>*>(to + int64_t{padded_tokens} * kTileRowBytes) = lo;
  sum += t.shuffle_xor(sum, 1);
  sum += t.shuffle_xor(sum, 2);
  if (inside && piece % 4 == 0) sums[int64_t{piece / 4} * padded_tokens + token] = sum;
}
PENSTOCK_KERNEL(RoundToTiles)

PENSTOCK_BODY void JoinSplits::operator()(const Thread& t) const {
  const int row = t.y * kThreads + t.index, token = t.x;
  if (row >= w.rows) return;
  const float* const from = split_sums + int64_t{token} * w.rows + row;
  float sum = 0.0f;
  for (int split = 0; split < n_splits; ++split) sum += from[int64_t{split} * x.rows * w.rows];
  out.row(token)[row] = bias != nullptr ? sum + bias[row] : sum;
}
PENSTOCK_KERNEL(JoinSplits)

#define PENSTOCK_WIDE(Tokens, Of, Parts)                                           \
  using Wide##Tokens##Of##Parts = WideProduct<Tokens, StreamCoding::k##Of, Parts>; \
  PENSTOCK_KERNEL(Wide##Tokens##Of##Parts)
#define PENSTOCK_WIDE_ALL(Of) \
  PENSTOCK_WIDE(64, Of, 1)    \
  PENSTOCK_WIDE(128, Of, 1)   \
  PENSTOCK_WIDE(256, Of, 1) PENSTOCK_WIDE(16, Of, 2) PENSTOCK_WIDE(32, Of, 2) PENSTOCK_WIDE(64, Of, 2)
PENSTOCK_WIDE_ALL(None)
PENSTOCK_WIDE_ALL(BF16)
PENSTOCK_WIDE_ALL(Half8)
PENSTOCK_WIDE_ALL(Half4)
PENSTOCK_WIDE_ALL(Wide4)
PENSTOCK_WIDE_ALL(Wide4Zeros)
PENSTOCK_WIDE_ALL(Super4)
PENSTOCK_WIDE_ALL(Super5)
PENSTOCK_WIDE_ALL(Super6)

}  // namespace penstock::cuda
