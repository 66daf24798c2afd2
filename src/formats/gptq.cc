// GPTQ and AWQ, also as AutoRound writes them: LAYER.qweight, .qzeros, .scales and, for GPTQ, .g_idx.
// Rows of these tensors are inputs, columns are outputs.
#include "formats/prequantized_methods.h"

namespace penstock {

using nlohmann::json;

namespace {

struct Settings {
  int bits = 4;
  int group_size = -1;  // -1: one group
  bool mixed = false;   // layers may have other bits and groups, which their tensors tell
};

bool has_entries(const json& config, const char* key) {
  const auto it = config.find(key);
  return it != config.end() && it->is_object() && !it->empty();
}

Result<Settings> read_settings(const json& config) {
  Settings settings;
  ASSIGN_OR_RETURN(settings.bits, config_int(config, "bits", 4, 2, 8));
  ASSIGN_OR_RETURN(settings.group_size, config_int(config, "group_size", -1, -1, 1 << 20));
  settings.mixed = has_entries(config, "dynamic") || has_entries(config, "extra_config");
  return settings;
}

// Returns the settings of one layer of a mixed checkpoint. Tensors that contradict each other leave
// the settings as they are, for the checks that follow to name.
Settings settings_of_layer(const LayerTensors& tensors, Settings settings) {
  const TensorInfo *weight = tensors.find("qweight"), *zeros = tensors.find("qzeros");
  if (!settings.mixed || weight == nullptr || zeros == nullptr || weight->shape.size() != 2 ||
      zeros->shape.size() != 2 || weight->shape[1] < 1 || zeros->shape[0] < 1)
    return settings;
  const int64_t across = zeros->shape[1] * 32, down = weight->shape[0] * 32;
  const int64_t bits = across / weight->shape[1];
  if (bits < 2 || bits > 8 || bits * weight->shape[1] != across || down % bits != 0)
    return settings;
  const int64_t group_size = down / bits / zeros->shape[0];
  if (group_size < 1 || group_size > 1 << 20 || group_size * zeros->shape[0] * bits != down)
    return settings;
  settings.bits = static_cast<int>(bits), settings.group_size = static_cast<int>(group_size);
  return settings;
}

// Sets scales [n_groups, rows] and zeros, which the method has unpacked in the same
// order.
Status set_groups(const LayerTensors& tensors, const std::vector<int16_t>& zeros,
                  GroupedMatrix& matrix) {
  const TensorInfo* scales = tensors.find("scales");
  if (scales == nullptr || scales->shape.size() != 2 || scales->shape[1] != matrix.rows ||
      scales->shape[0] != matrix.n_groups()) {
    return errorf(ErrorCode::kCorruptFile, "{}: scales: expected [{}, {}], got [{}]",
                  tensors.where(), matrix.n_groups(), matrix.rows,
                  scales == nullptr ? std::string("nothing")
                                    : fmt::format("{}", fmt::join(scales->shape, ", ")));
  }
  ASSIGN_OR_RETURN(const std::vector<float> values, tensors.floats("scales"));
  const auto n_groups = static_cast<size_t>(matrix.n_groups());
  const auto rows = static_cast<size_t>(matrix.rows);
  matrix.scales = transposed(values, n_groups, rows);
  matrix.zeros = transposed(zeros, n_groups, rows);
  matrix.simplify_zeros();
  return {};
}

Result<const TensorInfo*> require_zeros(const LayerTensors& tensors, const GroupedMatrix& matrix) {
  ASSIGN_OR_RETURN(const TensorInfo* qzeros, tensors.require("qzeros", QuantType::kI32, 2));
  const int64_t words = static_cast<int64_t>(matrix.rows) * matrix.bits / 32;
  if (qzeros->shape[0] != matrix.n_groups() || qzeros->shape[1] != words ||
      static_cast<int64_t>(matrix.rows) * matrix.bits % 32 != 0) {
    return errorf(ErrorCode::kCorruptFile, "{}: qzeros: expected [{}, {}], got [{}]",
                  tensors.where(), matrix.n_groups(), words, fmt::join(qzeros->shape, ", "));
  }
  return qzeros;
}

class Gptq final : public Prequantized {
 public:
  Gptq(const WeightSource& source, Settings settings, bool v2)
      : source_(source), settings_(settings), v2_(v2) {}

