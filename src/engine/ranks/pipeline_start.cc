#include "engine/ranks/pipeline_start.h"

#include "engine/ranks/rank_messages.h"

namespace penstock {

Status tell_share(Communicator& ranks, const LoadedShare& own) {
  return ranks.send_to(std::as_bytes(std::span(&own, 1)), 0);
}

Status hear_blocks(Communicator& ranks, std::vector<int>& n_blocks) {
  std::vector<std::byte> bytes;
  RETURN_IF_ERROR(ranks.receive_from(0, bytes));
  const auto told = MessageReader(bytes).values<int>();
  n_blocks.assign(told.begin(), told.end());
  return {};
}

Status tell_sizes(Communicator& ranks, const ShareSizes& own) {
  MessageWriter message;
  for (const int64_t bytes : {own.weight_bytes, own.active_weight_bytes, own.active_float_weights})
    message.value(bytes);
  message.values(std::span<const int64_t>(own.block_bytes));
  return ranks.send_to(message.bytes(), 0);
}

Result<std::vector<LoadedShare>> hear_shares(Communicator& ranks, const LoadedShare& own) {
  std::vector<LoadedShare> shares = {own};
  std::vector<std::byte> bytes;
  for (int rank = 1; rank < ranks.size(); ++rank) {
    RETURN_IF_ERROR(ranks.receive_from(rank, bytes));
    shares.push_back(MessageReader(bytes).value<LoadedShare>());
    if (shares.back().fingerprint == own.fingerprint) continue;
    ranks.fail(fmt::format("rank {} of {} has another model file or configuration than rank 0",
                           rank, ranks.size()));
    return tl::unexpected(ranks.status().error());
  }
  return shares;
}

Status tell_blocks(Communicator& ranks, std::span<const int> n_blocks) {
  MessageWriter message;
  message.values(n_blocks);
  for (int rank = 1; rank < ranks.size(); ++rank)
    RETURN_IF_ERROR(ranks.send_to(message.bytes(), rank));
  return {};
}

Result<std::vector<ShareSizes>> hear_sizes(Communicator& ranks, const ShareSizes& own) {
  std::vector<ShareSizes> sizes = {own};
  std::vector<std::byte> bytes;
  for (int rank = 1; rank < ranks.size(); ++rank) {
    RETURN_IF_ERROR(ranks.receive_from(rank, bytes));
    MessageReader message(bytes);
    ShareSizes& share = sizes.emplace_back();
    for (int64_t* const number :
         {&share.weight_bytes, &share.active_weight_bytes, &share.active_float_weights})
      *number = message.value<int64_t>();
    const auto blocks = message.values<int64_t>();
    share.block_bytes.assign(blocks.begin(), blocks.end());
  }
  return sizes;
}

}  // namespace penstock
