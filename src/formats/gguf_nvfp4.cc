// NVFP4 layers of GGUF files: beside LAYER.weight, LAYER.scale is the factor of the whole matrix,
// or one per expert. LAYER.input_scale, the rounding of activations on other machines, is
// ignored.
#include "base/half.h"
#include "formats/prequantized_methods.h"
#include "quant/codebook.h"

namespace penstock {

namespace {

using quant::NVFP4;

class GgufNvfp4 final : public Prequantized {
 public:
  explicit GgufNvfp4(const WeightSource& source) : source_(source) {}

  std::string_view method() const override { return "nvfp4"; }

  Result<std::optional<GroupedMatrix>> find_linear(std::string_view layer) const override {
    const LayerTensors tensors(source_, layer);
    const TensorInfo* weight = tensors.find("weight");
    if (weight == nullptr || weight->type != QuantType::kNVFP4 || tensors.find("scale") == nullptr)
      return std::nullopt;
    ASSIGN_OR_RETURN(const std::vector<float> scale, tensors.floats("scale"));
    const size_t n_dims = weight->shape.size();
    const int64_t n_experts = n_dims == 3 ? weight->shape[0] : 1;
    const int64_t rows = n_dims >= 2 ? n_experts * weight->shape[n_dims - 2] : 0;
    if (n_dims < 2 || n_dims > 3 || rows > INT32_MAX || weight->shape.back() > INT32_MAX ||
        static_cast<int64_t>(scale.size()) != n_experts) {
      return errorf(ErrorCode::kCorruptFile,
                    "{}: scale: expected one number for each of {} matrices, got {}",
                    tensors.where(), n_experts, scale.size());
    }
    GroupedMatrix matrix;
    matrix.rows = static_cast<int>(rows);
    matrix.cols = static_cast<int>(weight->shape.back());
    matrix.bits = 4;
    matrix.group_size = NVFP4::kGroupSize;
    for (const int8_t doubled : quant::kE2M1Levels)
      matrix.codebook.push_back(0.5f * static_cast<float>(doubled));
    matrix.layout = CodeLayout::kNvfp4Blocks;
    matrix.packed = weight->bytes;
    set_scales(*weight, scale, matrix);
    RETURN_IF_ERROR(matrix.check(tensors.where()));
    return matrix;
  }

 private:
  // Sets scales of groups: F8 numbers for levels that are not doubled, times the matrix's factor.
  static void set_scales(const TensorInfo& weight, std::span<const float> scale,
                         GroupedMatrix& matrix) {
    const auto* blocks = reinterpret_cast<const NVFP4::Block*>(weight.bytes.data());
    const size_t n_blocks = weight.bytes.size() / sizeof(NVFP4::Block),
                 per_expert = n_blocks / scale.size();
    matrix.scales.reserve(4 * n_blocks);
    for (size_t b = 0; b < n_blocks; ++b) {
      for (int g = 0; g < 4; ++g) {
        const float of_group =
            to_float(Half{static_cast<uint16_t>(NVFP4::f8_scale(blocks[b], g) << 7)});
        matrix.scales.push_back(of_group * 2 * NVFP4::kUnit * scale[b / per_expert]);
      }
    }
  }

  const WeightSource& source_;
};

}  // namespace

std::unique_ptr<Prequantized> open_gguf_nvfp4(const WeightSource& source) {
  for (const TensorInfo& tensor : source.tensors()) {
    if (tensor.type == QuantType::kNVFP4) return std::make_unique<GgufNvfp4>(source);
  }
  return nullptr;
}

}  // namespace penstock
