#include "formats/gguf_writer.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "formats/mapped_source.h"

namespace penstock {

using nlohmann::json;

namespace {

// Returns the file's type for a JSON value; for numbers the narrower one of 32 and 64 bits.
Result<GgufValueType> value_type(const json& value) {
  switch (value.type()) {
    case json::value_t::boolean: return GgufValueType::kBool;
    case json::value_t::string: return GgufValueType::kString;
    case json::value_t::array: return GgufValueType::kArray;
    case json::value_t::number_float: return GgufValueType::kFloat32;
    case json::value_t::number_unsigned:
      return value.get<uint64_t>() <= std::numeric_limits<uint32_t>::max() ? GgufValueType::kUint32
                                                                           : GgufValueType::kUint64;
    case json::value_t::number_integer: {
      const auto number = value.get<int64_t>();
      const bool narrow = number >= std::numeric_limits<int32_t>::min() &&
                          number <= std::numeric_limits<int32_t>::max();
      return narrow ? GgufValueType::kInt32 : GgufValueType::kInt64;
    }
    default:
      return errorf(ErrorCode::kInvalidArgument,
                    "expected a number, boolean, string or array, got {}", value.type_name());
  }
}

bool is_integer(GgufValueType type) {
  return type == GgufValueType::kInt32 || type == GgufValueType::kInt64 ||
         type == GgufValueType::kUint32 || type == GgufValueType::kUint64;
}

// Returns a type for all elements: integers of several widths or signs get the type that holds all.
// An empty array becomes an array of strings, such as the merges of a vocabulary without merges.
Result<GgufValueType> element_type(const json& array) {
  GgufValueType common = array.empty() ? GgufValueType::kString : GgufValueType::kUint32;
  bool first = true;
  for (const json& value : array) {
    ASSIGN_OR_RETURN(const GgufValueType type, value_type(value));
    if (first) {
      common = type;
      first = false;
    } else if (type != common) {
      if (!is_integer(type) || !is_integer(common)) {
        return errorf(ErrorCode::kInvalidArgument,
                      "expected an array of one type, got {} among others", value.type_name());
      }
      common = GgufValueType::kInt64;
    }
  }
  return common;
}

Status check_json(const json& value) {
  if (!value.is_array()) {
    ASSIGN_OR_RETURN([[maybe_unused]] const GgufValueType type, value_type(value));
    return {};
  }
  ASSIGN_OR_RETURN(const GgufValueType type, element_type(value));
  if (type != GgufValueType::kArray) return {};
  for (const json& element : value) RETURN_IF_ERROR(check_json(element));
  return {};
}

uint64_t align_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

template <class T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

void GgufWriter::put_string(std::string_view value) {
  put(static_cast<uint64_t>(value.size()));
  pairs_.append(value);
}

void GgufWriter::put_key(std::string_view key, GgufValueType type) {
  put_string(key);
  put(type);
  ++n_pairs_;
}

void GgufWriter::set(std::string_view key, std::string_view value) {
  put_key(key, GgufValueType::kString);
  put_string(value);
}

void GgufWriter::set_array(std::string_view key, std::span<const std::string> values) {
  put_key(key, GgufValueType::kArray);
  put(GgufValueType::kString);
  put(static_cast<uint64_t>(values.size()));
  for (const std::string& value : values) put_string(value);
}

void GgufWriter::put_json(const json& value, GgufValueType type) {
  switch (type) {
    case GgufValueType::kBool: return put(value.get<bool>());
    case GgufValueType::kString: return put_string(value.get_ref<const std::string&>());
    case GgufValueType::kFloat32: return put(value.get<float>());
    case GgufValueType::kUint32: return put(value.get<uint32_t>());
    case GgufValueType::kInt32: return put(value.get<int32_t>());
    case GgufValueType::kUint64: return put(value.get<uint64_t>());
    case GgufValueType::kArray: {
      const GgufValueType element = *element_type(value);
      put(element);
      put(static_cast<uint64_t>(value.size()));
      for (const json& item : value) put_json(item, element);
      return;
    }
    default: return put(value.get<int64_t>());
  }
}

Status GgufWriter::set_json(std::string_view key, const json& value) {
  if (const Status status = check_json(value); !status) {
    return errorf(ErrorCode::kInvalidArgument, "metadata {}: {}", quote_name(key),
                  status.error().message);
  }
  const GgufValueType type = *value_type(value);
  put_key(key, type);
  put_json(value, type);
  return {};
}

void GgufWriter::add_tensor(std::string name, QuantType type, std::vector<int64_t> shape) {
  tensors_.push_back({std::move(name), type, std::move(shape)});
}

Result<TensorFile> GgufWriter::create(const std::filesystem::path& path) const {
  std::string header;
  append(header, kGgufMagic);
  append(header, kGgufVersion);
  append(header, static_cast<uint64_t>(tensors_.size()));
  append(header, n_pairs_);
  header += pairs_;

  std::vector<TensorFile::Slot> slots;
  std::set<std::string_view> names;
  uint64_t offset = 0;  // from the start of the data
  for (const Tensor& tensor : tensors_) {
    const std::string where = fmt::format("{}: tensor {}", path.string(), quote_name(tensor.name));
    const int ggml_id = quant_info(tensor.type).ggml_id;
    if (ggml_id < 0) {
      return errorf(ErrorCode::kUnsupported, "{}: GGUF has no type {}", where,
                    quant_info(tensor.type).name);
    }
    if (tensor.shape.empty() || tensor.shape.size() > 4 || !names.insert(tensor.name).second) {
      return errorf(ErrorCode::kInvalidArgument,
                    "{}: expected a unique name and 1 to 4 dimensions, got {}", where,
                    tensor.shape.size());
    }
    ASSIGN_OR_RETURN(const size_t size, tensor_bytes(tensor.type, tensor.shape, where));
    append(header, static_cast<uint64_t>(tensor.name.size()));
    header += tensor.name;
    append(header, static_cast<uint32_t>(tensor.shape.size()));
    for (auto dim = tensor.shape.rbegin(); dim != tensor.shape.rend(); ++dim) append(header, *dim);
    append(header, static_cast<uint32_t>(ggml_id));
    append(header, offset);
    slots.push_back({tensor.name, offset, size, 0});
    offset = align_up(offset + size, kGgufDefaultAlignment);
  }
  const uint64_t data_begin = align_up(header.size(), kGgufDefaultAlignment);
  for (TensorFile::Slot& slot : slots) slot.offset += data_begin;
  return TensorFile::create(path, header, std::move(slots), data_begin + offset);
}

}  // namespace penstock
