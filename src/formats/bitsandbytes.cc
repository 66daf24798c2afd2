// bitsandbytes. 4 bits (NF4, FP4): LAYER.weight as flat nibbles, .weight.quant_map, .weight.absmax
// per block of the flat weight (itself in 8 bits when nested) and a JSON description. LLM.int8:
// LAYER.weight int8 and .SCB per output.
#include <numeric>

#include "base/json_text.h"
#include "formats/prequantized_methods.h"

namespace penstock {

using nlohmann::json;

namespace {

constexpr size_t kMaxStateBytes = 65536;

class BitsAndBytes final : public Prequantized {
 public:
  BitsAndBytes(const WeightSource& source, float outlier_threshold)
      : source_(source), outlier_threshold_(outlier_threshold) {}

  std::string_view method() const override { return "bitsandbytes"; }

  Result<std::optional<GroupedMatrix>> find_linear(std::string_view layer) const override {
    const LayerTensors tensors(source_, layer);
    if (tensors.find("SCB") != nullptr) return int8(tensors);
    for (const char* type : {"nf4", "fp4"}) {
      const TensorInfo* state =
          tensors.find(fmt::format("weight.quant_state.bitsandbytes__{}", type));
      if (state != nullptr) return four_bits(tensors, *state);
    }
    return std::nullopt;
  }

 private:
  Result<std::optional<GroupedMatrix>> int8(const LayerTensors& tensors) const {
    ASSIGN_OR_RETURN(const TensorInfo* weight, tensors.require("weight", QuantType::kI8, 2));
    GroupedMatrix matrix;
    matrix.layout = CodeLayout::kSignedBytes;
    matrix.bits = 8;
    matrix.uniform_zero = 128;
    matrix.rows = static_cast<int>(weight->shape[0]);
    matrix.cols = static_cast<int>(weight->shape[1]);
    matrix.group_size = matrix.cols;
    matrix.packed = weight->bytes;
    ASSIGN_OR_RETURN(matrix.scales, tensors.floats("SCB"));
    for (float& scale : matrix.scales) scale /= 127.0f;
    matrix.activations.kind = ActivationCoding::Kind::kInt8PerToken;
    matrix.activations.outlier_threshold = outlier_threshold_;
    RETURN_IF_ERROR(matrix.check(tensors.where()));
    return matrix;
  }

  Result<std::optional<GroupedMatrix>> four_bits(const LayerTensors& tensors,
                                                 const TensorInfo& state) const {
    GroupedMatrix matrix;
    json description;
    RETURN_IF_ERROR(read_state(tensors, state, description, matrix));
    const TensorInfo* weight = tensors.find("weight");
    if (weight == nullptr)
      return errorf(ErrorCode::kCorruptFile, "{}: expected tensor weight", tensors.where());
    matrix.layout = CodeLayout::kNibblesHighFirst;
    matrix.bits = 4;
    matrix.packed = weight->bytes;
    ASSIGN_OR_RETURN(matrix.codebook, tensors.floats("weight.quant_map"));
    ASSIGN_OR_RETURN(matrix.scales, block_scales(tensors, description));
    RETURN_IF_ERROR(spread_scales(tensors, matrix));
    RETURN_IF_ERROR(matrix.check(tensors.where()));
    return matrix;
  }

