// BitNet checkpoints of transformers: LAYER.weight packs four ternary rows per row of bytes;
// LAYER.weight_scale is one number by which products are divided (linear_class "bitlinear") or
// multiplied ("autobitlinear").
#include "formats/prequantized_methods.h"

namespace penstock {

using nlohmann::json;

namespace {

class BitNet final : public Prequantized {
 public:
  BitNet(const WeightSource& source, bool divide) : source_(source), divide_(divide) {}

  std::string_view method() const override { return "bitnet"; }

  Result<std::optional<GroupedMatrix>> find_linear(std::string_view layer) const override {
    const LayerTensors tensors(source_, layer);
    if (tensors.find("weight_scale") == nullptr) return std::nullopt;
    ASSIGN_OR_RETURN(const TensorInfo* weight, tensors.require("weight", QuantType::kU8, 2));
    ASSIGN_OR_RETURN(const std::vector<float> scale, tensors.floats("weight_scale"));
    if (scale.size() != 1 || weight->shape[0] > INT32_MAX / 4) {
      return errorf(ErrorCode::kCorruptFile, "{}: weight_scale: expected one number, got {}",
                    tensors.where(), scale.size());
    }
    GroupedMatrix matrix;
    matrix.layout = CodeLayout::kCrumbsAcrossRows;
    matrix.bits = 2;
    matrix.uniform_zero = 1;
    matrix.rows = static_cast<int>(weight->shape[0] * 4);
    matrix.cols = static_cast<int>(weight->shape[1]);
    matrix.group_size = matrix.cols;
    matrix.packed = weight->bytes;
    matrix.scales.assign(static_cast<size_t>(matrix.rows), divide_ ? 1.0f / scale[0] : scale[0]);
    matrix.activations.kind = ActivationCoding::Kind::kInt8PerToken;
    RETURN_IF_ERROR(matrix.check(tensors.where()));
    return matrix;
  }

 private:
  const WeightSource& source_;
  bool divide_;
};

}  // namespace

Result<std::unique_ptr<Prequantized>> open_bitnet(const WeightSource& source, const json& config) {
  const std::string linear_class = config.value("linear_class", json("bitlinear")).dump();
  // Online: plain tensors of master weights, which are rounded at run time.
  if (config.value("quantization_mode", json("offline")) == json("online")) return nullptr;
  if (config.value("use_rms_norm", json(false)) == json(true) ||
      (linear_class != "\"bitlinear\"" && linear_class != "\"autobitlinear\"")) {
    return errorf(
        ErrorCode::kUnsupported,
        "{}: bitnet: expected linear_class bitlinear or autobitlinear, without a norm of its own",
        source.path().string());
  }
  return std::make_unique<BitNet>(source, linear_class == "\"bitlinear\"");
}

}  // namespace penstock
