#include "engine/ranks/pipeline_model.h"

#include <algorithm>

#include "base/check.h"
#include "formats/lora.h"

namespace penstock {

PipelineModel::PipelineModel(std::unique_ptr<RankRun> ranks, const RankGrid& grid,
                             std::unique_ptr<LoadedModel> own, std::vector<ShareSizes> sizes)
    : ranks_(std::move(ranks)),
      own_(std::move(own)),
      sizes_(std::move(sizes)),
      n_stages_(grid.stages),
      gathers_logits_(grid.tensor > 1),
      steps_(ranks_->communicator(), grid, *own_) {}

PipelineModel::~PipelineModel() {
  begin(RankCommand::kEnd);
  send_to_all();
}

// --- Messages to other ranks. After an error, calls return at once; the engine polls status().

MessageWriter& PipelineModel::begin(RankCommand command) const {
  message_.clear();
  message_.value(command);
  return message_;
}

void PipelineModel::send(int rank) const {
  (void)ranks_->communicator().send_to(message_.bytes(), rank);
}

void PipelineModel::send_to_all() const {
  for (int rank = 1; rank < ranks_->communicator().size(); ++rank) send(rank);
}

// --- Operations in order

// Sends the begun message to the other ranks, and queues the operation for this rank.
void PipelineModel::ask(bool is_step) {
  send_to_all();
  const bool first = asked_.empty();
  asked_.push_back({message_.bytes(), is_step, false, false, {}});
  if (is_step || !first) return;
  carry_out(asked_.front());
  asked_.pop_front();
}

void PipelineModel::carry_out(Asked& asked) const {
  MessageReader message(asked.message);
  asked.done = true;
  if (message.value<RankCommand>() == RankCommand::kStep) {
    const BatchMessage step = read_batch(message);
    (void)steps_.run(step.batch);
    if (!asked.waited && status()) asked.kept = keep(step.batch);
    return;
  }
  const int group = message.value<int>();
  const auto from = message.values<int32_t>();
  own_->move_tokens(group, from, message.values<int32_t>());
}

PipelineModel::Kept PipelineModel::keep(const Batch& batch) const {
  Kept kept;
  const auto copy = [](std::span<const float> row) {
    return std::vector<float>(row.begin(), row.end());
  };
  for (int row = 0; row < static_cast<int>(batch.output_rows.size()); ++row) {
    kept.logits.push_back(copy(own_->logits(row)));
    kept.hidden.push_back(copy(own_->hidden(row)));
  }
  for (int token = 0; keeps_states_ && token < batch.n_tokens(); ++token)
    kept.states.push_back(copy(steps_.state(token)));
  return kept;
}

void PipelineModel::do_all() const {
  for (Asked& asked : asked_)
    if (!asked.done) carry_out(asked);
}

void PipelineModel::submit(const Batch& batch) {
  write_batch(batch, begin(RankCommand::kStep));
  ask(true);
}

void PipelineModel::wait() {
  for (bool step = false; !step; asked_.pop_front()) {
    PENSTOCK_CHECK(!asked_.empty());
    Asked& first = asked_.front();
    step = first.waited = first.is_step;
    if (!first.done) carry_out(first);
    if (step) current_ = std::move(first.kept);
  }
}

std::span<float> PipelineModel::logits(int row) {
  return current_ ? std::span(current_->logits[static_cast<size_t>(row)]) : own_->logits(row);
}

std::span<const float> PipelineModel::hidden(int row) {
  return current_ ? std::span<const float>(current_->hidden[static_cast<size_t>(row)])
                  : own_->hidden(row);
}

// Streams before a layer come from the stage that has the layer.
void PipelineModel::keep_states(std::span<const int> taps) {
  keeps_states_ = true;
  if (taps.empty()) return own_->keep_states({});
  begin(RankCommand::kKeepTaps).values(taps);
  send_to_all();
  steps_.keep_taps(taps);
}

std::span<const float> PipelineModel::state(int token) {
  if (!current_) return steps_.state(token);
  const auto at = static_cast<size_t>(token);
  return at < current_->states.size() ? std::span<const float>(current_->states[at])
                                      : std::span<const float>();
}

void PipelineModel::move_tokens(int group, std::span<const int32_t> from,
                                std::span<const int32_t> to) {
  MessageWriter& message = begin(RankCommand::kMoveTokens);
  message.value(group);
  message.values(from);
  message.values(to);
  ask(false);
}

void PipelineModel::copy_block(int group, BlockId from, BlockId to) {
  std::vector<int32_t> from_slots, to_slots;
  own_->slots_of_block(group, from, from_slots);
  own_->slots_of_block(group, to, to_slots);
  move_tokens(group, from_slots, to_slots);
}

// --- Immediate operations

Status PipelineModel::put_adapter(int slot, const LoraAdapter& adapter) {
  MessageWriter& message = begin(RankCommand::kPutAdapter);
  message.value(slot);
  message.value(lora_fingerprint(adapter));
  message.text(adapter.path.string());
  send_to_all();
  do_all();
  Status put = own_->put_adapter(slot, adapter);
  Communicator& ranks = ranks_->communicator();
  std::vector<std::byte> reply;
  for (int rank = 1; rank < ranks.size(); ++rank) {
    RETURN_IF_ERROR(ranks.receive_from(rank, reply));
    const Status other = read_status(reply);
    if (put && !other) put = other;
  }
  if (!put) drop_adapter(slot);
  return put;
}

void PipelineModel::drop_adapter(int slot) {
  begin(RankCommand::kDropAdapter).value(slot);
  send_to_all();
  do_all();
  own_->drop_adapter(slot);
}

int64_t PipelineModel::block_bytes(int group) const {
  int64_t bytes = 0;
  for (int rank = 0; rank < static_cast<int>(sizes_.size()); ++rank) bytes += bytes_of(rank, group);
  return bytes;
}

void PipelineModel::read_block(int group, BlockId block, std::span<std::byte> out) const {
  MessageWriter& message = begin(RankCommand::kReadBlock);
  message.value(group);
  message.value(block);
  send_to_all();
  do_all();
  auto first = static_cast<size_t>(bytes_of(0, group));
  own_->read_block(group, block, out.first(first));
  Communicator& ranks = ranks_->communicator();
  std::vector<std::byte> part;
  for (int rank = 1; rank < ranks.size(); ++rank) {
    const auto bytes = static_cast<size_t>(bytes_of(rank, group));
    if (!ranks.receive_from(rank, part) || part.size() != bytes) return;
    std::ranges::copy(part, out.begin() + static_cast<ptrdiff_t>(first));
    first += bytes;
  }
}

void PipelineModel::write_block(int group, BlockId block, std::span<const std::byte> bytes) {
  auto first = static_cast<size_t>(bytes_of(0, group));
  for (int rank = 1; rank < ranks_->communicator().size(); ++rank) {
    MessageWriter& message = begin(RankCommand::kWriteBlock);
    message.value(group);
    message.value(block);
    const auto own = static_cast<size_t>(bytes_of(rank, group));
    message.values(bytes.subspan(first, own));
    send(rank);
    first += own;
  }
  do_all();
  own_->write_block(group, block, bytes.first(static_cast<size_t>(bytes_of(0, group))));
}

}  // namespace penstock