  // Reads shape and block size from JSON text in a tensor of bytes.
  static Status read_state(const LayerTensors& tensors, const TensorInfo& state, json& description,
                           GroupedMatrix& matrix) {
    if (state.type != QuantType::kU8 || state.bytes.size() > kMaxStateBytes) {
      return errorf(ErrorCode::kCorruptFile,
                    "{}: quant_state: expected at most {} bytes of JSON, got {} of {}",
                    tensors.where(), kMaxStateBytes, state.bytes.size(),
                    quant_info(state.type).name);
    }
    const auto* text = reinterpret_cast<const char*>(state.bytes.data());
    description = bounded_json({text, state.bytes.size()});
    const bool object = description.is_object();
    const json shape = object ? description.value("shape", json()) : json();
    const json block = object ? description.value("blocksize", json()) : json();
    const auto positive = [](const json& number) {
      return number.is_number_unsigned() && number.get<uint64_t>() >= 1 &&
             number.get<uint64_t>() <= INT32_MAX;
    };
    if (!shape.is_array() || shape.size() != 2 || !positive(shape[0]) || !positive(shape[1]) ||
        !positive(block)) {
      return errorf(ErrorCode::kCorruptFile,
                    "{}: quant_state: expected a shape of two numbers and a blocksize",
                    tensors.where());
    }
    matrix.rows = shape[0].get<int>();
    matrix.cols = shape[1].get<int>();
    matrix.group_size = block.get<int>();
    return {};
  }

  // Blocks divide the flat weight. If they cross rows, groups are the largest parts of a row that
  // lie in one block each.
  static Status spread_scales(const LayerTensors& tensors, GroupedMatrix& matrix) {
    const int64_t block = matrix.group_size, n = static_cast<int64_t>(matrix.rows) * matrix.cols;
    const auto wanted = static_cast<size_t>((n + block - 1) / block);
    if (matrix.scales.size() != wanted) {
      return errorf(ErrorCode::kCorruptFile, "{}: weight.absmax: expected {} scales, got {}",
                    tensors.where(), wanted, matrix.scales.size());
    }
    if (matrix.cols % block == 0) return {};
    if (matrix.packed.size() !=
        GroupedMatrix::packed_bytes(matrix.layout, matrix.rows, matrix.cols, 4)) {
      return errorf(ErrorCode::kCorruptFile, "{}: weight: expected {} codes, got {} bytes",
                    tensors.where(), n, matrix.packed.size());
    }
    matrix.group_size = std::gcd(matrix.cols, matrix.group_size);
    std::vector<float> scales;
    scales.reserve(static_cast<size_t>(n / matrix.group_size));
    for (int64_t i = 0; i < n; i += matrix.group_size)
      scales.push_back(matrix.scales[static_cast<size_t>(i / block)]);
    matrix.scales = std::move(scales);
    return {};
  }

  static Result<std::vector<float>> block_scales(const LayerTensors& tensors,
                                                 const json& description) {
    const TensorInfo* absmax = tensors.find("weight.absmax");
    if (absmax == nullptr || absmax->type != QuantType::kU8) return tensors.floats("weight.absmax");
    ASSIGN_OR_RETURN(const std::vector<float> map, tensors.floats("weight.nested_quant_map"));
    ASSIGN_OR_RETURN(const std::vector<float> outer, tensors.floats("weight.nested_absmax"));
    const json size = description.value("nested_blocksize", json());
    const json offset = description.value("nested_offset", json());
    const size_t n = absmax->bytes.size();
    if (!size.is_number_unsigned() || size.get<uint64_t>() < 1 || !offset.is_number() ||
        map.size() != 256 ||
        outer.size() < n / size.get<uint64_t>() + (n % size.get<uint64_t>() != 0 ? 1 : 0)) {
      return errorf(ErrorCode::kCorruptFile,
                    "{}: nested scales: expected a map of 256 and a scale per block, got {} and {}",
                    tensors.where(), map.size(), outer.size());
    }
    std::vector<float> scales(n);
    for (size_t i = 0; i < n; ++i) {
      const auto code = static_cast<size_t>(absmax->bytes[i]);
      scales[i] = map[code] * outer[i / size.get<uint64_t>()] + offset.get<float>();
    }
    return scales;
  }

  const WeightSource& source_;
  float outlier_threshold_;
};

}  // namespace

Result<std::unique_ptr<Prequantized>> open_bitsandbytes(const WeightSource& source,
                                                        const json& config) {
  const auto threshold = config.find("llm_int8_threshold");
  const float value =
      threshold != config.end() && threshold->is_number() ? threshold->get<float>() : 6.0f;
  return std::make_unique<BitsAndBytes>(source, value);
}

}  // namespace penstock
