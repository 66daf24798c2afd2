// compressed-tensors: pack-quantized (LAYER.weight_packed int32), int-quantized and float-quantized
// (LAYER.weight in 8 bits), nvfp4 and mxfp4 (LAYER.weight_packed bytes); scales in
// LAYER.weight_scale. Also FP8 of DeepSeek, transformers and vLLM, and NVIDIA's Model Optimizer.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/ascii.h"
#include "formats/prequantized_methods.h"
#include "quant/codebook.h"
#include "quant/plain.h"

namespace penstock {

using nlohmann::json;

namespace {

std::vector<float> f8e4m3_levels() {
  std::vector<float> levels(256);
  for (int code = 0; code < 256; ++code)
    levels[static_cast<size_t>(code)] = quant::decode_f8e4m3(static_cast<uint8_t>(code));
  return levels;
}

std::vector<float> e2m1_levels() {
  std::vector<float> levels;
  for (const int8_t doubled : quant::kE2M1Levels)
    levels.push_back(0.5f * static_cast<float>(doubled));
  return levels;
}

// The numbers that bytes of exponents (E8M0) stand for.
std::vector<float> powers_of_two(const TensorInfo& tensor) {
  std::vector<float> values;
  for (const std::byte exponent : tensor.bytes)
    values.push_back(std::ldexp(1.0f, static_cast<int>(exponent) - 127));
  return values;
}

// Rows and columns that share a scale; the last ones may be fewer. 0 rows: no blocks.
struct Block {
  int rows = 0, cols = 0;
};

// Sets scales of [1], [rows], [rows, n] or, with blocks, [ceil(rows / block.rows), n] for the
// rows of a matrix. The group size follows from n, or divides the block if the last block is
// partial.
Status set_scales(const LayerTensors& tensors, const TensorInfo& tensor, std::vector<float> values,
                  Block block, GroupedMatrix& matrix) {
  const int64_t scale_rows = tensor.shape.empty() ? 1 : tensor.shape[0];
  const int64_t n_groups = tensor.shape.size() < 2 ? 1 : tensor.shape[1];
  const int64_t wanted_rows =
      block.rows > 0 ? (matrix.rows + block.rows - 1) / block.rows : matrix.rows;
  const bool per_tensor = values.size() == 1;
  const bool parts = block.rows > 0 && block.cols > 0 && !per_tensor;
  const bool fits = parts ? n_groups == (matrix.cols + block.cols - 1) / block.cols
                          : n_groups >= 1 && matrix.cols % n_groups == 0;
  if (tensor.shape.size() > 2 || !fits || (!per_tensor && scale_rows != wanted_rows)) {
    return errorf(ErrorCode::kCorruptFile,
                  "{}: {}: expected {} rows of scales for [{}, {}], got [{}]", tensors.where(),
                  quote_name(tensor.name), wanted_rows, matrix.rows, matrix.cols,
                  fmt::join(tensor.shape, ", "));
  }
  const int64_t width = parts ? block.cols : matrix.cols / n_groups;
  matrix.group_size = parts ? std::gcd(matrix.cols, block.cols) : static_cast<int>(width);
  matrix.scales.reserve(static_cast<size_t>(matrix.rows) * static_cast<size_t>(matrix.n_groups()));
  for (int64_t r = 0; r < matrix.rows; ++r) {
    const int64_t from = per_tensor ? 0 : block.rows > 0 ? r / block.rows : r;
    for (int64_t k = 0; k < matrix.cols; k += matrix.group_size)
      matrix.scales.push_back(values[static_cast<size_t>(from * n_groups + k / width)]);
  }
  return {};
}

Status set_byte_weight(const TensorInfo& weight, GroupedMatrix& matrix) {
  matrix.rows = static_cast<int>(weight.shape[0]);
  matrix.cols = static_cast<int>(weight.shape[1]);
  matrix.bits = 8;
  matrix.packed = weight.bytes;
  if (weight.type == QuantType::kI8) {
    matrix.layout = CodeLayout::kSignedBytes;
    matrix.uniform_zero = 128;
  } else {
    matrix.layout = CodeLayout::kBytes;
    matrix.codebook = f8e4m3_levels();
  }
  return {};
}

// Pairs of E2M1 numbers, the first in the low half of a byte.
void set_fp4_weight(const TensorInfo& weight, GroupedMatrix& matrix) {
  matrix.layout = CodeLayout::kNibblesLowFirst;
  matrix.bits = 4;
  matrix.codebook = e2m1_levels();
  matrix.rows = static_cast<int>(weight.shape[0]);
  matrix.cols = static_cast<int>(std::min<int64_t>(weight.shape[1], INT32_MAX / 2) * 2);
  matrix.packed = weight.bytes;
}

// One entry of config_groups.
struct Group {
  int bits = 8;
  bool is_float = false;
  Block block;
  json activations;  // input_activations or null
};

class CompressedTensors final : public Prequantized {
 public:
  CompressedTensors(const WeightSource& source, std::vector<Group> groups)
      : source_(source), groups_(std::move(groups)) {}

