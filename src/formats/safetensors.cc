#include "formats/safetensors.h"

#include <algorithm>
#include <set>

#include "formats/byte_reader.h"

namespace penstock {

namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxSafetensorsDims = 8;
constexpr size_t kMaxTensors = 1 << 20;

struct Dtype {
  std::string_view name;
  QuantType type;
};
constexpr Dtype kDtypes[] = {
    {"F32", QuantType::kF32},    {"F16", QuantType::kF16},        {"BF16", QuantType::kBF16},
    {"F64", QuantType::kF64},    {"I64", QuantType::kI64},        {"I32", QuantType::kI32},
    {"I16", QuantType::kI16},    {"I8", QuantType::kI8},          {"U8", QuantType::kU8},
    {"BOOL", QuantType::kBool},  {"F8_E4M3", QuantType::kF8E4M3}, {"F8_E5M2", QuantType::kF8E5M2},
    {"F8_E8M0", QuantType::kU8},  // exponents
};

struct Entry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<uint64_t> offsets;
  bool has_shape = false;
};

// Handles the header's SAX events: {"name": {"dtype": s, "shape": [n...], "data_offsets": [n, n]},
// ...} and {"__metadata__": {string: string}}. Anything else stops the parser with a message.
class HeaderHandler : public nlohmann::json_sax<json> {
 public:
  std::vector<Entry> entries;
  std::string problem;

