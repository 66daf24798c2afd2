#include "formats/pickle.h"

#include <algorithm>

#include "formats/mapped_source.h"

namespace penstock {

namespace {

// THE list of globals that files may name.
enum class Global : uint32_t { kOrderedDict, kTensor, kParameter, kStorage };
struct GlobalRow {
  std::string_view module, name;
  Global global;
  QuantType type = QuantType::kF32;  // type of a storage's elements
};
constexpr GlobalRow kGlobals[] = {
    {"collections", "OrderedDict", Global::kOrderedDict},
    {"torch._utils", "_rebuild_tensor_v2", Global::kTensor},
    {"torch._utils", "_rebuild_parameter", Global::kParameter},
    {"torch", "FloatStorage", Global::kStorage, QuantType::kF32},
    {"torch", "HalfStorage", Global::kStorage, QuantType::kF16},
    {"torch", "BFloat16Storage", Global::kStorage, QuantType::kBF16},
    {"torch", "DoubleStorage", Global::kStorage, QuantType::kF64},
    {"torch", "LongStorage", Global::kStorage, QuantType::kI64},
    {"torch", "IntStorage", Global::kStorage, QuantType::kI32},
    {"torch", "ShortStorage", Global::kStorage, QuantType::kI16},
    {"torch", "CharStorage", Global::kStorage, QuantType::kI8},
    {"torch", "ByteStorage", Global::kStorage, QuantType::kU8},
    {"torch", "BoolStorage", Global::kStorage, QuantType::kBool},
};

constexpr size_t kMostDims = 8;

}  // namespace

Error PickleMachine::bad(std::string_view expected) const {
  return {ErrorCode::kCorruptFile,
          fmt::format("{}: pickle: byte {}: expected {}", where_, at_, expected)};
}

Status PickleMachine::push(PickleValue value) {
  if (++n_values_ > kMostValues) {
    return errorf(ErrorCode::kUnsupported, "{}: pickle: expected at most {} values, got more",
                  where_, kMostValues);
  }
  stack_.push_back(value);
  return {};
}

Status PickleMachine::push(Kind kind, std::vector<PickleValue> items) {
  PickleValue value;
  value.kind = kind;
  value.index = static_cast<uint32_t>(compounds_.size());
  compounds_.push_back(std::move(items));
  return push(value);
}

Result<PickleValue> PickleMachine::pop() {
  if (stack_.empty() || stack_.back().kind == Kind::kMark)
    return tl::unexpected(bad("a value on the stack, got none"));
  const PickleValue value = stack_.back();
  stack_.pop_back();
  return value;
}

Result<std::vector<PickleValue>> PickleMachine::pop_to_mark() {
  const auto mark = std::find_if(stack_.rbegin(), stack_.rend(), [](const PickleValue& value) {
    return value.kind == Kind::kMark;
  });
  if (mark == stack_.rend()) return tl::unexpected(bad("a mark on the stack, got none"));
  std::vector<PickleValue> items(mark.base(), stack_.end());
  stack_.erase(mark.base() - 1, stack_.end());
  return items;
}

// Adds items to the list or dict on top of the stack.
Status PickleMachine::add_to(const std::vector<PickleValue>& items, Kind kind) {
  if (stack_.empty() || stack_.back().kind != kind ||
      (kind == Kind::kDict && items.size() % 2 != 0))
    return tl::unexpected(bad(kind == Kind::kDict ? "a dict and pairs" : "a list"));
  std::vector<PickleValue>& into = compounds_[stack_.back().index];
  n_values_ += items.size();
  if (n_values_ > kMostValues) return push(PickleValue());  // which reports the error
  into.insert(into.end(), items.begin(), items.end());
  return {};
}

// Reads a little-endian integer in two's complement. Integers of more than 8 bytes occur only as
// magic numbers.
Status PickleMachine::long_integer(ByteReader& in) {
  const auto length = in.read<uint8_t>();
  const std::byte* bytes = in.take(length);
  if (bytes == nullptr) return tl::unexpected(bad("the bytes of an integer"));
  PickleValue value;
  value.kind = Kind::kInteger;
  value.text = {reinterpret_cast<const char*>(bytes), length};
  uint64_t number =
      length > 0 && (bytes[length - 1] & std::byte{0x80}) != std::byte{} ? ~uint64_t{0} : 0;
  for (size_t i = std::min<size_t>(length, 8); i-- > 0;)
    number = number << 8 | std::to_integer<uint64_t>(bytes[i]);
  if (length > 8) number = ~uint64_t{0};  // -1: an invalid size
  value.integer = static_cast<int64_t>(number);
  return push(value);
}

Status PickleMachine::scalar(uint8_t opcode, ByteReader& in, bool& known) {
  PickleValue value;
  const auto text = [&](Kind kind, uint64_t length) {
    const std::byte* at = in.take(length);
    value.kind = kind;
    if (at != nullptr)
      value.text = {reinterpret_cast<const char*>(at), static_cast<size_t>(length)};
    return push(value);
  };
  const auto integer = [&](Kind kind, int64_t number) {
    value.kind = kind;
    value.integer = number;
    return push(value);
  };
  switch (opcode) {
    case 'N': return push(value);
    case 0x88: return integer(Kind::kBool, 1);
    case 0x89: return integer(Kind::kBool, 0);
    case 'J': return integer(Kind::kInteger, in.read<int32_t>());
    case 'K': return integer(Kind::kInteger, in.read<uint8_t>());
    case 'M': return integer(Kind::kInteger, in.read<uint16_t>());
    case 0x8a: return long_integer(in);
    // floats: no tensor description has them
    case 'G': in.read<uint64_t>(); return integer(Kind::kReal, 0);
    case 'X': return text(Kind::kText, in.read<uint32_t>());
    case 'U': return text(Kind::kBytes, in.read<uint8_t>());
    default: known = false; return {};
  }
}

Status PickleMachine::container(uint8_t opcode, bool& known) {
  const auto tuple_of = [&](size_t n) -> Status {
    std::vector<PickleValue> items(n);
    for (size_t i = n; i-- > 0;) {
      ASSIGN_OR_RETURN(items[i], pop());
    }
    return push(Kind::kTuple, std::move(items));
  };
  const auto add = [&](size_t n, Kind kind) -> Status {
    std::vector<PickleValue> items(n);
    for (size_t i = n; i-- > 0;) {
      ASSIGN_OR_RETURN(items[i], pop());
    }
    return add_to(items, kind);
  };
  const auto add_all = [&](Kind kind) -> Status {
    ASSIGN_OR_RETURN(const std::vector<PickleValue> items, pop_to_mark());
    return add_to(items, kind);
  };
  switch (opcode) {
    case '(': {
      PickleValue mark;
      mark.kind = Kind::kMark;
      return push(mark);
    }
    case ']': return push(Kind::kList, {});
    case '}': return push(Kind::kDict, {});
    case ')': return push(Kind::kTuple, {});
    case 0x85:
    case 0x86:
    case 0x87: return tuple_of(size_t{opcode} - 0x84);
    case 't': {
      ASSIGN_OR_RETURN(std::vector<PickleValue> items, pop_to_mark());
      return push(Kind::kTuple, std::move(items));
    }
    case 'a': return add(1, Kind::kList);
    case 's': return add(2, Kind::kDict);
    case 'e': return add_all(Kind::kList);
    case 'u': return add_all(Kind::kDict);
    default: known = false; return {};
  }
}

Status PickleMachine::memo(uint8_t opcode, ByteReader& in, bool& known) {
  const auto get = [&](uint32_t index) -> Status {
    const auto found = memo_.find(index);
    if (found == memo_.end())
      return tl::unexpected(bad(fmt::format("entry {} of the memo, got none", index)));
    return push(found->second);
  };
  const auto put = [&](uint32_t index) -> Status {
    if (stack_.empty()) return tl::unexpected(bad("a value to remember, got none"));
    n_values_ += memo_.contains(index) ? 0 : 1;
    memo_[index] = stack_.back();
    return {};
  };
  switch (opcode) {
    case 'h': return get(in.read<uint8_t>());
    case 'j': return get(in.read<uint32_t>());
    case 'q': return put(in.read<uint8_t>());
    case 'r': return put(in.read<uint32_t>());
    default: known = false; return {};
  }
}

Status PickleMachine::find_global(ByteReader& in) {
  const auto line = [&] {
    const auto* begin = reinterpret_cast<const char*>(in.take(0));
    size_t length = 0;
    while (in.ok() && in.read<char>() != '\n') ++length;
    return in.ok() ? std::string_view(begin, length) : std::string_view();
  };
  const std::string_view module = line(), name = line();
  if (!in.ok()) return tl::unexpected(bad("two lines that name a global"));
  const auto* row = std::ranges::find_if(kGlobals, [&](const GlobalRow& known) {
    return known.module == module && known.name == name;
  });
  if (row == std::end(kGlobals)) {
    return errorf(
        ErrorCode::kUnsupported,
        "{}: pickle: byte {}: it names {}, which is neither a tensor nor a dict: it is not loaded, "
        "for only these are",
        where_, at_, quote_name(std::string(module) + "." + std::string(name)));
  }
  PickleValue value;
  value.kind = Kind::kGlobal;
  value.index = static_cast<uint32_t>(row - kGlobals);
  return push(value);
}

Status PickleMachine::call(uint8_t opcode, ByteReader& in, bool& known) {
  switch (opcode) {
    case 'c': return find_global(in);
    case 'R': return reduce();
    case 'b': return build();
    case 'Q': return persistent_id();
    default: known = false; return {};
  }
}

// Reads ("storage", type, key, location, number of elements) and, in older files, the storage that
// it is a part of.
Status PickleMachine::persistent_id() {
  ASSIGN_OR_RETURN(const PickleValue id, pop());
  const auto parts = id.kind == Kind::kTuple ? items(id) : std::span<const PickleValue>();
  const bool whole = parts.size() == 5 || (parts.size() == 6 && parts[5].kind == Kind::kNone);
  const auto is_text = [](const PickleValue& value) {
    return value.kind == Kind::kText || value.kind == Kind::kBytes;
  };
  if (!whole || !is_text(parts[0]) || parts[0].text != "storage" ||
      parts[1].kind != Kind::kGlobal || !is_text(parts[2]) || parts[4].kind != Kind::kInteger ||
      kGlobals[parts[1].index].global != Global::kStorage)
    return tl::unexpected(bad("(\"storage\", type, key, location, number of elements)"));
  PickleValue value;
  value.kind = Kind::kStorage;
  value.index = static_cast<uint32_t>(storages_.size());
  storages_.push_back({kGlobals[parts[1].index].type, parts[2].text, parts[4].integer});
  return push(value);
}

// Builds a tensor from (storage, offset, shape, strides, ...); further arguments concern gradients.
Status PickleMachine::rebuild_tensor(std::span<const PickleValue> arguments) {
  const auto is_sizes = [&](const PickleValue& value) {
    return value.kind == Kind::kTuple && items(value).size() <= kMostDims &&
           std::ranges::all_of(items(value), [](const PickleValue& item) {
             return item.kind == Kind::kInteger && item.integer >= 0;
           });
  };
  if (arguments.size() < 4 || arguments.size() > 7 || arguments[0].kind != Kind::kStorage ||
      arguments[1].kind != Kind::kInteger || arguments[1].integer < 0 || !is_sizes(arguments[2]) ||
      !is_sizes(arguments[3]) || items(arguments[2]).size() != items(arguments[3]).size())
    return tl::unexpected(
        bad("a storage, an offset, and a shape and strides of at most 8 numbers from 0 on"));
  PickledTensor tensor{arguments[0].index, arguments[1].integer, {}, {}};
  for (const PickleValue& item : items(arguments[2])) tensor.shape.push_back(item.integer);
  for (const PickleValue& item : items(arguments[3])) tensor.strides.push_back(item.integer);
  PickleValue value;
  value.kind = Kind::kTensor;
  value.index = static_cast<uint32_t>(tensors_.size());
  tensors_.push_back(std::move(tensor));
  n_values_ += 4;
  return push(value);
}

Status PickleMachine::reduce() {
  ASSIGN_OR_RETURN(const PickleValue arguments, pop());
  ASSIGN_OR_RETURN(const PickleValue callable, pop());
  if (callable.kind != Kind::kGlobal || arguments.kind != Kind::kTuple)
    return tl::unexpected(bad("a global and a tuple of its arguments"));
  switch (kGlobals[callable.index].global) {
    case Global::kOrderedDict:
      if (!items(arguments).empty()) return tl::unexpected(bad("OrderedDict without arguments"));
      return push(Kind::kDict, {});
    case Global::kTensor: return rebuild_tensor(items(arguments));
    case Global::kParameter:
      if (items(arguments).empty() || items(arguments)[0].kind != Kind::kTensor)
        return tl::unexpected(bad("a parameter's tensor"));
      return push(items(arguments)[0]);
    case Global::kStorage: break;
  }
  return tl::unexpected(bad("something that is called to make a tensor or a dict"));
}

// Drops attributes of a dict, such as torch's versions of modules.
Status PickleMachine::build() {
  RETURN_IF_ERROR(pop());
  if (stack_.empty() || stack_.back().kind != Kind::kDict)
    return tl::unexpected(bad("a dict that is given attributes"));
  return {};
}

Status PickleMachine::step(uint8_t opcode, ByteReader& in, bool& done) {
  if (opcode == '.') {
    done = true;
    return {};
  }
  if (opcode == '0') {
    RETURN_IF_ERROR(pop());
    return {};
  }
  bool known = true;
  RETURN_IF_ERROR(scalar(opcode, in, known));
  if (known) return {};
  known = true;
  RETURN_IF_ERROR(container(opcode, known));
  if (known) return {};
  known = true;
  RETURN_IF_ERROR(memo(opcode, in, known));
  if (known) return {};
  known = true;
  RETURN_IF_ERROR(call(opcode, in, known));
  if (known) return {};
  return errorf(ErrorCode::kUnsupported,
                "{}: pickle: byte {}: opcode {:#04x} is not one that describes tensors", where_,
                at_, opcode);
}

Result<PickleValue> PickleMachine::load(ByteReader& in) {
  stack_.clear();
  memo_.clear();
  at_ = in.offset();
  const auto proto = in.read<uint8_t>(), version = in.read<uint8_t>();
  if (!in.ok() || proto != 0x80) return tl::unexpected(bad("a pickle"));
  if (version != 2)
    return errorf(ErrorCode::kUnsupported,
                  "{}: pickle: expected protocol 2, which torch writes, got {}", where_, version);
  for (bool done = false; !done;) {
    at_ = in.offset();
    const auto opcode = in.read<uint8_t>();
    if (in.ok()) RETURN_IF_ERROR(step(opcode, in, done));
    if (!in.ok()) return tl::unexpected(bad("more bytes, got the end"));
  }
  ASSIGN_OR_RETURN(const PickleValue value, pop());
  if (!stack_.empty()) return tl::unexpected(bad("one value at the end, got several"));
  return value;
}

}  // namespace penstock