  std::string_view method() const override { return "compressed-tensors"; }

  Result<std::optional<GroupedMatrix>> find_linear(std::string_view layer) const override {
    const LayerTensors tensors(source_, layer);
    if (tensors.find("weight_scale") == nullptr) return std::nullopt;
    GroupedMatrix matrix;
    const TensorInfo* packed = tensors.find("weight_packed");
    if (packed == nullptr) {
      RETURN_IF_ERROR(read_bytes(tensors, matrix));
    } else if (packed->type == QuantType::kU8) {
      RETURN_IF_ERROR(read_fp4(tensors, matrix));
    } else {
      RETURN_IF_ERROR(read_words(tensors, matrix));
    }
    matrix.simplify_zeros();
    RETURN_IF_ERROR(matrix.check(tensors.where()));
    return matrix;
  }

 private:
  // The first group of this many bits and kind, or null.
  const Group* group_of(int bits, bool is_float) const {
    for (const Group& group : groups_) {
      if (group.bits == bits && group.is_float == is_float) return &group;
    }
    return nullptr;
  }

  Status read_bytes(const LayerTensors& tensors, GroupedMatrix& matrix) const {
    const TensorInfo* weight = tensors.find("weight");
    const bool is_float = weight != nullptr && weight->type == QuantType::kF8E4M3;
    ASSIGN_OR_RETURN(weight,
                     tensors.require("weight", is_float ? QuantType::kF8E4M3 : QuantType::kI8, 2));
    RETURN_IF_ERROR(set_byte_weight(*weight, matrix));
    const Group* group = group_of(8, is_float);
    ASSIGN_OR_RETURN(std::vector<float> scales, tensors.floats("weight_scale"));
    RETURN_IF_ERROR(set_scales(tensors, *tensors.find("weight_scale"), std::move(scales),
                               group != nullptr ? group->block : Block{}, matrix));
    if (const TensorInfo* zeros = tensors.find("weight_zero_point");
        zeros != nullptr && !is_float) {
      if (zeros->type != QuantType::kI8) {
        return errorf(ErrorCode::kUnsupported, "{}: weight_zero_point: expected i8, got {}",
                      tensors.where(), quant_info(zeros->type).name);
      }
      GroupedMatrix spread = matrix;  // shapes of the scales apply to the zeros
      spread.scales.clear();
      RETURN_IF_ERROR(set_scales(tensors, *zeros, tensor_floats(*zeros),
                                 group != nullptr ? group->block : Block{}, spread));
      for (const float zero : spread.scales)
        matrix.zeros.push_back(static_cast<int16_t>(zero + 128));
    }
    return set_activations(tensors, group, matrix);
  }

