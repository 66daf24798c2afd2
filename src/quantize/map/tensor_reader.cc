// Reads tensors of a map as the source's configuration uses them, and converts them for the output.
#include <algorithm>
#include <cmath>

#include "quant/grouped_encode.h"
#include "quantize/map/tensor_map.h"

namespace penstock {

Result<TensorReader> TensorReader::open(const WeightSource& source) {
  TensorReader reader;
  reader.source_ = &source;
  ASSIGN_OR_RETURN(std::unique_ptr<Prequantized> prequantized, open_prequantized(source));
  reader.prequantized_ = std::move(prequantized);
  return reader;
}

QuantType TensorReader::type(const MappedTensor& tensor) const {
  const TensorInfo* info = source_->find(tensor.in);
  if (info == nullptr || info->type == QuantType::kI8 || info->type == QuantType::kU8)
    return QuantType::kF16;
  return info->type;
}

namespace {

std::vector<float> transpose(const std::vector<float>& in, int rows, int cols) {
  std::vector<float> out(in.size());
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < cols; ++c)
      out[static_cast<size_t>(c) * static_cast<size_t>(rows) + static_cast<size_t>(r)] =
          in[static_cast<size_t>(r) * static_cast<size_t>(cols) + static_cast<size_t>(c)];
  }
  return out;
}

}  // namespace

// Reads the picked rows of a whole tensor.
Result<std::vector<float>> TensorReader::picked(const MappedTensor& tensor) const {
  MappedTensor whole = tensor;
  whole.picked.clear();
  whole.rows = tensor.in_rows;
  if (tensor.in_transposed) whole.in_rows = 0;
  ASSIGN_OR_RETURN(const std::vector<float> all, stored(whole));
  std::vector<float> values;
  const auto cols = static_cast<ptrdiff_t>(tensor.cols);
  if (tensor.in_transposed) {
    for (ptrdiff_t c = 0; c < cols; ++c) {
      for (const int row : tensor.picked)
        values.push_back(all[static_cast<size_t>(c * tensor.in_rows + row)]);
    }
    return values;
  }
  for (const int row : tensor.picked)
    values.insert(values.end(), all.begin() + row * cols, all.begin() + (row + 1) * cols);
  return values;
}

Result<std::vector<float>> TensorReader::stored(const MappedTensor& tensor) const {
  const std::string where = fmt::format("{}: tensor {}", source_->path().string(), tensor.in);
  std::vector<float> values(static_cast<size_t>(tensor.rows) * static_cast<size_t>(tensor.cols));
  const int rows = tensor.in_transposed ? tensor.cols : tensor.rows,
            width = tensor.in_transposed ? tensor.rows : tensor.cols;
  const int all_rows = tensor.in_rows > 0 ? tensor.in_rows : rows;
  if (!tensor.picked.empty()) return picked(tensor);
  if (tensor.is_linear && prequantized_ != nullptr) {
    const std::string stem =
        tensor.in.substr(0, tensor.in.size() - std::string_view(".weight").size());
    ASSIGN_OR_RETURN(const std::optional<GroupedMatrix> layer, prequantized_->find_linear(stem));
    if (layer) {
      if (layer->rows != all_rows || layer->cols != width) {
        return errorf(ErrorCode::kCorruptFile, "{}: expected [{}, {}], got [{}, {}]", where,
                      all_rows, width, layer->rows, layer->cols);
      }
      layer->dequantize(tensor.in_first_row, rows, values.data());
      return values;
    }
  }
  const TensorInfo* info = source_->find(tensor.in);
  if (info == nullptr) return errorf(ErrorCode::kCorruptFile, "{} is missing", where);
  const int64_t n = tensor.in_expert >= 0
                        ? info->n_elements() / std::max<int64_t>(info->shape[0], 1)
                        : info->n_elements();
  const int64_t wanted = int64_t{all_rows} * width;
  if (n != wanted || (tensor.in_expert >= 0 && tensor.in_expert >= info->shape[0])) {
    return errorf(ErrorCode::kCorruptFile, "{}: expected {} elements, got {}", where, wanted, n);
  }
  if (!can_quantize(info->type) && info->type != QuantType::kF64) {
    return errorf(ErrorCode::kUnsupported, "{}: expected an encoding of real numbers, got {}",
                  where, quant_info(info->type).name);
  }
  const size_t skip = tensor.in_expert >= 0
                          ? quant_bytes(info->type, n) * static_cast<size_t>(tensor.in_expert)
                          : 0;
  const size_t first = quant_bytes(info->type, int64_t{tensor.in_first_row} * width);
  dequantize_row(info->type, info->bytes.data() + skip + first, values.data(),
                 int64_t{rows} * width);
  source_->drop(*info);
  return values;
}

