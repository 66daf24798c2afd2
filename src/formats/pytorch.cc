#include "formats/pytorch.h"

#include <algorithm>
#include <array>
#include <map>

#include "formats/pickle.h"
#include "formats/zip_archive.h"

namespace penstock {

namespace {

using Kind = PickleValue::Kind;

// The first pickle of the older format: a magic number of 10 bytes.
constexpr std::array<unsigned char, 14> kOlderMark = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c,
                                                      0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};
constexpr int64_t kOlderProtocol = 1001;

// Bytes of each storage, by key.
using Storages = std::map<std::string_view, std::span<const std::byte>, std::less<>>;

bool is_older(std::span<const std::byte> bytes) {
  return bytes.size() >= kOlderMark.size() &&
         std::memcmp(bytes.data(), kOlderMark.data(), kOlderMark.size()) == 0;
}

size_t element_bytes(QuantType type) { return quant_info(type).block_bytes; }

// Returns the end of the tensor's elements in its storage; nothing on overflow.
std::optional<int64_t> end_of(const PickledTensor& tensor) {
  int64_t last = tensor.offset;
  for (size_t d = 0; d < tensor.shape.size(); ++d) {
    if (tensor.shape[d] == 0) return tensor.offset;
    int64_t step = 0;
    if (__builtin_mul_overflow(tensor.shape[d] - 1, tensor.strides[d], &step) ||
        __builtin_add_overflow(last, step, &last))
      return {};
  }
  return last == INT64_MAX ? std::nullopt : std::optional(last + 1);
}

bool in_order(const PickledTensor& tensor) {
  int64_t expected = 1;
  for (size_t d = tensor.shape.size(); d-- > 0;) {
    if (tensor.shape[d] != 1 && tensor.strides[d] != expected) return false;
    expected *= tensor.shape[d];
  }
  return true;
}

// Copies a tensor's elements in the order of its shape.
std::vector<std::byte> laid_in_order(const PickledTensor& tensor,
                                     std::span<const std::byte> storage, size_t each, size_t size) {
  std::vector<std::byte> out(size);
  std::vector<int64_t> at(tensor.shape.size(), 0);
  int64_t from = tensor.offset;
  for (size_t to = 0; to < size; to += each) {
    std::memcpy(out.data() + to, storage.data() + static_cast<size_t>(from) * each, each);
    for (size_t d = at.size(); d-- > 0;) {
      from += tensor.strides[d];
      if (++at[d] < tensor.shape[d]) break;
      from -= tensor.strides[d] * tensor.shape[d];
      at[d] = 0;
    }
  }
  return out;
}

class StateDict {
 public:
  StateDict(const PickleMachine& machine, const Storages& storages, size_t file_bytes,
            std::string where)
      : machine_(machine),
        storages_(storages),
        left_to_copy_(file_bytes),
        where_(std::move(where)) {}

  Result<std::vector<TensorInfo>> read(const PickleValue& top,
                                       std::vector<std::vector<std::byte>>& copies) {
    if (top.kind != Kind::kDict)
      return errorf(ErrorCode::kUnsupported, "{}: expected a dict of tensors by name", where_);
    // later entries replace earlier ones, as in Python
    std::map<std::string_view, PickleValue> entries;
    const auto items = machine_.items(top);
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      if (items[i].kind != Kind::kText || items[i + 1].kind != Kind::kTensor) {
        return errorf(ErrorCode::kUnsupported,
                      "{}: {}: expected a name and a tensor, as in a model's state dict", where_,
                      items[i].kind == Kind::kText ? quote_name(items[i].text)
                                                   : fmt::format("entry {}", i / 2));
      }
      entries[items[i].text] = items[i + 1];
    }
    std::vector<TensorInfo> tensors;
    for (const auto& [name, value] : entries) {
      ASSIGN_OR_RETURN(TensorInfo tensor, place(name, machine_.tensor(value), copies));
      tensors.push_back(std::move(tensor));
    }
    return tensors;
  }

 private:
  Result<TensorInfo> place(std::string_view name, const PickledTensor& pickled,
                           std::vector<std::vector<std::byte>>& copies) {
    const std::string tensor = fmt::format("{}: tensor {}", where_, quote_name(name));
    const PickledStorage& storage = machine_.storages()[pickled.storage];
    const size_t each = element_bytes(storage.type);
    const auto found = storages_.find(storage.key);
    if (found == storages_.end())
      return errorf(ErrorCode::kCorruptFile, "{}: expected its storage {}, got none", tensor,
                    quote_name(storage.key));
    const std::span<const std::byte> bytes = found->second;
    const auto n_elements = static_cast<int64_t>(bytes.size() / each);
    if (storage.n_elements != n_elements || bytes.size() % each != 0)
      return errorf(ErrorCode::kCorruptFile,
                    "{}: expected a storage of {} numbers, got one of {} bytes", tensor,
                    storage.n_elements, bytes.size());
    TensorInfo info;
    info.name = name;
    info.type = storage.type;
    info.shape = pickled.shape;
    ASSIGN_OR_RETURN(const size_t size, tensor_bytes(info.type, info.shape, tensor));
    const auto end = end_of(pickled);
    if (!end || *end > n_elements) {
      return errorf(
          ErrorCode::kCorruptFile,
          "{}: shape [{}] with strides [{}] from {} on does not fit into its storage of {} numbers",
          tensor, fmt::join(pickled.shape, ", "), fmt::join(pickled.strides, ", "), pickled.offset,
          n_elements);
    }
    if (size == 0 || in_order(pickled)) {
      info.bytes = size == 0 ? bytes.first(0)
                             : bytes.subspan(static_cast<size_t>(pickled.offset) * each, size);
      return info;
    }
    if (size > left_to_copy_)
      return errorf(ErrorCode::kUnsupported,
                    "{}: tensors that are laid in order would take more bytes than the file has",
                    tensor);
    left_to_copy_ -= size;
    copies.push_back(laid_in_order(pickled, bytes, each, size));
    info.bytes = copies.back();
    return info;
  }

