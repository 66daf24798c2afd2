#include "ops/cuda/batch_upload.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace penstock::cuda {

// Appends n elements: `values`, then `missing` for the rest. Returns their address on the device.
template <class T>
const T* BatchUpload::put(std::span<const T> values, size_t n, T missing) {
  used_ = (used_ + alignof(uint64_t) - 1) / alignof(uint64_t) * alignof(uint64_t);
  const size_t at = used_;
  used_ += n * sizeof(T);
  if (measuring_) return nullptr;
  auto* to = reinterpret_cast<T*>(host_ + at);
  const size_t given = std::min(n, values.size());
  if (given > 0) std::memcpy(to, values.data(), given * sizeof(T));
  std::fill(to + given, to + n, missing);
  return reinterpret_cast<const T*>(memory_.as<std::byte>() + at);
}

// Classifies tokens: "few" are those of sequences with few new tokens and those of trees
// (kernels/flash.h).
void BatchUpload::sort_tokens(const Batch& batch) {
  is_few_.assign(sequences_.size(), false);
  has_few_ = has_many_ = false, all_few_ = true;
  for (size_t t = 0; t < sequences_.size() && !batch.seq_lens.empty(); ++t) {
    const auto s = static_cast<size_t>(sequences_[t]);
    const bool is_masked = !batch.tree_masks.empty() && batch.tree_masks[t] != 0;
    const int n_new = batch.seq_offsets[s + 1] - batch.seq_offsets[s];
    const bool among_few = n_new <= BatchOnDevice::kFewTokens;
    is_few_[t] = is_masked || among_few, all_few_ = all_few_ && among_few;
    (is_few_[t] ? has_few_ : has_many_) = true;
  }
}

// Lists the pieces of sequences for split attention, if few tokens are computed and some sequences
// are long. Pieces of "many" tokens, which only kernels without tiles read, follow those of "few"
// tokens; they are left out if there are too many.
void BatchUpload::list_pieces(const Batch& batch) {
  piece_tokens_.clear(), first_pieces_.assign(sequences_.size(), 0),
      piece_room_ = few_piece_room_ = 0;
  if (!takes_apart_ || batch.seq_lens.empty()) return;
  const auto pieces_of = [&](size_t t) {
    return (batch.seq_lens[static_cast<size_t>(sequences_[t])] + BatchOnDevice::kPieceTokens - 1) /
           BatchOnDevice::kPieceTokens;
  };
  struct Total {
    int tokens = 0;
    int64_t pieces = 0;
    int room() const {
      const bool is_worth_it = tokens <= kMostTokens && pieces > tokens && pieces <= kMostPieces;
      return is_worth_it ? static_cast<int>(std::bit_ceil(static_cast<uint64_t>(pieces))) : 0;
    }
  } of_few, of_all;
  for (size_t t = 0; t < sequences_.size(); ++t) {
    const int n = pieces_of(t);
    ++of_all.tokens, of_all.pieces += n;
    if (is_few_[t]) ++of_few.tokens, of_few.pieces += n;
  }
  piece_room_ = of_all.room(), few_piece_room_ = of_few.room();
  for (const bool few : {true, false}) {
    if (piece_room_ == 0 && (!few || few_piece_room_ == 0)) continue;
    for (size_t t = 0; t < sequences_.size(); ++t) {
      if (is_few_[t] != few) continue;
      first_pieces_[t] = static_cast<int32_t>(piece_tokens_.size());
      piece_tokens_.insert(piece_tokens_.end(), static_cast<size_t>(pieces_of(t)),
                           static_cast<int32_t>(t));
    }
  }
}

// Appends the given rows: for each token which one it has, and all levels of all of them.
void BatchUpload::put_given(const Batch& batch, BatchOnDevice& all) {
  if (batch.given.empty()) return;
  given_of_.assign(batch.tokens.size(), -1);
  for (const GivenRows& rows : batch.given)
    for (int i = 0; i < rows.count; ++i)
      given_of_[static_cast<size_t>(rows.first + i)] = all.n_given++;
  all.given_of = put<int32_t>(given_of_, given_of_.size(), -1);
  given_.clear();
  for (int level = 0; level < batch.given_levels; ++level) {
    for (const GivenRows& rows : batch.given) {
      const float* const from = rows.values + level * rows.level_stride;
      given_.insert(given_.end(), from, from + int64_t{rows.count} * batch.given_dim);
    }
  }
  all.given = put<float>(given_, given_.size(), 0.0f);
}

