#include "formats/gguf.h"

#include <algorithm>

#include "formats/byte_reader.h"
#include "formats/foreign_types.h"
#include "formats/gguf_sampling.h"

namespace penstock {

namespace {

using nlohmann::json;

constexpr size_t kMaxGgufDims = 4;
constexpr size_t kMaxNameBytes = 65535;
constexpr size_t kMaxArrayElements = size_t{1} << 25;  // in all arrays of a file
constexpr int kMaxArrayDepth = 4;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;
constexpr int64_t kMaxShards = 1000;

// Returns the size of a value of this type in the file; for strings and arrays the minimum; 0 for
// an unknown type.
size_t least_value_bytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::kUint8:
    case GgufValueType::kInt8:
    case GgufValueType::kBool: return 1;
    case GgufValueType::kUint16:
    case GgufValueType::kInt16: return 2;
    case GgufValueType::kUint32:
    case GgufValueType::kInt32:
    case GgufValueType::kFloat32: return 4;
    case GgufValueType::kUint64:
    case GgufValueType::kInt64:
    case GgufValueType::kFloat64:
    case GgufValueType::kString: return 8;
    case GgufValueType::kArray: return 12;
  }
  return 0;
}

struct RawTensor {
  TensorInfo info;
  size_t offset = 0;  // from the start of the data section
  size_t size = 0;
};

class GgufParser {
 public:
  GgufParser(std::span<const std::byte> bytes, const std::string& where)
      : bytes_(bytes), where_(where), in_(bytes) {}

  Result<GgufFile> parse() {
    RETURN_IF_ERROR(read_header());
    RETURN_IF_ERROR(read_metadata());
    RETURN_IF_ERROR(read_tensor_infos());
    RETURN_IF_ERROR(place_tensors());
    return std::move(file_);
  }