  // Reads codes of `bits` bits in 32-bit words; value = code - 2^(bits - 1) - zero point.
  Status read_words(const LayerTensors& tensors, GroupedMatrix& matrix) const {
    ASSIGN_OR_RETURN(const TensorInfo* packed,
                     tensors.require("weight_packed", QuantType::kI32, 2));
    ASSIGN_OR_RETURN(const TensorInfo* shape, tensors.require("weight_shape", QuantType::kI64, 1));
    int64_t dims[2] = {};
    if (shape->bytes.size() == sizeof(dims)) std::memcpy(dims, shape->bytes.data(), sizeof(dims));
    const Group* group = nullptr;
    for (const Group& candidate : groups_) {
      const int64_t per_word = 32 / candidate.bits;
      if (!candidate.is_float && dims[1] >= 1 && dims[1] <= INT32_MAX &&
          dims[0] == packed->shape[0] && (dims[1] + per_word - 1) / per_word == packed->shape[1]) {
        group = &candidate;
        break;
      }
    }
    if (group == nullptr) {
      return errorf(ErrorCode::kCorruptFile,
                    "{}: weight_packed: expected [{}, {}] in the bits of a config group, got [{}]",
                    tensors.where(), dims[0], dims[1], fmt::join(packed->shape, ", "));
    }
    matrix.layout = CodeLayout::kWordsByRow;
    matrix.bits = group->bits;
    matrix.rows = static_cast<int>(dims[0]);
    matrix.cols = static_cast<int>(dims[1]);
    matrix.uniform_zero = static_cast<int16_t>(1 << (matrix.bits - 1));
    matrix.packed = packed->bytes;
    ASSIGN_OR_RETURN(std::vector<float> scales, tensors.floats("weight_scale"));
    RETURN_IF_ERROR(
        set_scales(tensors, *tensors.find("weight_scale"), std::move(scales), {}, matrix));
    RETURN_IF_ERROR(set_input_order(tensors, "weight_g_idx", matrix));
    if (tensors.find("weight_zero_point") != nullptr)
      RETURN_IF_ERROR(read_packed_zeros(tensors, matrix));
    return set_activations(tensors, group, matrix);
  }

  // Reads zeros of [ceil(rows / per_word), n_groups] words, packed along rows; stored zeros include
  // 2^(bits - 1).
  static Status read_packed_zeros(const LayerTensors& tensors, GroupedMatrix& matrix) {
    ASSIGN_OR_RETURN(const TensorInfo* tensor,
                     tensors.require("weight_zero_point", QuantType::kI32, 2));
    const int per_word = 32 / matrix.bits;
    const int64_t wanted = (matrix.rows + per_word - 1) / per_word;
    if (tensor->shape[0] != wanted || tensor->shape[1] != matrix.n_groups()) {
      return errorf(ErrorCode::kCorruptFile, "{}: weight_zero_point: expected [{}, {}], got [{}]",
                    tensors.where(), wanted, matrix.n_groups(), fmt::join(tensor->shape, ", "));
    }
    const std::vector<int32_t> words = tensor_int32(*tensor);
    for (int r = 0; r < matrix.rows; ++r) {
      for (int g = 0; g < matrix.n_groups(); ++g) {
        const auto word =
            static_cast<uint32_t>(words[static_cast<size_t>(r / per_word * matrix.n_groups() + g)]);
        matrix.zeros.push_back(static_cast<int16_t>((word >> (r % per_word * matrix.bits)) &
                                                    ((1u << matrix.bits) - 1)));
      }
    }
    return {};
  }

  // Reads E2M1 nibbles. Scales are powers of two in bytes (mxfp4), or F8 numbers divided by one
  // number (nvfp4).
  Status read_fp4(const LayerTensors& tensors, GroupedMatrix& matrix) const {
    ASSIGN_OR_RETURN(const TensorInfo* packed, tensors.require("weight_packed", QuantType::kU8, 2));
    set_fp4_weight(*packed, matrix);
    const TensorInfo* tensor = tensors.find("weight_scale");
    std::vector<float> scales;
    if (tensor->type == QuantType::kU8) {
      scales = powers_of_two(*tensor);
    } else {
      ASSIGN_OR_RETURN(scales, tensors.floats("weight_scale"));
      ASSIGN_OR_RETURN(const std::vector<float> global, tensors.floats("weight_global_scale"));
      if (global.size() != 1) {
        return errorf(ErrorCode::kCorruptFile,
                      "{}: weight_global_scale: expected one number, got {}", tensors.where(),
                      global.size());
      }
      for (float& scale : scales) scale /= global[0];
    }
    return set_scales(tensors, *tensor, std::move(scales), {}, matrix);
  }

