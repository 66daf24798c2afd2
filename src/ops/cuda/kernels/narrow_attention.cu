#include "ops/cuda/kernels/narrow_attention.h"

#include "ops/cuda/kernels/attend_parts.h"

namespace penstock::cuda {

namespace {

struct NarrowList : SeenList {
  static constexpr bool kIsNarrow = true;
  using SeenList::SeenList;
};

}  // namespace

PENSTOCK_BODY void AttendNarrow::operator()(const Thread& t) const {
  const HeadTile tile(t, *this);
  if (t.x >= batch->n_tokens) return clear_heads(t, *this, tile);
  attend_all(t, *this, tile, NarrowList(*this, t.x));
}
PENSTOCK_KERNEL(AttendNarrow)

PENSTOCK_BODY void AttendNarrowPieces::operator()(const Thread& t) const {
  if (t.x >= batch->n_pieces) return;
  const int token = batch->piece_tokens[t.x];
  const int begin = (t.x - batch->first_pieces[token]) * Attend::kPiece;
  const HeadTile tile(t, *this);
  load_queries<true>(t, *this, tile, token);
  attend_piece(t, *this, tile, NarrowList(*this, token), token, begin, begin + Attend::kPiece);
  put_piece(t, *this, tile, t.x, sums);
}
PENSTOCK_KERNEL(AttendNarrowPieces)

PENSTOCK_BODY void JoinNarrowPieces::operator()(const Thread& t) const {
  const HeadTile tile(t, *this);
  if (t.x >= batch->n_tokens) return clear_heads(t, *this, tile);
  join_pieces<true>(t, *this, tile, {sums, batch->first_pieces[t.x], pieces_of(*batch, t.x)});
}
PENSTOCK_KERNEL(JoinNarrowPieces)

PENSTOCK_BODY void TurnHeads::operator()(const Thread& t) const {
  float* const x = t.shared_as<float>();
  const int at = t.y * head_dim;
  for (int i = t.index; i < head_dim; i += kThreads) x[i] = from.row(t.x)[at + i];
  turn_rows(BlockTeam<kThreads>{t}, x, head_dim, head_dim, rotated, back);
  for (int i = t.index; i < head_dim; i += kThreads) to.row(t.x)[at + i] = x[i];
}
PENSTOCK_KERNEL(TurnHeads)

}  // namespace penstock::cuda
