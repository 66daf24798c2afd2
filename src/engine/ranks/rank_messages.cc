#include "engine/ranks/rank_messages.h"

namespace penstock {

void write_config(const EngineConfig& config, MessageWriter& message) {
  EngineConfig::visit(config, [&](const char*, const auto& field, const char*) {
    if constexpr (std::is_same_v<std::decay_t<decltype(field)>, std::string>) {
      message.text(field);
    } else {
      message.value(field);
    }
  });
}

EngineConfig read_config_message(MessageReader& message) {
  EngineConfig config;
  EngineConfig::visit(config, [&](const char*, auto& field, const char*) {
    using Field = std::decay_t<decltype(field)>;
    if constexpr (std::is_same_v<Field, std::string>) {
      field = message.text();
    } else {
      field = message.value<Field>();
    }
  });
  return config;
}

void write_status(const Status& status, MessageWriter& message) {
  message.value(status ? ErrorCode::kInternal : status.error().code);
  message.text(status ? "" : status.error().message);
}

Status read_status(std::span<const std::byte> bytes) {
  MessageReader message(bytes);
  const auto code = message.value<ErrorCode>();
  std::string text = message.text();
  if (text.empty()) return {};
  return make_error(code, std::move(text));
}

void write_batch(const Batch& batch, MessageWriter& message) {
  message.values(batch.tokens);
  message.values(batch.positions);
  message.values(batch.seq_offsets);
  message.values(batch.seq_lens);
  message.value(uint64_t{batch.kv.size()});
  for (const KvView& view : batch.kv) {
    message.values(view.slots);
    message.values(view.block_tables);
    message.values(view.table_offsets);
    message.values(view.first_positions);
  }
  message.values(batch.tree_masks);
  message.values(batch.output_rows);
  message.values(batch.row_tops);
  message.values(batch.token_types);
  message.values(batch.adapters);
  message.values(batch.long_ropes);
  message.values(batch.axis_positions);
  message.values(batch.sights);
  message.value(uint64_t{batch.given.size()});
  if (batch.given.empty()) return;
  message.value(batch.given_levels);
  message.value(batch.given_dim);
  for (const GivenRows& rows : batch.given) {
    message.value(rows.first);
    message.value(rows.count);
    const auto n = static_cast<size_t>(rows.count) * static_cast<size_t>(batch.given_dim);
    for (int level = 0; level < batch.given_levels; ++level)
      message.values(std::span(rows.values + level * rows.level_stride, n));
  }
}

namespace {

// The levels of a message's rows are as far apart as their lengths and their sizes are.
void read_given(MessageReader& message, BatchMessage& result) {
  Batch& batch = result.batch;
  result.given.resize(static_cast<size_t>(message.value<uint64_t>()));
  if (result.given.empty()) return;
  batch.given_levels = message.value<int>();
  batch.given_dim = message.value<int>();
  for (GivenRows& rows : result.given) {
    rows.first = message.value<int32_t>();
    rows.count = message.value<int32_t>();
    for (int level = 0; level < batch.given_levels; ++level) {
      const float* const values = message.values<float>().data();
      if (level == 0) rows.values = values;
      if (level == 1) rows.level_stride = values - rows.values;
    }
  }
  batch.given = result.given;
}

}  // namespace

BatchMessage read_batch(MessageReader& message) {
  BatchMessage result;
  Batch& batch = result.batch;
  batch.tokens = message.values<TokenId>();
  batch.positions = message.values<int32_t>();
  batch.seq_offsets = message.values<int32_t>();
  batch.seq_lens = message.values<int32_t>();
  result.kv.resize(static_cast<size_t>(message.value<uint64_t>()));
  for (KvView& view : result.kv) {
    view.slots = message.values<int32_t>();
    view.block_tables = message.values<BlockId>();
    view.table_offsets = message.values<int32_t>();
    view.first_positions = message.values<int32_t>();
  }
  batch.kv = result.kv;
  batch.tree_masks = message.values<uint64_t>();
  batch.output_rows = message.values<int32_t>();
  batch.row_tops = message.values<int32_t>();
  batch.token_types = message.values<int32_t>();
  batch.adapters = message.values<int32_t>();
  batch.long_ropes = message.values<int32_t>();
  batch.axis_positions = message.values<AxisPosition>();
  batch.sights = message.values<int32_t>();
  read_given(message, result);
  return result;
}

}  // namespace penstock