  static Status set_activations(const LayerTensors& tensors, const Group* group,
                                GroupedMatrix& matrix) {
    if (group == nullptr || !group->activations.is_object()) return {};
    using Kind = ActivationCoding::Kind;
    const bool dynamic = group->activations.value("dynamic", json(false)) == json(true);
    const bool is_float = group->activations.value("type", json("int")) == json("float");
    if (group->activations.value("num_bits", json(8)) != json(8) ||
        group->activations.value("symmetric", json(true)) != json(true)) {
      return errorf(ErrorCode::kUnsupported, "{}: input_activations: expected 8 bits, symmetric",
                    tensors.where());
    }
    matrix.activations.kind = is_float ? (dynamic ? Kind::kF8E4M3PerToken : Kind::kF8E4M3Static)
                                       : (dynamic ? Kind::kInt8PerToken : Kind::kInt8Static);
    if (dynamic) return {};
    ASSIGN_OR_RETURN(const std::vector<float> scale, tensors.floats("input_scale"));
    if (scale.size() != 1) {
      return errorf(ErrorCode::kCorruptFile, "{}: input_scale: expected one number, got {}",
                    tensors.where(), scale.size());
    }
    matrix.activations.static_scale = scale[0];
    return {};
  }

  const WeightSource& source_;
  std::vector<Group> groups_;
};

// "fp8": LAYER.weight in F8 with scales per block (weight_scale_inv of DeepSeek and transformers),
// per matrix or per row (weight_scale of vLLM and of fbgemm). DeepSeek V4: the scales are LAYER.scale,
// powers of two; experts are bytes of two E2M1 numbers, whose rows have a scale for each 32 inputs.
// NVIDIA's Model Optimizer: the same weight_scale, and NVFP4: bytes of two E2M1 numbers whose scales
// in F8 are multiplied by one number, weight_scale_2.
class BlockFp8 final : public Prequantized {
 public:
  BlockFp8(const WeightSource& source, Block block) : source_(source), block_(block) {}

  std::string_view method() const override { return "fp8"; }

  Result<std::optional<GroupedMatrix>> find_linear(std::string_view layer) const override {
    const LayerTensors tensors(source_, layer);
    std::string_view suffix;
    for (const std::string_view one : {"weight_scale_inv", "scale", "weight_scale"})
      if (suffix.empty() && tensors.find(one) != nullptr) suffix = one;
    if (suffix.empty()) return std::nullopt;
    if (tensors.find("pre_quant_scale") != nullptr) {
      return errorf(ErrorCode::kUnsupported,
                    "{}: pre_quant_scale: factors of a layer's inputs are not supported",
                    tensors.where());
    }
    const TensorInfo* weight = tensors.find("weight");
    const bool pairs =
        weight != nullptr && (weight->type == QuantType::kI8 || weight->type == QuantType::kU8);
    ASSIGN_OR_RETURN(weight,
                     tensors.require("weight", pairs ? weight->type : QuantType::kF8E4M3, 2));
    GroupedMatrix matrix;
    if (pairs) {
      set_fp4_weight(*weight, matrix);
    } else {
      RETURN_IF_ERROR(set_byte_weight(*weight, matrix));
    }
    const bool by_block = !pairs && suffix != "weight_scale";
    ASSIGN_OR_RETURN(std::vector<float> scales, scales_of(tensors, suffix));
    RETURN_IF_ERROR(set_scales(tensors, *tensors.find(suffix), std::move(scales),
                               by_block ? block_ : Block{}, matrix));
    RETURN_IF_ERROR(matrix.check(tensors.where()));
    return matrix;
  }

 private:
  // Scales in bytes are powers of two, but F8 numbers beside weight_scale_2.
  static Result<std::vector<float>> scales_of(const LayerTensors& tensors,
                                              std::string_view suffix) {
    const TensorInfo& scale = *tensors.find(suffix);
    const bool bytes = scale.type == QuantType::kU8;
    if (tensors.find("weight_scale_2") == nullptr)
      return bytes ? powers_of_two(scale) : tensors.floats(suffix);
    ASSIGN_OR_RETURN(const std::vector<float> factor, tensors.floats("weight_scale_2"));
    if (factor.size() != 1) {
      return errorf(ErrorCode::kCorruptFile, "{}: weight_scale_2: expected one number, got {}",
                    tensors.where(), factor.size());
    }
    std::vector<float> scales;
    if (bytes) {
      for (const std::byte code : scale.bytes)
        scales.push_back(quant::decode_f8e4m3(static_cast<uint8_t>(code)));
    } else {
      ASSIGN_OR_RETURN(scales, tensors.floats(suffix));
    }
    for (float& each : scales) each *= factor[0];
    return scales;
  }