  std::string_view method() const override { return "gptq"; }

  Result<std::optional<GroupedMatrix>> find_linear(std::string_view layer) const override {
    const LayerTensors tensors(source_, layer);
    if (tensors.find("qweight") == nullptr) return std::nullopt;
    ASSIGN_OR_RETURN(const TensorInfo* qweight, tensors.require("qweight", QuantType::kI32, 2));
    const Settings settings = settings_of_layer(tensors, settings_);
    GroupedMatrix matrix;
    matrix.layout = CodeLayout::kStreamByColumn;
    matrix.bits = settings.bits;
    matrix.rows = static_cast<int>(qweight->shape[1]);
    const int64_t cols = qweight->shape[0] * 32 / settings.bits;
    if (cols > INT32_MAX || qweight->shape[0] * 32 % settings.bits != 0) {
      return errorf(ErrorCode::kCorruptFile,
                    "{}: qweight: expected whole codes of {} bits, got {} words", tensors.where(),
                    settings.bits, qweight->shape[0]);
    }
    matrix.cols = static_cast<int>(cols);
    matrix.group_size = settings.group_size > 0 ? settings.group_size : matrix.cols;
    matrix.packed = qweight->bytes;
    if (matrix.cols % matrix.group_size != 0) RETURN_IF_ERROR(matrix.check(tensors.where()));
    ASSIGN_OR_RETURN(const TensorInfo* qzeros, require_zeros(tensors, matrix));
    RETURN_IF_ERROR(set_groups(tensors, unpack_zeros(*qzeros, matrix), matrix));
    RETURN_IF_ERROR(set_input_order(tensors, "g_idx", matrix));
    RETURN_IF_ERROR(matrix.check(tensors.where()));
    return matrix;
  }

 private:
  // Unpacks zeros: a stream of bits along the outputs. Version 1 stores zero - 1.
  std::vector<int16_t> unpack_zeros(const TensorInfo& qzeros, const GroupedMatrix& matrix) const {
    const std::vector<int32_t> words = tensor_int32(qzeros);
    const int mask = (1 << matrix.bits) - 1;
    std::vector<int16_t> zeros;
    zeros.reserve(static_cast<size_t>(matrix.n_groups()) * static_cast<size_t>(matrix.rows));
    for (int g = 0; g < matrix.n_groups(); ++g) {
      const size_t first_word = static_cast<size_t>(g) * static_cast<size_t>(qzeros.shape[1]);
      for (int r = 0; r < matrix.rows; ++r) {
        const size_t bit = static_cast<size_t>(r) * static_cast<size_t>(matrix.bits);
        uint64_t word = static_cast<uint32_t>(words[first_word + bit / 32]);
        if (bit % 32 + static_cast<size_t>(matrix.bits) > 32) {
          word |= static_cast<uint64_t>(static_cast<uint32_t>(words[first_word + bit / 32 + 1]))
                  << 32;
        }
        zeros.push_back(
            static_cast<int16_t>((static_cast<int>(word >> (bit % 32)) & mask) + (v2_ ? 0 : 1)));
      }
    }
    return zeros;
  }

  const WeightSource& source_;
  Settings settings_;
  bool v2_;
};

class Awq final : public Prequantized {
 public:
  Awq(const WeightSource& source, Settings settings) : source_(source), settings_(settings) {}

  std::string_view method() const override { return "awq"; }