 private:
  template <class... Args>
  tl::unexpected<Error> corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    return errorf(ErrorCode::kCorruptFile, "{}: {}", where_,
                  fmt::format(format, std::forward<Args>(args)...));
  }
  tl::unexpected<Error> truncated(std::string_view what) const {
    return corrupt("{} at byte {} does not fit into the file of {} bytes", what, in_.offset(),
                   bytes_.size());
  }

  Status read_header() {
    const auto magic = in_.read<uint32_t>();
    const auto version = in_.read<uint32_t>();
    if (in_.ok() && magic != kGgufMagic)
      return corrupt("expected magic \"GGUF\", got something else");
    if (in_.ok() && version != 2 && version != 3) {
      const bool big_endian = version != 0 && (version & 0xffff) == 0;
      return errorf(ErrorCode::kUnsupported, "{}: GGUF version {}, expected 2 or 3{}", where_,
                    big_endian ? version >> 24 : version,
                    big_endian ? " in little-endian order" : "");
    }
    n_tensors_ = in_.read<uint64_t>();
    n_pairs_ = in_.read<uint64_t>();
    if (!in_.ok()) return truncated("the header of 24 bytes");
    constexpr size_t kLeastTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;
    constexpr size_t kLeastPairBytes = 8 + 1 + 4 + 1;
    if (n_tensors_ > in_.remaining() / kLeastTensorBytes ||
        n_pairs_ > in_.remaining() / kLeastPairBytes) {
      return corrupt("{} tensors and {} metadata pairs do not fit into {} bytes", n_tensors_,
                     n_pairs_, bytes_.size());
    }
    return {};
  }

  Status read_metadata() {
    file_.metadata = json::object();
    for (uint64_t i = 0; i < n_pairs_; ++i) {
      const std::string_view key = in_.read_string();
      if (!in_.ok()) return truncated(fmt::format("the key of metadata pair {}", i));
      if (key.empty() || key.size() > kMaxNameBytes || !is_utf8(key)) {
        return corrupt("metadata pair {}: expected a key of 1 to {} bytes of UTF-8, got {}", i,
                       kMaxNameBytes, quote_name(key));
      }
      const auto type = in_.read<GgufValueType>();
      ASSIGN_OR_RETURN(json value, read_value(type, key));
      if (!file_.metadata.emplace(std::string(key), std::move(value)).second) {
        return corrupt("metadata key {} appears twice", quote_name(key));
      }
    }
    return {};
  }

  // Reads a value that is not an array. After the end of the file, the result is undefined and
  // in_.ok() is false.
  json read_scalar(GgufValueType type) {
    switch (type) {
      case GgufValueType::kUint8: return in_.read<uint8_t>();
      case GgufValueType::kInt8: return in_.read<int8_t>();
      case GgufValueType::kUint16: return in_.read<uint16_t>();
      case GgufValueType::kInt16: return in_.read<int16_t>();
      case GgufValueType::kUint32: return in_.read<uint32_t>();
      case GgufValueType::kInt32: return in_.read<int32_t>();
      case GgufValueType::kUint64: return in_.read<uint64_t>();
      case GgufValueType::kInt64: return in_.read<int64_t>();
      case GgufValueType::kFloat32: return in_.read<float>();
      case GgufValueType::kFloat64: return in_.read<double>();
      case GgufValueType::kBool: return in_.read<uint8_t>() != 0;
      case GgufValueType::kString: return std::string(in_.read_string());
      case GgufValueType::kArray: break;
    }
    return nullptr;
  }

  Result<json> read_value(GgufValueType type, std::string_view key, int depth = 0) {
    if (in_.ok() && least_value_bytes(type) == 0) {
      return corrupt("metadata {}: value type {}, expected 0 to 12", quote_name(key),
                     static_cast<uint32_t>(type));
    }
    if (type == GgufValueType::kArray) return read_array(key, depth);
    json value = read_scalar(type);
    if (!in_.ok()) return truncated(fmt::format("the value of metadata {}", quote_name(key)));
    return value;
  }

  Result<json> read_array(std::string_view key, int depth) {
    const auto type = in_.read<GgufValueType>();
    const auto n = in_.read<uint64_t>();
    if (!in_.ok()) return truncated(fmt::format("the array of metadata {}", quote_name(key)));
    const size_t least = least_value_bytes(type);
    if (least == 0) {
      return corrupt("metadata {}: array of value type {}, expected 0 to 12", quote_name(key),
                     static_cast<uint32_t>(type));
    }
    if (depth >= kMaxArrayDepth)
      return corrupt("metadata {}: arrays nest deeper than {}", quote_name(key), kMaxArrayDepth);
    if (n > in_.remaining() / least) {
      return corrupt(
          "metadata {}: an array of {} values at byte {} does not fit into the file of {} bytes",
          quote_name(key), n, in_.offset(), bytes_.size());
    }
    if (n > kMaxArrayElements - n_array_elements_) {
      return corrupt("metadata {}: expected at most {} array elements in a file, got more",
                     quote_name(key), kMaxArrayElements);
    }
    n_array_elements_ += static_cast<size_t>(n);
    json::array_t values;
    values.reserve(static_cast<size_t>(n));
    for (uint64_t i = 0; i < n; ++i) {
      if (type == GgufValueType::kArray) {
        ASSIGN_OR_RETURN(json value, read_array(key, depth + 1));
        values.push_back(std::move(value));
      } else {
        values.push_back(read_scalar(type));
        if (!in_.ok())
          return truncated(fmt::format("element {} of metadata {}", i, quote_name(key)));
      }
    }
    return json(std::move(values));
  }

  Status read_tensor_infos() {
    raw_.reserve(static_cast<size_t>(n_tensors_));
    for (uint64_t i = 0; i < n_tensors_; ++i) {
      RawTensor tensor;
      const std::string_view name = in_.read_string();
      if (!in_.ok()) return truncated(fmt::format("the name of tensor {}", i));
      if (name.empty() || name.size() > kMaxNameBytes || !is_utf8(name)) {
        return corrupt("tensor {}: expected a name of 1 to {} bytes of UTF-8, got {}", i,
                       kMaxNameBytes, quote_name(name));
      }
      const auto n_dims = in_.read<uint32_t>();
      if (in_.ok() && (n_dims < 1 || n_dims > kMaxGgufDims)) {
        return corrupt("tensor {}: {} dimensions, expected 1 to {}", quote_name(name), n_dims,
                       kMaxGgufDims);
      }
      for (uint32_t d = 0; in_.ok() && d < n_dims; ++d) {
        const auto dim = in_.read<uint64_t>();
        if (in_.ok() && (dim < 1 || dim > uint64_t{1} << 48)) {
          return corrupt("tensor {}: dimension {}, expected 1 to 2^48", quote_name(name), dim);
        }
        tensor.info.shape.insert(tensor.info.shape.begin(), static_cast<int64_t>(dim));
      }
      const auto type = in_.read<uint32_t>();
      tensor.offset = in_.read<uint64_t>();
      if (!in_.ok())
        return truncated(fmt::format("the description of tensor {}", quote_name(name)));
      const QuantTypeInfo* info = find_ggml_type(type);
      if (info == nullptr) {
        return errorf(ErrorCode::kUnsupported, "{}: tensor {}: type {} ({}) is not supported{}",
                      where_, quote_name(name), type, foreign_type(type), written_by());
      }
      tensor.info.name = name;
      tensor.info.type = info->type;
      ASSIGN_OR_RETURN(tensor.size,
                       tensor_bytes(info->type, tensor.info.shape,
                                    fmt::format("{}: tensor {}", where_, quote_name(name))));
      raw_.push_back(std::move(tensor));
    }
    return {};
  }

  // Describes the program that wrote the file, by its metadata.
  std::string written_by() const {
    std::string text;
    for (const char* key :
         {"general.quantized_by", "general.quantization_version", "general.file_type"}) {
      const auto it = file_.metadata.find(key);
      if (it == file_.metadata.end()) continue;
      text +=
          fmt::format("{}{} {}", text.empty() ? "; the file has " : ", ", key, quote_value(*it));
    }
    return text;
  }
  static std::string quote_value(const json& value) {
    return value.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 80);
  }

  Result<size_t> alignment() const {
    const auto it = file_.metadata.find("general.alignment");
    if (it == file_.metadata.end()) return kGgufDefaultAlignment;
    const uint64_t value = it->is_number_unsigned() ? it->get<uint64_t>() : 0;
    if (value < 8 || value > kMaxAlignment || (value & (value - 1)) != 0) {
      return corrupt("general.alignment: expected a power of two from 8 to {}, got {}",
                     kMaxAlignment, quote_value(*it));
    }
    return static_cast<size_t>(value);
  }

  // Converts offsets to spans. Tensors must be inside the file and must not overlap.
  Status place_tensors() {
    ASSIGN_OR_RETURN(const size_t align, alignment());
    const size_t data_begin = (in_.offset() + align - 1) / align * align;
    const size_t available = bytes_.size() > data_begin ? bytes_.size() - data_begin : 0;
    for (RawTensor& tensor : raw_) {
      const std::string name = quote_name(tensor.info.name);
      if (tensor.offset % align != 0) {
        return corrupt("tensor {}: offset {}, expected a multiple of {}", name, tensor.offset,
                       align);
      }
      if (tensor.offset > available || tensor.size > available - tensor.offset) {
        return corrupt(
            "tensor {}: {} bytes at offset {} do not fit into the {} bytes of tensor data", name,
            tensor.size, tensor.offset, available);
      }
      tensor.info.bytes = bytes_.subspan(data_begin + tensor.offset, tensor.size);
    }
    std::vector<const RawTensor*> by_offset;
    for (const RawTensor& tensor : raw_) by_offset.push_back(&tensor);
    std::sort(by_offset.begin(), by_offset.end(),
              [](const RawTensor* a, const RawTensor* b) { return a->offset < b->offset; });
    for (size_t i = 1; i < by_offset.size(); ++i) {
      const RawTensor& before = *by_offset[i - 1];
      if (by_offset[i]->offset < before.offset + before.size) {
        return corrupt("tensors {} and {} overlap at offset {}", quote_name(before.info.name),
                       quote_name(by_offset[i]->info.name), by_offset[i]->offset);
      }
    }
    for (RawTensor& tensor : raw_) file_.tensors.push_back(std::move(tensor.info));
    return {};
  }

  std::span<const std::byte> bytes_;
  const std::string& where_;
  ByteReader in_;
  uint64_t n_tensors_ = 0;
  uint64_t n_pairs_ = 0;
  size_t n_array_elements_ = 0;
  std::vector<RawTensor> raw_;
  GgufFile file_;
};

