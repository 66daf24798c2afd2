// Messages from rank 0 to the other ranks: raw bytes between processes of the same program
// (versions are compared first).
#pragma once
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "ops/batch.h"
#include "penstock/engine_config.h"

namespace penstock {

enum class RankCommand : uint32_t {
  kEnd,
  kStep,
  kDraft,  // a pass of a drafter that computes with the model's layers
  // all further steps keep the streams before certain layers (StepModel::keep_states())
  kKeepTaps,
  kMakeCache,  // a new cache for a model that computes states (StateRanks)
  kMoveTokens,
  kReadBlock,
  kWriteBlock,
  kPutAdapter,
  kDropAdapter
};

class MessageWriter {
 public:
  template <class T>
  void value(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    append(&value, sizeof value);
  }
  // Appends the number of values, then the values, aligned to 8 bytes.
  template <class T>
  void values(std::span<const T> values) {
    value(uint64_t{values.size()});
    bytes_.resize((bytes_.size() + 7) / 8 * 8);
    append(values.data(), values.size_bytes());
  }
  void text(const std::string& text) { values(std::span<const char>(text)); }
  void clear() { bytes_.clear(); }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  void append(const void* from, size_t n) {
    if (n == 0) return;
    const size_t at = bytes_.size();
    bytes_.resize(at + n);
    std::memcpy(bytes_.data() + at, from, n);
  }
  std::vector<std::byte> bytes_;
};

// Reads a message in the order in which it was written. Returned spans point into the message.
class MessageReader {
 public:
  explicit MessageReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  T value() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  template <class T>
  std::span<const T> values() {
    const auto n = static_cast<size_t>(value<uint64_t>());
    take((8 - at_ % 8) % 8);
    return {reinterpret_cast<const T*>(take(n * sizeof(T)).data()), n};
  }
  std::string text() {
    const auto chars = values<char>();
    return {chars.begin(), chars.end()};
  }

 private:
  std::span<const std::byte> take(size_t n) {
    PENSTOCK_CHECK(n <= bytes_.size() - at_);
    const auto part = bytes_.subspan(at_, n);
    at_ += n;
    return part;
  }
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

void write_config(const EngineConfig& config, MessageWriter& message);
EngineConfig read_config_message(MessageReader& message);

void write_status(const Status& status, MessageWriter& message);
Status read_status(std::span<const std::byte> message);

void write_batch(const Batch& batch, MessageWriter& message);
// A batch that points into the message it was read from, which must outlive it.
struct BatchMessage {
  Batch batch;
  std::vector<KvView> kv;
  std::vector<GivenRows> given;
};
BatchMessage read_batch(MessageReader& message);

}  // namespace penstock
