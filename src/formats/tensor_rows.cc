#include "formats/tensor_rows.h"

namespace penstock {

Result<std::vector<float>> read_row(const WeightSource& source, std::string_view name, int64_t row,
                                    int64_t cols) {
  const TensorInfo* tensor = source.find(name);
  if (tensor == nullptr || tensor->shape.size() != 2 || tensor->shape[1] != cols || row < 0 ||
      row >= tensor->shape[0] || !can_quantize(tensor->type)) {
    return errorf(ErrorCode::kCorruptFile,
                  "{}: tensor {}: expected real numbers in {} columns and more than {} rows",
                  source.path().string(), name, cols, row);
  }
  std::vector<float> values(static_cast<size_t>(cols));
  const size_t row_bytes = quant_bytes(tensor->type, cols);
  dequantize_row(tensor->type, tensor->bytes.data() + static_cast<size_t>(row) * row_bytes,
                 values.data(), cols);
  return values;
}

}  // namespace penstock