// Returns an integer of the metadata, or `fallback` if the key is absent. Error: a negative number
// or another type.
Result<int64_t> metadata_count(const json& metadata, const char* key, int64_t fallback,
                               const std::string& where) {
  const auto it = metadata.find(key);
  if (it == metadata.end()) return fallback;
  if (it->is_number_integer() && it->get<int64_t>() >= 0) return it->get<int64_t>();
  return errorf(ErrorCode::kCorruptFile, "{}: {}: expected a whole number, got {}", where, key,
                it->type_name());
}

std::string shard_suffix(int64_t number, int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number, count);
}

// Opens shards 2..count beside the first and appends their tensors.
Status add_shards(const std::filesystem::path& first, int64_t count, MappedSource& source,
                  FileBytes how, std::vector<TensorInfo>& tensors) {
  const std::string name = first.filename().string();
  const std::string suffix = shard_suffix(1, count);
  if (name.size() < suffix.size() ||
      name.compare(name.size() - suffix.size(), suffix.size(), suffix) != 0) {
    return errorf(ErrorCode::kCorruptFile, "{}: the first of {} shards must be named ...{}",
                  first.string(), count, suffix);
  }
  for (int64_t i = 2; i <= count; ++i) {
    const std::filesystem::path path =
        first.parent_path() /
        (name.substr(0, name.size() - suffix.size()) + shard_suffix(i, count));
    ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, source.add_file(path, how));
    ASSIGN_OR_RETURN(GgufFile shard, parse_gguf(bytes, path.string()));
    ASSIGN_OR_RETURN(const int64_t number,
                     metadata_count(shard.metadata, "split.no", -1, path.string()));
    ASSIGN_OR_RETURN(const int64_t total,
                     metadata_count(shard.metadata, "split.count", -1, path.string()));
    if (number != i - 1 || total != count) {
      return errorf(ErrorCode::kCorruptFile,
                    "{}: expected shard split.no {} of split.count {}, got {} of {}", path.string(),
                    i - 1, count, number, total);
    }
    std::move(shard.tensors.begin(), shard.tensors.end(), std::back_inserter(tensors));
  }
  return {};
}

}  // namespace