Status BatchUpload::set(const Batch& batch, const DescribedDraws& draws,
                        const int32_t* tokens_before) {
  const size_t n = batch.tokens.size(), n_seqs = batch.seq_lens.size();
  PENSTOCK_CHECK(batch.kv.size() <= BatchOnDevice::kMaxGroups);
  sequences_.assign(n, 0);
  for (size_t s = 0; s < n_seqs && s + 1 < batch.seq_offsets.size(); ++s)
    for (int32_t t = batch.seq_offsets[s]; t < batch.seq_offsets[s + 1]; ++t)
      sequences_[static_cast<size_t>(t)] = static_cast<int32_t>(s);
  sort_tokens(batch);
  list_pieces(batch);
  int longest = kLeastLength;
  for (const int32_t len : batch.seq_lens) longest = std::max(longest, len);
  length_room_ = static_cast<int>(std::bit_ceil(static_cast<unsigned>(longest)));
  const auto fill = [&] {
    used_ = sizeof(BatchOnDevice);
    BatchOnDevice all = {};
    all.n_tokens = batch.n_tokens(), all.n_seqs = batch.n_seqs();
    all.n_outputs = static_cast<int32_t>(batch.output_rows.size());
    all.n_groups = static_cast<int32_t>(batch.kv.size());
    all.tokens = put<int32_t>(batch.tokens, n, 0);
    all.positions = put<int32_t>(batch.positions, n, 0);
    all.sequences = put<int32_t>(sequences_, n, 0);
    all.seq_offsets = put<int32_t>(batch.seq_offsets, n_seqs + 1, 0);
    all.seq_lens = put<int32_t>(batch.seq_lens, n_seqs, 0);
    all.output_rows = put<int32_t>(batch.output_rows, batch.output_rows.size(), 0);
    all.token_types = put<int32_t>(batch.token_types, n, 0);
    all.adapters = put<int32_t>(batch.adapters, n_seqs, -1);
    all.long_ropes = put<int32_t>(batch.long_ropes, n_seqs, 0);
    all.tree_masks = put<uint64_t>(batch.tree_masks, n, 0);
    if (!batch.sights.empty()) all.sights = put<int32_t>(batch.sights, n, 0);
    if (!batch.axis_positions.empty())
      all.axis_positions = put<int32_t>({batch.axis_positions[0].data(), 3 * n}, 3 * n, 0);
    put_given(batch, all);
    all.n_pieces = static_cast<int32_t>(piece_tokens_.size());
    all.piece_tokens = put<int32_t>(piece_tokens_, piece_tokens_.size(), 0);
    all.first_pieces = put<int32_t>(first_pieces_, first_pieces_.size(), 0);
    for (size_t g = 0; g < batch.kv.size(); ++g) {
      const KvView& view = batch.kv[g];
      const auto* tables = reinterpret_cast<const int32_t*>(view.block_tables.data());
      all.kv[g] = {put<int32_t>(view.slots, n, 0),
                   put<int32_t>({tables, view.block_tables.size()}, view.block_tables.size(), 0),
                   put<int32_t>(view.table_offsets, n_seqs + 1, 0),
                   put<int32_t>(view.first_positions, n_seqs, 0)};
    }
    all.drawn = tokens_before;
    all.draws = draws.on_device;
    all.draws.draws = put<DrawOnDevice>(draws.draws, draws.draws.size(), {});
    all.draws.edits = put<EditOnDevice>(draws.edits, draws.edits.size(), {});
    all.draws.masks = put<uint32_t>(draws.masks, draws.masks.size(), 0);
    return all;
  };
  measuring_ = true;
  fill();
  if (used_ > memory_.bytes()) {
    memory_.reset();
    ASSIGN_OR_RETURN(memory_, Memory::make(device_, std::max(2 * used_, kLeast)));
  }
  measuring_ = false;
  ASSIGN_OR_RETURN(const std::span<std::byte> staged, staged_.next(used_));
  host_ = staged.data();
  const BatchOnDevice all = fill();
  std::memcpy(host_, &all, sizeof all);
  staged_.send(memory_.data());
  return {};
}

}  // namespace penstock::cuda