  Result<std::optional<GroupedMatrix>> find_linear(std::string_view layer) const override {
    const LayerTensors tensors(source_, layer);
    if (tensors.find("qweight") == nullptr) return std::nullopt;
    ASSIGN_OR_RETURN(const TensorInfo* qweight, tensors.require("qweight", QuantType::kI32, 2));
    GroupedMatrix matrix;
    matrix.layout = CodeLayout::kAwq;
    matrix.bits = 4;
    if (qweight->shape[1] > INT32_MAX / 8) {
      return errorf(ErrorCode::kCorruptFile, "{}: qweight: too many outputs", tensors.where());
    }
    matrix.rows = static_cast<int>(qweight->shape[1] * 8);
    matrix.cols = static_cast<int>(qweight->shape[0]);
    matrix.group_size = settings_.group_size > 0 ? settings_.group_size : matrix.cols;
    matrix.packed = qweight->bytes;
    if (matrix.cols % matrix.group_size != 0) RETURN_IF_ERROR(matrix.check(tensors.where()));
    ASSIGN_OR_RETURN(const TensorInfo* qzeros, require_zeros(tensors, matrix));
    // Zeros have the layout of codes: they are read as a matrix of n_groups inputs.
    GroupedMatrix zeros_matrix = matrix;
    zeros_matrix.cols = matrix.n_groups();
    zeros_matrix.group_size = 1;
    zeros_matrix.packed = qzeros->bytes;
    std::vector<uint8_t> codes(static_cast<size_t>(matrix.rows) *
                               static_cast<size_t>(zeros_matrix.cols));
    zeros_matrix.codes(0, matrix.rows, codes.data());
    const std::vector<int16_t> by_row(codes.begin(), codes.end());
    RETURN_IF_ERROR(set_groups(tensors,
                               transposed(by_row, static_cast<size_t>(matrix.rows),
                                          static_cast<size_t>(zeros_matrix.cols)),
                               matrix));
    RETURN_IF_ERROR(matrix.check(tensors.where()));
    return matrix;
  }

 private:
  const WeightSource& source_;
  Settings settings_;
};

std::string config_string(const json& config, const char* key) {
  const auto it = config.find(key);
  return it != config.end() && it->is_string() ? it->get<std::string>() : "";
}

}  // namespace

Result<std::unique_ptr<Prequantized>> open_gptq(const WeightSource& source, const json& config) {
  ASSIGN_OR_RETURN(const Settings settings, read_settings(config));
  const std::string format = config_string(config, "checkpoint_format");
  if (!format.empty() && format != "gptq" && format != "gptq_v2") {
    return errorf(ErrorCode::kUnsupported,
                  "{}: checkpoint_format: expected gptq or gptq_v2, got {}", source.path().string(),
                  quote_name(format));
  }
  return std::make_unique<Gptq>(source, settings, format == "gptq_v2");
}

Result<std::unique_ptr<Prequantized>> open_auto_round(const WeightSource& source,
                                                      const json& config) {
  const std::string packing = config_string(config, "packing_format");
  const std::string type = config_string(config, "data_type");
  const bool whole_numbers = type.empty() || type == "int";
  if (whole_numbers && packing.ends_with("auto_gptq")) return open_gptq(source, config);
  if (whole_numbers && packing.ends_with("auto_awq")) return open_awq(source, config);
  return errorf(
      ErrorCode::kUnsupported,
      "{}: AutoRound: expected packing_format auto_round:auto_gptq or auto_round:auto_awq "
      "of data_type int, got {} of {}",
      source.path().string(), quote_name(packing), quote_name(type));
}

Result<std::unique_ptr<Prequantized>> open_awq(const WeightSource& source, const json& config) {
  ASSIGN_OR_RETURN(const Settings settings, read_settings(config));
  const std::string version = config_string(config, "version");
  if (settings.bits != 4 || (!version.empty() && version != "gemm" && version != "GEMM")) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: AWQ: expected 4 bits, version gemm; got {} bits, version {}",
                  source.path().string(), settings.bits, quote_name(version));
  }
  return std::make_unique<Awq>(source, settings);
}

}  // namespace penstock
