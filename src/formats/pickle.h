// Python's pickles, as far as they describe tensors. Nothing that a file names is ever called: opcodes and globals are those of two
// lists, and what the globals stand for is built here as plain data.
#pragma once
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "formats/byte_reader.h"
#include "quant/quant_type.h"

namespace penstock {

// What a pickle says of a storage, whose bytes are elsewhere.
struct PickledStorage {
  QuantType type = QuantType::kF32;
  std::string_view key;
  int64_t n_elements = 0;
};

// A view of a storage: element (i, j, ...) is number offset + i * strides[0] + j * strides[1] + ...
struct PickledTensor {
  uint32_t storage = 0;
  int64_t offset = 0;
  std::vector<int64_t> shape, strides;  // equally long; not checked against the storage
};

struct PickleValue {
  // A compound's index is a place in the machine's lists.
  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInteger,
    kReal,
    kText,
    kBytes,
    kGlobal,
    kMark,
    kList,
    kTuple,
    kDict,
    kStorage,
    kTensor
  };
  Kind kind = Kind::kNone;
  uint32_t index = 0;     // of compounds, storages, tensors and globals
  int64_t integer = 0;    // and booleans
  std::string_view text;  // points into the pickle
};

// One machine may load several pickles, whose storages and tensors it numbers together. It holds at most kMostValues values of about
// 50 bytes, whatever the file says, and has no recursion. The pickles outlive it.
class PickleMachine {
 public:
  static constexpr size_t kMostValues = size_t{1} << 21;

  explicit PickleMachine(std::string where) : where_(std::move(where)) {}

  // The next pickle of `in`, which is left behind its last byte. Errors: kUnsupported for what is not on the lists, kCorruptFile.
  Result<PickleValue> load(ByteReader& in);

  // Of a list, a tuple, or (keys and values in turn) a dict.
  std::span<const PickleValue> items(const PickleValue& compound) const { return compounds_[compound.index]; }
  std::span<const PickledStorage> storages() const { return storages_; }
  const PickledTensor& tensor(const PickleValue& value) const { return tensors_[value.index]; }

 private:
  using Kind = PickleValue::Kind;

  Status step(uint8_t opcode, ByteReader& in, bool& done);
  Status scalar(uint8_t opcode, ByteReader& in, bool& known);
  Status container(uint8_t opcode, bool& known);
  Status memo(uint8_t opcode, ByteReader& in, bool& known);
  Status call(uint8_t opcode, ByteReader& in, bool& known);
  Status long_integer(ByteReader& in);
  Status find_global(ByteReader& in);
  Status reduce();
  Status build();
  Status persistent_id();
  Status rebuild_tensor(std::span<const PickleValue> arguments);

  Status push(PickleValue value);
  Status push(Kind kind, std::vector<PickleValue> items);
  Result<PickleValue> pop();
  Result<std::vector<PickleValue>> pop_to_mark();
  Status add_to(const std::vector<PickleValue>& items, Kind kind);
  Error bad(std::string_view expected) const;

  std::string where_;
  size_t at_ = 0;  // of the opcode that is carried out
  size_t n_values_ = 0;
  std::vector<PickleValue> stack_;
  std::unordered_map<uint32_t, PickleValue> memo_;
  std::deque<std::vector<PickleValue>> compounds_;
  std::vector<PickledStorage> storages_;
  std::vector<PickledTensor> tensors_;
};

}  // namespace penstock