  const WeightSource& source_;
  Block block_;
};

// Reads [rows, cols] of block_structure (weight_block_size of "fp8"); none if absent.
Block read_block(const json& config, const char* key) {
  const auto it = config.find(key);
  if (it == config.end() || !it->is_array() || it->size() != 2) return {};
  const auto side = [&](size_t i) {
    const json& number = it->at(i);
    return number.is_number_unsigned()
               ? static_cast<int>(std::min<uint64_t>(number.get<uint64_t>(), 1 << 28))
               : 0;
  };
  return {side(0), side(1)};
}

// Refuses rotations that act while the model runs. Those of weights are in the weights already.
Status check_transforms(const WeightSource& source, const json& config) {
  const json transforms = config.value("transform_config", json());
  const json schemes = transforms.is_object() ? transforms.value("config_groups", json()) : json();
  for (const auto& [name, scheme] : schemes.items()) {
    const json list = scheme.is_object() ? scheme.value("apply", json::array()) : json::array();
    for (const json& each : list) {
      const json where = each.is_object() ? each.value("location", json()) : json();
      if (where == "weight_input" || where == "weight_output") continue;
      return errorf(
          ErrorCode::kUnsupported,
          "{}: quantization_config: transform_config: {}: a rotation of {} acts while the "
          "model runs, which is not supported",
          source.path().string(), quote_name(name), where.dump().substr(0, 40));
    }
  }
  return {};
}

constexpr std::string_view kModelOptimizerKinds[] = {"FP8", "FP8_PER_CHANNEL_PER_TOKEN", "MXFP8",
                                                     "NVFP4", "W4A16_NVFP4"};

std::string upper(const json& name) {
  std::string text = name.is_string() ? name.get<std::string>() : "";
  for (char& c : text) c = ascii_upper(c);
  return text;
}

Status check_model_optimizer_kind(const WeightSource& source, const json& named) {
  const std::string kind = upper(named);
  if (std::ranges::find(kModelOptimizerKinds, kind) != std::end(kModelOptimizerKinds)) return {};
  return errorf(
      ErrorCode::kUnsupported,
      "{}: quantization_config: quant_algo: expected one of {} or MIXED_PRECISION of these, "
      "got {}",
      source.path().string(), fmt::join(kModelOptimizerKinds, ", "), quote_name(kind));
}

}  // namespace

Result<std::unique_ptr<Prequantized>> open_compressed_tensors(const WeightSource& source,
                                                              const json& config) {
  RETURN_IF_ERROR(check_transforms(source, config));
  const auto groups = config.find("config_groups");
  if (groups == config.end() || !groups->is_object()) {
    return errorf(ErrorCode::kCorruptFile,
                  "{}: quantization_config: expected config_groups, got {}", source.path().string(),
                  groups == config.end() ? "nothing" : groups->type_name());
  }
  std::vector<Group> list;
  for (const json& entry : *groups) {
    const auto weights = entry.is_object() ? entry.find("weights") : entry.end();
    if (!entry.is_object() || weights == entry.end() || !weights->is_object()) continue;
    Group group;
    ASSIGN_OR_RETURN(group.bits, config_int(*weights, "num_bits", 8, 2, 8));
    group.is_float = weights->value("type", json("int")) == json("float");
    group.block = read_block(*weights, "block_structure");
    group.activations = entry.value("input_activations", json());
    list.push_back(std::move(group));
  }
  return std::make_unique<CompressedTensors>(source, std::move(list));
}

Result<std::unique_ptr<Prequantized>> open_block_fp8(const WeightSource& source,
                                                     const json& config) {
  return std::make_unique<BlockFp8>(source, read_block(config, "weight_block_size"));
}

Result<std::unique_ptr<Prequantized>> open_model_optimizer(const WeightSource& source,
                                                           const json& config) {
  const auto inner = config.find("quantization");
  const json& settings = inner != config.end() && inner->is_object() ? *inner : config;
  const json kind = settings.value("quant_algo", json());
  if (!kind.is_null() && upper(kind) != "MIXED_PRECISION")
    RETURN_IF_ERROR(check_model_optimizer_kind(source, kind));
  const json layers = settings.value("quantized_layers", json());
  for (const json& layer : layers)
    RETURN_IF_ERROR(check_model_optimizer_kind(
        source, layer.is_object() ? layer.value("quant_algo", json()) : json()));
  return std::make_unique<BlockFp8>(source, Block{});
}

}  // namespace penstock
