#include "engine/steps/block_mover.h"

#include <spdlog/spdlog.h>

#include "base/log.h"
#include "engine/requests/request_state.h"

namespace penstock {

void BlockMover::carry_out(Plan& plan) {
  for (const SwapMove& move : plan.swaps_out) move_out(move, plan);
  for (const BlockCopy& copy : plan.copies) model_.copy_block(copy.group, copy.from, copy.to);
  for (const SwapMove& move : plan.swaps_in) move_in(move, plan);
}

void BlockMover::move_out(const SwapMove& move, Plan& plan) {
  if (move.sequence->n_swapped == 0) return;  // another block of the sequence was lost
  const std::span<std::byte> bytes = buffer_for(move.group);
  model_.read_block(move.group, move.block, bytes);
  const Status written = swap_->write(move.group, move.slot, bytes);
  if (!written) lose(*move.sequence, written.error(), plan);
  metrics_->swapped_out_blocks.add(written ? 1 : 0);
}

void BlockMover::move_in(const SwapMove& move, Plan& plan) {
  if (move.sequence->n_swapped == 0) return;
  const std::span<std::byte> bytes = buffer_for(move.group);
  const Status read = swap_->read(move.group, move.slot, bytes);
  if (read) {
    model_.write_block(move.group, move.block, bytes);
  } else {
    lose(*move.sequence, read.error(), plan);
  }
  metrics_->swapped_in_blocks.add(read ? 1 : 0);
}

void BlockMover::lose(Sequence& sequence, const Error& error, Plan& plan) {
  metrics_->swap_errors.add();
  log().warn("request {}: computed again: {}", static_cast<uint64_t>(running(sequence).request->id),
             error.message);
  scheduler_.lose_swapped(sequence, plan);
}

std::span<std::byte> BlockMover::buffer_for(int group) {
  buffer_.resize(static_cast<size_t>(model_.block_bytes(group)));
  return buffer_;
}

}  // namespace penstock
