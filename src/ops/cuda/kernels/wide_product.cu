#include "ops/cuda/kernels/wide_product.h"

#include "ops/cuda/kernels/wide_body.h"

namespace penstock::cuda {

namespace {

// A source row of the tiles; null: padding, which is zeros.
struct TileRow {
  const float* values;
  float factor;
  PENSTOCK_DEVICE TileRow(const RoundToTiles& k, int token) : values(nullptr), factor(1.0f) {
    int from = token;
    if (k.sources != nullptr) {
      const int source = k.sources[token];
      from = source < 0 ? k.x.rows : source / k.n_active;
      if (source >= 0 && k.choice_weights != nullptr) factor = k.choice_weights[source];
    }
    if (from < k.x.rows) values = k.x.row(from);
  }
  // REQUIRES: values is not null.
  PENSTOCK_DEVICE float at(const RoundToTiles& k, int i) const {
    return i < k.x.cols ? factor * values[k.input_order != nullptr ? k.input_order[i] : i] : 0.0f;
  }
};

PENSTOCK_DEVICE std::byte* place_of_piece(const RoundToTiles& k, int token, int piece) {
  return k.out + (int64_t{piece / 8} * k.n_parts * k.padded_tokens + token) * kTileRowBytes +
         (piece % 8 ^ token % 8) * 16;
}

}  // namespace

PENSTOCK_BODY void RoundToTiles::operator()(const Thread& t) const {
  const int piece = t.y * kThreads + t.index, token = t.x;
  const bool inside = piece * kPieceInputs < padded_cols;
  Words<4> hi = {}, lo = {};
  float sum = 0.0f;
  const TileRow row(*this, token);
  if (inside && row.values != nullptr) {
    for (int i = 0; i < 4; ++i) {
      const float first = row.at(*this, piece * kPieceInputs + 2 * i),
                  second = row.at(*this, piece * kPieceInputs + 2 * i + 1);
      const SplitPair pair = split_pair(first, second);
      hi.words[i] = pair.hi, lo.words[i] = pair.lo;
      sum += first + second;
    }
  }
  std::byte* const to = place_of_piece(*this, token, piece);
  if (inside) *reinterpret_cast<Words<4>*>(to) = hi;
  if (n_parts == 1) return;
  if (inside) *reinterpret_cast<Words<4>*>(to + int64_t{padded_tokens} * kTileRowBytes) = lo;
  sum += t.shuffle_xor(sum, 1);
  sum += t.shuffle_xor(sum, 2);
  if (inside && piece % 4 == 0) sums[int64_t{piece / 4} * padded_tokens + token] = sum;
}
PENSTOCK_KERNEL(RoundToTiles)

PENSTOCK_BODY void RoundToHalfTiles::operator()(const Thread& t) const {
  const TileRow row(to, t.x);
  float most = 0.0f;
  for (int i = t.index; i < to.x.cols && row.values != nullptr; i += kThreads)
    most = fmaxf(most, fabsf(row.factor * row.values[i]));
  most = block_max<kThreads>(t, most, t.shared_as<float>());
  // The scale is 2^(exponent - 14); 1 for infinity and NaN, and at least 2^-114, so that its
  // inverse is finite.
  const int exponent = static_cast<int>(bits_of_float(most) >> 23) - 127;
  const int power = exponent > 127 || most == 0.0f ? 0 : exponent < -100 ? -114 : exponent - 14;
  const float scale = float_of_bits(static_cast<uint32_t>(power + 127) << 23);
  const float inverse = float_of_bits(static_cast<uint32_t>(127 - power) << 23);
  if (t.index == 0) row_scales[t.x] = scale;
  for (int piece = t.index; piece * RoundToTiles::kPieceInputs < to.padded_cols;
       piece += kThreads) {
    Words<4> hi = {}, lo = {};
    for (int i = 0; i < 4 && row.values != nullptr; ++i) {
      const int at = piece * RoundToTiles::kPieceInputs + 2 * i;
      const float first = row.at(to, at) * inverse, second = row.at(to, at + 1) * inverse;
      const uint32_t pair = half_pair(first, second);
      hi.words[i] = pair;
      lo.words[i] = half_pair(first - half_to_float(static_cast<uint16_t>(pair & 0xffffu)),
                              second - half_to_float(static_cast<uint16_t>(pair >> 16)));
    }
    std::byte* const place = place_of_piece(to, t.x, piece);
    *reinterpret_cast<Words<4>*>(place) = hi;
    if (to.n_parts == 2)
      *reinterpret_cast<Words<4>*>(place + int64_t{to.padded_tokens} * kTileRowBytes) = lo;
  }
}
PENSTOCK_KERNEL(RoundToHalfTiles)

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
  PENSTOCK_WIDE(256, Of, 1)   \
  PENSTOCK_WIDE(16, Of, 2) PENSTOCK_WIDE(32, Of, 2) PENSTOCK_WIDE(64, Of, 2)
PENSTOCK_WIDE_ALL(None)
PENSTOCK_WIDE_ALL(BF16)
PENSTOCK_WIDE_ALL(F16)
PENSTOCK_WIDE_ALL(Half8)
PENSTOCK_WIDE_ALL(Half4)
PENSTOCK_WIDE_ALL(Wide4)
PENSTOCK_WIDE_ALL(Wide4Zeros)
PENSTOCK_WIDE_ALL(Super4)
PENSTOCK_WIDE_ALL(Super5)
PENSTOCK_WIDE_ALL(Super6)

}  // namespace penstock::cuda