Result<std::vector<float>> TensorReader::read(const MappedTensor& tensor) const {
  ASSIGN_OR_RETURN(std::vector<float> values, stored(tensor));
  for (const float value : values) {
    if (!std::isfinite(value)) {
      return errorf(ErrorCode::kInvalidArgument, "{}: tensor {}: expected finite weights, got {}",
                    source_->path().string(), tensor.in, value);
    }
  }
  if (tensor.in_transposed && tensor.is_linear)
    values = transpose(values, tensor.cols, tensor.rows);
  return values;
}

template <class T>
void to_output_rows(const MappedTensor& tensor, size_t width, std::vector<T>& rows) {
  if (tensor.rows_from.empty()) return;
  const std::vector<T> in = rows;
  for (size_t r = 0; r < tensor.rows_from.size(); ++r) {
    const size_t from = static_cast<size_t>(tensor.rows_from[r]) * width;
    std::copy_n(in.begin() + static_cast<ptrdiff_t>(from), width,
                rows.begin() + static_cast<ptrdiff_t>(r * width));
  }
}
template void to_output_rows(const MappedTensor&, size_t, std::vector<float>&);
template void to_output_rows(const MappedTensor&, size_t, std::vector<uint8_t>&);
template void to_output_rows(const MappedTensor&, size_t, std::vector<GroupScale>&);

namespace {

std::vector<float> ordered_columns(const std::vector<float>& in, const std::vector<int>& from) {
  std::vector<float> out;
  out.reserve(in.size());
  for (size_t row = 0; row < in.size(); row += from.size()) {
    for (const int col : from) out.push_back(in[row + static_cast<size_t>(col)]);
  }
  return out;
}

}  // namespace

namespace {

void make_unit_rows(int cols, std::vector<float>& values) {
  const auto width = static_cast<size_t>(cols);
  for (size_t at = 0; at < values.size(); at += width) {
    double square = 0;
    for (size_t c = 0; c < width; ++c)
      square += static_cast<double>(values[at + c]) * values[at + c];
    const float length = std::max(static_cast<float>(std::sqrt(square)), 1e-12f);
    for (size_t c = 0; c < width; ++c) values[at + c] /= length;
  }
}

}  // namespace

void to_output(const MappedTensor& tensor, std::vector<float>& values) {
  if (tensor.function == MappedTensor::Function::kUnitRows) make_unit_rows(tensor.cols, values);
  to_output_rows(tensor, tensor.is_matrix ? static_cast<size_t>(tensor.cols) : 1, values);
  if (!tensor.cols_from.empty()) values = ordered_columns(values, tensor.cols_from);
  for (float& value : values) {
    if (tensor.function == MappedTensor::Function::kMinusExp) value = -std::exp(value);
    if (tensor.function == MappedTensor::Function::kLogOfMinus) value = std::log(-value);
    if (tensor.function == MappedTensor::Function::kExp) value = std::exp(value);
    if (tensor.function == MappedTensor::Function::kLog) value = std::log(value);
    if (tensor.function == MappedTensor::Function::kOne) value = 1.0f;
    value += tensor.add;
  }
  if (tensor.factors.empty()) return;
  const size_t width = tensor.is_matrix ? static_cast<size_t>(tensor.cols) : 1;
  for (size_t i = 0; i < values.size(); ++i) values[i] *= tensor.factors[i / width];
}

}  // namespace penstock
