#include "ops/cpu/weight.h"

namespace penstock {

void CpuWeight::decode_row(int row, float* out) const {
  dequantize_row(type_, bytes_.data() + row * quant_bytes(type_, cols_), out, cols_);
}

Result<std::unique_ptr<Weight>> pack_cpu_weight(ThreadPool& pool, const QuantizedMatrix& matrix) {
  (void)pool;
  auto weight = std::make_unique<CpuWeight>();
  weight->type_ = matrix.type;
  weight->rows_ = matrix.rows;
  weight->cols_ = matrix.cols;
  weight->bytes_.assign(matrix.bytes.begin(), matrix.bytes.end());
  return weight;
}

}  // namespace penstock
