#include "engine/ranks/shared_model.h"

#include <algorithm>

#include "formats/lora.h"

namespace penstock {

// After an error, calls return at once; the engine polls status().
void SharedModel::send() const {
  (void)broadcast_message(ranks_->communicator(), message_.bytes(), 0);
}

MessageWriter& SharedModel::begin(RankCommand command) const {
  message_.clear();
  message_.value(command);
  return message_;
}

SharedModel::~SharedModel() {
  begin(RankCommand::kEnd);
  send();
}

void SharedModel::submit(const Batch& batch) {
  write_batch(batch, begin(RankCommand::kStep));
  send();
  own_->submit(batch);
}

void SharedModel::move_tokens(int group, std::span<const int32_t> from,
                              std::span<const int32_t> to) {
  MessageWriter& message = begin(RankCommand::kMoveTokens);
  message.value(group);
  message.values(from);
  message.values(to);
  send();
  own_->move_tokens(group, from, to);
}

void SharedModel::copy_block(int group, BlockId from, BlockId to) {
  std::vector<int32_t> from_slots, to_slots;
  own_->slots_of_block(group, from, from_slots);
  own_->slots_of_block(group, to, to_slots);
  move_tokens(group, from_slots, to_slots);
}

Status SharedModel::put_adapter(int slot, const LoraAdapter& adapter) {
  MessageWriter& message = begin(RankCommand::kPutAdapter);
  message.value(slot);
  message.value(lora_fingerprint(adapter));
  message.text(adapter.path.string());
  send();
  const Status put = agree_on(ranks_->communicator(), own_->put_adapter(slot, adapter));
  if (!put) drop_adapter(slot);
  return put;
}

void SharedModel::drop_adapter(int slot) {
  begin(RankCommand::kDropAdapter).value(slot);
  send();
  own_->drop_adapter(slot);
}

int64_t SharedModel::block_bytes(int group) const {
  int64_t bytes = 0;
  for (const ShareSizes& share : sizes_) bytes += share.block_bytes[static_cast<size_t>(group)];
  return bytes;
}

void SharedModel::read_block(int group, BlockId block, std::span<std::byte> out) const {
  MessageWriter& message = begin(RankCommand::kReadBlock);
  message.value(group);
  message.value(block);
  send();
  auto& ranks = ranks_->communicator();
  const auto own = static_cast<size_t>(own_->block_bytes(group));
  own_->read_block(group, block, out.first(own));
  size_t first = own;
  for (int rank = 1; rank < ranks.size(); ++rank) {
    const auto bytes = static_cast<size_t>(
        sizes_[static_cast<size_t>(rank)].block_bytes[static_cast<size_t>(group)]);
    (void)ranks.broadcast(out.subspan(first, bytes), rank);
    first += bytes;
  }
}

void SharedModel::write_block(int group, BlockId block, std::span<const std::byte> bytes) {
  MessageWriter& message = begin(RankCommand::kWriteBlock);
  message.value(group);
  message.value(block);
  message.values(bytes);
  send();
  own_->write_block(group, block, bytes.first(static_cast<size_t>(own_->block_bytes(group))));
}

ShareSizes sizes_of(const Model& model, const KvCache& cache) {
  ShareSizes sizes{
      model.weight_bytes(), model.active_weight_bytes(), model.active_float_weights(), {}};
  for (int g = 0; g < std::max(1, cache.spec().n_groups()); ++g)
    sizes.block_bytes.push_back(cache.block_bytes(g));
  return sizes;
}

Result<std::vector<ShareSizes>> exchange_sizes(Communicator& ranks, const Model& model,
                                               const KvCache& cache) {
  std::vector<ShareSizes> sizes;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const ShareSizes own = sizes_of(model, cache);
    std::vector<int64_t> numbers = {own.weight_bytes, own.active_weight_bytes,
                                    own.active_float_weights};
    numbers.insert(numbers.end(), own.block_bytes.begin(), own.block_bytes.end());
    RETURN_IF_ERROR(ranks.broadcast(std::as_writable_bytes(std::span(numbers)), rank));
    sizes.push_back({numbers[0], numbers[1], numbers[2], {numbers.begin() + 3, numbers.end()}});
  }
  return sizes;
}

Status agree_on(Communicator& ranks, const Status& own) {
  Status all;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    MessageWriter message;
    write_status(own, message);
    RETURN_IF_ERROR(broadcast_message(ranks, message.bytes(), rank));
    const Status other = read_status(message.bytes());
    if (all) all = other;
  }
  return all;
}

}  // namespace penstock
