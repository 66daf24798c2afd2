#include "quantize/merge_lora.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/file_error.h"
#include "formats/gguf_writer.h"
#include "formats/hf_config.h"
#include "formats/safetensors_writer.h"
#include "quantize/write/output.h"

namespace penstock {

namespace {

namespace fs = std::filesystem;
using MergedModules = std::map<std::string_view, const LoraModule*>;

constexpr int64_t kMergedElements = int64_t{1} << 20;  // elements in memory as floats at a time

Status write_merged(const TensorInfo& weight, const LoraModule& module, TensorFile& file) {
  const int64_t cols = weight.shape.back(), rows = weight.n_elements() / cols,
                step = std::max<int64_t>(1, kMergedElements / cols);
  const size_t row_bytes = weight.bytes.size() / static_cast<size_t>(rows);
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t n = std::min(step, rows - first);
    std::vector<float> values(static_cast<size_t>(n * cols));
    dequantize_row(weight.type, weight.bytes.data() + static_cast<size_t>(first) * row_bytes,
                   values.data(), n * cols);
    add_lora(module, first, values);
    std::vector<std::byte> bytes(static_cast<size_t>(n) * row_bytes);
    for (int64_t row = 0; row < n; ++row)
      quantize_row(weight.type, values.data() + row * cols,
                   bytes.data() + static_cast<size_t>(row) * row_bytes, cols);
    RETURN_IF_ERROR(file.write(weight.name, bytes));
  }
  return {};
}

template <class Writer>
Status write_tensors(const WeightSource& base, const MergedModules& modules, Writer& writer,
                     const fs::path& out) {
  for (const TensorInfo& tensor : base.tensors())
    writer.add_tensor(tensor.name, tensor.type, tensor.shape);
  ASSIGN_OR_RETURN(TensorFile file, writer.create(out));
  for (const TensorInfo& tensor : base.tensors()) {
    const auto module = modules.find(tensor.name);
    if (module == modules.end()) {
      RETURN_IF_ERROR(file.write(tensor.name, tensor.bytes));
    } else {
      RETURN_IF_ERROR(write_merged(tensor, *module->second, file));
    }
    base.drop(tensor);
  }
  return file.finish();
}

Status copy_beside_weights(const fs::path& from, UnfinishedDirectory& out) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(from, error)) {
    const std::string name = entry.path().filename().string(),
                      extension = entry.path().extension().string();
    const bool weights = extension == ".safetensors" || extension == ".bin" ||
                         extension == ".gguf" || extension == ".pt" || extension == ".pth" ||
                         name.ends_with(".index.json");
    if (!entry.is_regular_file() || weights) continue;
    ASSIGN_OR_RETURN(const fs::path to, out.place(name));
    fs::copy_file(entry.path(), to, error);
    if (error) return errorf(file_error(error.value()), "{}: {}", to.string(), error.message());
  }
  if (error) return errorf(ErrorCode::kIo, "{}: {}", from.string(), error.message());
  return {};
}

Status write_directory(const WeightSource& base, const MergedModules& modules,
                       const fs::path& path) {
  ASSIGN_OR_RETURN(UnfinishedDirectory out, UnfinishedDirectory::begin(path));
  RETURN_IF_ERROR(copy_beside_weights(base.path(), out));
  SafetensorsWriter writer;
  writer.set_metadata("format", "pt");
  ASSIGN_OR_RETURN(const fs::path weights, out.place("model.safetensors"));
  RETURN_IF_ERROR(write_tensors(base, modules, writer, weights));
  return out.finish();
}

Status check_merge(const WeightSource& base, const LoraAdapter& adapter, const fs::path& out) {
  RETURN_IF_ERROR(check_no_input(out, &base, {}));
  if (base.naming() == Naming::kHuggingFace) RETURN_IF_ERROR(remove_unfinished(out));
  std::error_code error;
  if (fs::exists(out, error))
    return errorf(ErrorCode::kInvalidArgument, "{}: expected a new output, got one that exists",
                  out.string());
  if (base.naming() == Naming::kHuggingFace && quantization_config_of(base.config()) != nullptr) {
    return errorf(
        ErrorCode::kUnsupported,
        "{}: quantization_config: an adapter is merged into weights that are not quantized",
        base.path().string());
  }
  RETURN_IF_ERROR(check_lora_base(adapter, base));
  for (const LoraModule& module : adapter.modules) {
    const QuantType type = base.find(module.weight)->type;
    if (!can_quantize(type))
      return errorf(ErrorCode::kUnsupported, "{}: {}: nothing is added to weights of type {}",
                    base.path().string(), module.weight, quant_info(type).name);
  }
  return {};
}

}  // namespace

Status merge_lora(const WeightSource& base, const LoraAdapter& adapter, const fs::path& place) {
  const fs::path out = without_slash(place);
  RETURN_IF_ERROR(check_merge(base, adapter, out));
  MergedModules modules;
  for (const LoraModule& module : adapter.modules) modules[module.weight] = &module;
  if (base.naming() == Naming::kGguf) {
    GgufWriter writer;
    for (const auto& [key, value] : base.config().items()) {
      // These keys describe the source's file; the output is one file with the writer's alignment.
      if (key == "general.alignment" || key.starts_with("split.")) continue;
      RETURN_IF_ERROR(writer.set_json(key, value));
    }
    return write_tensors(base, modules, writer, out);
  }
  const Status written = write_directory(base, modules, out);
  if (!written) (void)remove_unfinished(out);
  return written;
}

}  // namespace penstock
