// Reader of Python pickles that describe tensors. Nothing that a file names is ever called: opcodes
// and globals must be on two fixed lists, and the objects of the globals are built here as plain
// data.
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

// Description of a storage in a pickle; its bytes are elsewhere.
struct PickledStorage {
  QuantType type = QuantType::kF32;
  std::string_view key;
  int64_t n_elements = 0;
};

// A view of a storage: element (i, j, ...) is number offset + i * strides[0] + j * strides[1] + ...
struct PickledTensor {
  uint32_t storage = 0;
  int64_t offset = 0;
  // equally long; not checked against the storage
  std::vector<int64_t> shape, strides;
};

struct PickleValue {
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
  // compounds, storages, tensors, globals: index in the list of their kind
  uint32_t index = 0;
  int64_t integer = 0;    // value of integers and booleans
  std::string_view text;  // points into the pickle
};

// The stack machine that executes pickles. One machine may load several pickles; their storages and
// tensors get consecutive numbers. It holds at most kMostValues values of about 50 bytes, whatever
// the file contains, and does not recurse. The pickles must outlive it.
class PickleMachine {
 public:
  static constexpr size_t kMostValues = size_t{1} << 21;

  explicit PickleMachine(std::string where) : where_(std::move(where)) {}

  // Loads the next pickle of `in`, which then stands after its last byte. Errors: kUnsupported for
  // opcodes and globals that are not on the lists, kCorruptFile.
  Result<PickleValue> load(ByteReader& in);

  // Items of a list or tuple, or alternating keys and values of a dict.
  std::span<const PickleValue> items(const PickleValue& compound) const {
    return compounds_[compound.index];
  }
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
  size_t at_ = 0;  // offset of the current opcode
  size_t n_values_ = 0;
  std::vector<PickleValue> stack_;
  std::unordered_map<uint32_t, PickleValue> memo_;
  std::deque<std::vector<PickleValue>> compounds_;
  std::vector<PickledStorage> storages_;
  std::vector<PickledTensor> tensors_;
};

}  // namespace penstock