  const PickleMachine& machine_;
  const Storages& storages_;
  size_t left_to_copy_;
  std::string where_;
};

// Reads an archive: NAME/data.pkl describes the tensors, NAME/data/KEY are storages.
Result<std::vector<TensorInfo>> parse_archive(std::span<const std::byte> bytes,
                                              const std::string& where,
                                              std::vector<std::vector<std::byte>>& copies) {
  ASSIGN_OR_RETURN(const std::vector<ZipEntry> entries, list_zip(bytes, where));
  constexpr std::string_view kDescription = "/data.pkl";
  const auto described = std::ranges::find_if(entries, [&](const ZipEntry& entry) {
    return entry.name.ends_with(kDescription) &&
           entry.name.find('/') == entry.name.size() - kDescription.size();
  });
  if (described == entries.end())
    return errorf(ErrorCode::kUnsupported,
                  "{}: expected a file of torch.save, got a zip archive without data.pkl", where);
  const std::string_view root = described->name.substr(0, described->name.find('/') + 1);
  Storages storages;
  for (const ZipEntry& entry : entries) {
    if (!entry.name.starts_with(root)) continue;
    const std::string_view name = entry.name.substr(root.size());
    if (entry.compressed)
      return errorf(ErrorCode::kUnsupported, "{}: {}: expected it uncompressed, as torch writes it",
                    where, quote_name(entry.name));
    if (name.starts_with("data/")) storages[name.substr(5)] = entry.bytes;
    const std::string_view text(reinterpret_cast<const char*>(entry.bytes.data()),
                                entry.bytes.size());
    if (name == "byteorder" && text != "little")
      return errorf(ErrorCode::kUnsupported, "{}: byteorder: expected little, got {}", where,
                    quote_name(text));
  }
  PickleMachine machine(where);
  ByteReader in(described->bytes);
  ASSIGN_OR_RETURN(const PickleValue top, machine.load(in));
  return StateDict(machine, storages, bytes.size(), where).read(top, copies);
}

// Reads the older format: five pickles (magic number, version, machine, dict, keys of storages),
// then each storage with its number of elements.
Result<std::vector<TensorInfo>> parse_older(std::span<const std::byte> bytes,
                                            const std::string& where,
                                            std::vector<std::vector<std::byte>>& copies) {
  PickleMachine machine(where);
  ByteReader in(bytes);
  RETURN_IF_ERROR(machine.load(in));
  ASSIGN_OR_RETURN(const PickleValue version, machine.load(in));
  if (version.kind != Kind::kInteger || version.integer != kOlderProtocol)
    return errorf(ErrorCode::kUnsupported, "{}: expected torch's protocol {}", where,
                  kOlderProtocol);
  RETURN_IF_ERROR(machine.load(in));
  ASSIGN_OR_RETURN(const PickleValue top, machine.load(in));
  ASSIGN_OR_RETURN(const PickleValue keys, machine.load(in));
  if (keys.kind != Kind::kList)
    return errorf(ErrorCode::kCorruptFile, "{}: expected a list of storages", where);
  std::map<std::string_view, size_t> sizes;
  for (const PickledStorage& storage : machine.storages())
    sizes[storage.key] = element_bytes(storage.type);
  Storages storages;
  for (const PickleValue& key : machine.items(keys)) {
    const auto each = sizes.find(key.text);
    const auto n_elements = in.read<uint64_t>();
    const std::byte* at = each == sizes.end() ? nullptr : in.take(n_elements, each->second);
    if (at == nullptr)
      return errorf(ErrorCode::kCorruptFile,
                    "{}: storage {} does not fit into the file: is it cut off?", where,
                    quote_name(key.text));
    storages[key.text] = {at, static_cast<size_t>(n_elements) * each->second};
  }
  return StateDict(machine, storages, bytes.size(), where).read(top, copies);
}

}  // namespace

bool is_pytorch(std::span<const std::byte> bytes) { return is_zip(bytes) || is_older(bytes); }

Result<std::vector<TensorInfo>> parse_pytorch(std::span<const std::byte> bytes,
                                              const std::string& where,
                                              std::vector<std::vector<std::byte>>& copies) {
  return is_older(bytes) ? parse_older(bytes, where, copies) : parse_archive(bytes, where, copies);
}

}  // namespace penstock
