#include "formats/safetensors_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "formats/mapped_source.h"
#include "formats/safetensors.h"

namespace penstock {

void SafetensorsWriter::add_tensor(std::string name, QuantType type, std::vector<int64_t> shape) {
  tensors_.push_back({std::move(name), type, std::move(shape)});
}

Result<TensorFile> SafetensorsWriter::create(const std::filesystem::path& path) const {
  std::vector<const Tensor*> order;
  for (const Tensor& tensor : tensors_) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const Tensor* a, const Tensor* b) {
    return quant_info(a->type).block_bytes > quant_info(b->type).block_bytes;
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata_.empty()) header["__metadata__"] = metadata_;
  std::vector<TensorFile::Slot> slots;
  uint64_t offset = 0;
  for (const Tensor* tensor : order) {
    const std::string where = fmt::format("{}: tensor {}", path.string(), quote_name(tensor->name));
    const std::string_view dtype = safetensors_dtype(tensor->type);
    if (dtype.empty()) {
      return errorf(ErrorCode::kUnsupported, "{}: safetensors has no type {}", where,
                    quant_info(tensor->type).name);
    }
    if (header.contains(tensor->name) || tensor->name == "__metadata__" || !is_utf8(tensor->name)) {
      return errorf(ErrorCode::kInvalidArgument, "{}: expected a unique name of UTF-8", where);
    }
    ASSIGN_OR_RETURN(const size_t size, tensor_bytes(tensor->type, tensor->shape, where));
    header[tensor->name] = {
        {"dtype", dtype}, {"shape", tensor->shape}, {"data_offsets", {offset, offset + size}}};
    slots.push_back({tensor->name, offset, size, 0});
    offset += size;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const auto length = static_cast<uint64_t>(text.size());
  const uint64_t data_begin = 8 + length;
  for (TensorFile::Slot& slot : slots) slot.offset += data_begin;
  return TensorFile::create(path, std::string(reinterpret_cast<const char*>(&length), 8) + text,
                            std::move(slots), data_begin + offset);
}

}  // namespace penstock
