#include "formats/prequantized.h"

#include <algorithm>
#include <numeric>

#include "formats/hf_config.h"
#include "formats/prequantized_methods.h"

namespace penstock {

using nlohmann::json;

namespace {

struct Method {
  std::string_view name;  // quantization_config.quant_method
  OpenPrequantized open;
};

// THE list of methods.
constexpr Method kMethods[] = {
    {"gptq", open_gptq},
    {"awq", open_awq},
    {"bitsandbytes", open_bitsandbytes},
    {"compressed-tensors", open_compressed_tensors},
    {"fp8", open_block_fp8},
    {"fbgemm_fp8", open_block_fp8},
    {"modelopt", open_model_optimizer},
    {"auto-round", open_auto_round},
    {"bitnet", open_bitnet},
};

}  // namespace

Result<std::unique_ptr<Prequantized>> open_prequantized(const WeightSource& source) {
  if (source.naming() == Naming::kGguf) return open_gguf_nvfp4(source);
  const json* config = quantization_config_of(source.config());
  if (config == nullptr) return nullptr;
  if (!config->is_object()) {
    return errorf(ErrorCode::kCorruptFile, "{}: quantization_config: expected an object, got {}",
                  source.path().string(), config->type_name());
  }
  const auto named = config->find("quant_method");
  const std::string name =
      named != config->end() && named->is_string() ? named->get<std::string>() : "";
  // gpt-oss: only its experts, which are separate tensors
  if (name == "mxfp4") return nullptr;
  std::string known;
  for (const Method& method : kMethods) {
    if (method.name == name) return method.open(source, *config);
    known += (known.empty() ? "" : ", ") + std::string(method.name);
  }
  return errorf(ErrorCode::kUnsupported, "{}: quant_method: expected one of {}, got {}",
                source.path().string(), known, quote_name(name));
}

std::string LayerTensors::where() const {
  return fmt::format("{}: layer {}", source_.path().string(), quote_name(layer_));
}

const TensorInfo* LayerTensors::find(std::string_view suffix) const {
  return source_.find(fmt::format("{}.{}", layer_, suffix));
}

Result<const TensorInfo*> LayerTensors::require(std::string_view suffix, QuantType type,
                                                size_t n_dims) const {
  const TensorInfo* tensor = find(suffix);
  if (tensor == nullptr)
    return errorf(ErrorCode::kCorruptFile, "{}: expected tensor {}, got none", where(), suffix);
  bool fits = tensor->type == type && tensor->shape.size() == n_dims;
  for (const int64_t dim : tensor->shape) fits &= dim >= 1 && dim <= INT32_MAX;
  if (!fits) {
    return errorf(ErrorCode::kCorruptFile, "{}: {}: expected {} in {} dimensions, got {} [{}]",
                  where(), suffix, quant_info(type).name, n_dims, quant_info(tensor->type).name,
                  fmt::join(tensor->shape, ", "));
  }
  return tensor;
}

Result<std::vector<float>> LayerTensors::floats(std::string_view suffix) const {
  const TensorInfo* tensor = find(suffix);
  if (tensor == nullptr)
    return errorf(ErrorCode::kCorruptFile, "{}: expected tensor {}, got none", where(), suffix);
  switch (tensor->type) {
    case QuantType::kF32:
    case QuantType::kF16:
    case QuantType::kBF16:
    case QuantType::kF8E4M3: return tensor_floats(*tensor);
    default:
      return errorf(ErrorCode::kCorruptFile, "{}: {}: expected floating point, got {}", where(),
                    suffix, quant_info(tensor->type).name);
  }
}

Status set_input_order(const LayerTensors& tensors, std::string_view suffix,
                       GroupedMatrix& matrix) {
  if (tensors.find(suffix) == nullptr) return {};
  ASSIGN_OR_RETURN(const TensorInfo* tensor, tensors.require(suffix, QuantType::kI32, 1));
  const std::vector<int32_t> groups = tensor_int32(*tensor);
  if (groups.size() != static_cast<size_t>(matrix.cols)) {
    return errorf(ErrorCode::kCorruptFile, "{}: {}: expected {} inputs, got {}", tensors.where(),
                  suffix, matrix.cols, groups.size());
  }
  std::vector<int32_t> order(groups.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return groups[static_cast<size_t>(a)] < groups[static_cast<size_t>(b)];
  });
  for (size_t j = 0; j < order.size(); ++j) {
    const int expected = static_cast<int>(j) / matrix.group_size;
    if (const int group = groups[static_cast<size_t>(order[j])]; group != expected) {
      return errorf(ErrorCode::kUnsupported,
                    "{}: {}: expected {} inputs in each of {} groups, got group {} at {}",
                    tensors.where(), suffix, matrix.group_size, matrix.n_groups(), group, order[j]);
    }
  }
  if (!std::is_sorted(order.begin(), order.end())) matrix.input_order = std::move(order);
  return {};
}

std::vector<float> tensor_floats(const TensorInfo& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.n_elements()));
  dequantize_row(tensor.type, tensor.bytes.data(), values.data(), tensor.n_elements());
  return values;
}

std::vector<int32_t> tensor_int32(const TensorInfo& tensor) {
  std::vector<int32_t> values(tensor.bytes.size() / sizeof(int32_t));
  if (!values.empty())
    std::memcpy(values.data(), tensor.bytes.data(), values.size() * sizeof(int32_t));
  return values;
}

Result<int> config_int(const json& config, const char* key, int fallback, int low, int high) {
  const auto it = config.find(key);
  if (it == config.end() || it->is_null()) return fallback;
  if (it->is_number_integer()) {
    const auto value = it->get<int64_t>();
    if (value >= low && value <= high) return static_cast<int>(value);
  }
  return errorf(ErrorCode::kUnsupported, "quantization_config: {}: expected {} to {}, got {}", key,
                low, high, it->dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 40));
}

}  // namespace penstock
