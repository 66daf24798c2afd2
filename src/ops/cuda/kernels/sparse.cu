#include "ops/cuda/kernels/sparse.h"

#include "ops/cuda/kernels/chosen_list.h"

namespace penstock::cuda {

PENSTOCK_BODY void AttendChosen::operator()(const Thread& t) const {
  const HeadTile tile(t, *this);
  if (t.x >= batch->n_tokens) return clear_heads(t, *this, tile);
  attend_all(t, *this, tile, ChosenList(*this, chosen, t.x, tile.kv_head));
}
PENSTOCK_KERNEL(AttendChosen)

PENSTOCK_BODY void AttendChosenPieces::operator()(const Thread& t) const {
  const int row = t.x / n_pieces, begin = t.x % n_pieces * Attend::kPiece;
  if (row >= batch->n_tokens) return;
  const HeadTile tile(t, *this);
  const ChosenList list(*this, chosen, row, tile.kv_head);
  if (begin >= list.end) return;
  load_queries<false>(t, *this, tile, row);
  attend_piece(t, *this, tile, list, row, begin, begin + Attend::kPiece);
  put_piece(t, *this, tile, t.x, sums);
}
PENSTOCK_KERNEL(AttendChosenPieces)

PENSTOCK_BODY void JoinChosenPieces::operator()(const Thread& t) const {
  const HeadTile tile(t, *this);
  if (t.x >= batch->n_tokens) return clear_heads(t, *this, tile);
  const ChosenList list(*this, chosen, t.x, tile.kv_head);
  join_pieces<false>(t, *this, tile, {sums, t.x * n_pieces, (list.end + piece - 1) / piece});
}
PENSTOCK_KERNEL(JoinChosenPieces)

}  // namespace penstock::cuda