  bool null() override { return fail("a null value"); }
  bool boolean(bool) override { return fail("a boolean value"); }
  bool number_integer(number_integer_t value) override {
    return fail(fmt::format("the number {}", value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return fail("the number " + text);
  }
  bool binary(binary_t&) override { return fail("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ != 3) return fail(fmt::format("the number {}", value));
    if (field_ == "shape") {
      if (entries.back().shape.size() >= kMaxSafetensorsDims)
        return fail(fmt::format("more than {} dimensions", kMaxSafetensorsDims));
      if (value > uint64_t{1} << 48) return fail(fmt::format("dimension {}", value));
      entries.back().shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (entries.back().offsets.size() >= 2) return fail("more than two data_offsets");
    entries.back().offsets.push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (depth_ == 2 && in_metadata_) return true;
    if (depth_ != 2 || field_ != "dtype") return fail("an unexpected string");
    entries.back().dtype = value;
    return true;
  }

  bool start_object(size_t) override {
    if (depth_ >= 2) return fail("an object inside a tensor's description");
    ++depth_;
    return true;
  }

  bool key(string_t& name) override {
    if (depth_ == 1) {
      in_metadata_ = name == "__metadata__";
      name_ = name;
      fields_.clear();
      if (in_metadata_) return true;
      if (entries.size() >= kMaxTensors)
        return fail(fmt::format("more than {} tensors", kMaxTensors));
      entries.emplace_back();
      entries.back().name = name;
      return true;
    }
    if (in_metadata_) return true;
    field_ = name;
    if (name != "dtype" && name != "shape" && name != "data_offsets")
      return fail("the key " + quote_name(name));
    if (!fields_.insert(name).second) return fail("the key " + quote_name(name) + " twice");
    return true;
  }

  bool end_object() override {
    --depth_;
    if (depth_ != 1 || in_metadata_) return true;
    const Entry& entry = entries.back();
    if (entry.dtype.empty() || !entry.has_shape || entry.offsets.size() != 2)
      return fail("an incomplete description");
    return true;
  }

  bool start_array(size_t) override {
    if (depth_ != 2 || in_metadata_ || field_ == "dtype") return fail("an unexpected array");
    entries.back().has_shape |= field_ == "shape";
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    problem = fmt::format("expected JSON, got a syntax error at byte {} of the header", position);
    return false;
  }

 private:
  bool fail(const std::string& got) {
    problem = fmt::format("{}: expected dtype, shape and data_offsets, got {}",
                          depth_ == 0 ? std::string("header") : "tensor " + quote_name(name_), got);
    return false;
  }

  int depth_ = 0;  // 1: names, 2: fields, 3: numbers of an array
  bool in_metadata_ = false;
  std::string name_, field_;
  std::set<std::string> fields_;
};

Result<TensorInfo> to_tensor(Entry& entry, std::span<const std::byte> data,
                             const std::string& where) {
  const std::string tensor = fmt::format("{}: tensor {}", where, quote_name(entry.name));
  const auto* dtype = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                   [&](const Dtype& known) { return known.name == entry.dtype; });
  if (dtype == std::end(kDtypes)) {
    return errorf(ErrorCode::kUnsupported, "{}: dtype {} is not supported", tensor,
                  quote_name(entry.dtype));
  }
  TensorInfo info;
  info.name = std::move(entry.name);
  info.type = dtype->type;
  info.shape = std::move(entry.shape);
  ASSIGN_OR_RETURN(const size_t size, tensor_bytes(info.type, info.shape, tensor));
  const uint64_t begin = entry.offsets[0];
  const uint64_t end = entry.offsets[1];
  if (begin > end || end > data.size()) {
    return errorf(ErrorCode::kCorruptFile,
                  "{}: data_offsets [{}, {}] do not fit into the {} bytes of data", tensor, begin,
                  end, data.size());
  }
  if (end - begin != size) {
    return errorf(ErrorCode::kCorruptFile, "{}: expected {} bytes for {} [{}], got {}", tensor,
                  size, dtype->name, fmt::join(info.shape, ", "), end - begin);
  }
  info.bytes = data.subspan(static_cast<size_t>(begin), size);
  return info;
}

Status check_coverage(const std::vector<TensorInfo>& tensors, std::span<const std::byte> data,
                      const std::string& where) {
  const std::byte* expected = data.data();
  for (const TensorInfo& tensor : tensors) {
    if (tensor.bytes.data() != expected) {
      return errorf(
          ErrorCode::kCorruptFile, "{}: tensor {}: expected its data at offset {}, got {} ({})",
          where, quote_name(tensor.name), expected - data.data(), tensor.bytes.data() - data.data(),
          tensor.bytes.data() < expected ? "an overlap" : "a gap");
    }
    expected += tensor.bytes.size();
  }
  if (expected != data.data() + data.size()) {
    return errorf(ErrorCode::kCorruptFile, "{}: expected {} bytes of data, got {}", where,
                  expected - data.data(), data.size());
  }
  return {};
}

}  // namespace

bool is_safetensors(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  const auto length = in.read<uint64_t>();
  return in.ok() && length >= 2 && length <= kMaxHeaderBytes && length <= in.remaining() &&
         bytes[8] == std::byte{'{'};
}

Result<std::vector<TensorInfo>> parse_safetensors(std::span<const std::byte> bytes,
                                                  const std::string& where) {
  ByteReader in(bytes);
  const auto length = in.read<uint64_t>();
  if (!in.ok()) {
    return errorf(ErrorCode::kCorruptFile,
                  "{}: expected a header length of 8 bytes, got a file of {} bytes", where,
                  bytes.size());
  }
  const std::byte* header = length <= kMaxHeaderBytes ? in.take(length) : nullptr;
  if (header == nullptr) {
    return errorf(ErrorCode::kCorruptFile, "{}: header of {} bytes, expected at most {}", where,
                  length, std::min<uint64_t>(kMaxHeaderBytes, bytes.size() - 8));
  }
  const auto* text = reinterpret_cast<const char*>(header);
  HeaderHandler handler;
  if (!json::sax_parse(text, text + length, &handler)) {
    return errorf(ErrorCode::kCorruptFile, "{}: {}", where, handler.problem);
  }
  const std::span<const std::byte> data = bytes.subspan(in.offset());
  std::vector<TensorInfo> tensors;
  tensors.reserve(handler.entries.size());
  std::stable_sort(handler.entries.begin(), handler.entries.end(),
                   [](const Entry& a, const Entry& b) { return a.offsets < b.offsets; });
  for (Entry& entry : handler.entries) {
    ASSIGN_OR_RETURN(TensorInfo tensor, to_tensor(entry, data, where));
    tensors.push_back(std::move(tensor));
  }
  RETURN_IF_ERROR(check_coverage(tensors, data, where));
  return tensors;
}

std::string_view safetensors_dtype(QuantType type) {
  for (const Dtype& dtype : kDtypes) {
    if (dtype.type == type) return dtype.name;
  }
  return {};
}

}  // namespace penstock