bool is_gguf(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  return in.read<uint32_t>() == kGgufMagic;
}

Result<GgufFile> parse_gguf(std::span<const std::byte> bytes, const std::string& where) {
  return GgufParser(bytes, where).parse();
}

Result<std::unique_ptr<WeightSource>> open_gguf(const std::filesystem::path& path, FileBytes how) {
  const std::string where = path.string();
  auto source = std::make_unique<MappedSource>(Naming::kGguf, path);
  ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, source->add_file(path, how));
  ASSIGN_OR_RETURN(GgufFile first, parse_gguf(bytes, where));
  ASSIGN_OR_RETURN(const int64_t count, metadata_count(first.metadata, "split.count", 1, where));
  ASSIGN_OR_RETURN(const int64_t number, metadata_count(first.metadata, "split.no", 0, where));
  if (count > kMaxShards) {
    return errorf(ErrorCode::kCorruptFile, "{}: split.count: expected at most {}, got {}", where,
                  kMaxShards, count);
  }
  if (count > 1 && number != 0) {
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: this is shard {} of {}; open the first one, ...{}", where, number + 1, count,
                  shard_suffix(1, count));
  }
  if (count > 1) RETURN_IF_ERROR(add_shards(path, count, *source, how, first.tensors));
  const auto n_tensors = static_cast<int64_t>(first.tensors.size());
  ASSIGN_OR_RETURN(const int64_t expected,
                   metadata_count(first.metadata, "split.tensors.count", n_tensors, where));
  if (expected != n_tensors) {
    return errorf(ErrorCode::kCorruptFile,
                  "{}: split.tensors.count: expected {} tensors in {} shards, got {}", where,
                  expected, count, n_tensors);
  }
  source->set_generation_config(sampling_from_gguf(first.metadata));
  source->set_config(std::move(first.metadata));
  RETURN_IF_ERROR(source->set_tensors(std::move(first.tensors)));
  return source;
}

}  // namespace penstock
