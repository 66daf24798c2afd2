#include "ops/cpu/weight.h"

#include <algorithm>
#include <utility>

#include "base/arena.h"
#include "base/kept_map.h"
#include "kernels/pack/panel_pack.h"

namespace penstock {

void CpuWeight::decode_row(int row, float* out) const {
  if (const LatePanels* late = this->late()) return late->decode_row(row, out);
  if (order_ == nullptr) return unpack_row(panels_, row, out);
  std::vector<float> ordered(static_cast<size_t>(cols()));
  unpack_row(panels_, row, ordered.data());
  for (size_t j = 0; j < ordered.size(); ++j) out[(*order_)[j]] = ordered[j];
}

std::shared_ptr<const InputOrder> WeightPacker::shared_order(InputOrder order) {
  if (last_order_ == nullptr || *last_order_ != order) {
    last_order_ = std::make_shared<const InputOrder>(std::move(order));
  }
  return last_order_;
}

Result<std::unique_ptr<CpuWeight>> WeightPacker::allocate(const PanelShape& shape, int rows,
                                                          int cols) {
  auto weight = std::make_unique<CpuWeight>();
  PanelMatrix& panels = weight->panels_;
  panels.panel_bytes = shape.panel_bytes;
  panels.rows = rows, panels.cols = cols, panels.padded_cols = shape.padded_cols,
  panels.type = shape.type;
  const size_t panels_bytes = shape.panel_bytes * static_cast<size_t>(panels.n_panels());
  const size_t scale_bytes = shape.row_scales ? sizeof(float) * kPanelRows * panels.n_panels() : 0;
  weight->memory_ = pages_.allocate(panels_bytes + scale_bytes);
  if (weight->memory_.data() == nullptr) {
    return errorf(ErrorCode::kResourceExhausted, "weight of {} x {}: {} bytes of memory refused",
                  rows, cols, panels_bytes + scale_bytes);
  }
  panels.data = weight->memory_.data();
  if (shape.row_scales) {
    panels.row_scales = reinterpret_cast<const float*>(weight->memory_.data() + panels_bytes);
  }
  return weight;
}

float* WeightPacker::row_scales(CpuWeight& weight) {
  return const_cast<float*>(weight.panels_.row_scales);
}

Result<std::unique_ptr<Weight>> WeightPacker::pack(const QuantizedMatrix& matrix, bool may_wait) {
  const int block = quant_info(matrix.type).block_size;
  if (matrix.rows <= 0 || matrix.cols <= 0 || matrix.cols % block != 0 ||
      matrix.bytes.size() < matrix.size_bytes()) {
    return errorf(
        ErrorCode::kInvalidArgument,
        "weight of type {}: expected rows of a multiple of {} elements, got {} x {} in {} bytes",
        quant_info(matrix.type).name, block, matrix.rows, matrix.cols, matrix.bytes.size());
  }
  const PanelShape shape = panel_shape(matrix.type, matrix.cols);
  ASSIGN_OR_RETURN(std::unique_ptr<CpuWeight> weight, allocate(shape, matrix.rows, matrix.cols));
  // Ternary weights belong to models trained with one activation scale per token.
  if (shape.type == panel_type(QuantType::kTQ2_0)) {
    weight->rounding_.kind = ActivationRounding::Kind::kPerRow;
  }
  const size_t bytes = weight->memory_.size();
  if (auto file = may_wait && bytes >= kHugePage ? keep_mapped(matrix.bytes) : nullptr) {
    weight->late_ = std::make_unique<LatePanels>(matrix, std::move(file), weight->panels_,
                                                 row_scales(*weight), bytes);
    late_bytes_ += static_cast<int64_t>(bytes);
    return std::unique_ptr<Weight>(std::move(weight));
  }
  // Panels are divided among workers as in a product, so that on a NUMA machine each worker's
  // panels are in its own memory.
  pool_.for_ranges(weight->panels_.n_panels(), 1, [&](int64_t begin, int64_t end, int) {
    pack_panels(matrix, weight->panels_, row_scales(*weight), static_cast<int>(begin),
                static_cast<int>(end));
  });
  return std::unique_ptr<Weight>(std::move(weight));
}

void WeightPacker::pack_rest(const CpuWeight& weight) const {
  LatePanels* late = weight.late();
  if (late == nullptr || !late->claim()) return;
  pool_.for_ranges(weight.panels().n_panels(), 1, [&](int64_t begin, int64_t end, int) {
    late->keep(static_cast<int>(begin), static_cast<int>(end));
    late->kept(static_cast<int>(begin), static_cast<int>(end));
  });
}

Result<std::unique_ptr<Weight>> WeightPacker::pack(const GroupedMatrix& matrix, int first_row,
                                                   int n_rows) {
  if (first_row < 0 || n_rows <= 0 || first_row > matrix.rows - n_rows) {
    return errorf(ErrorCode::kInvalidArgument,
                  "weight of {} rows: expected some of them, got {} from {} on", matrix.rows,
                  n_rows, first_row);
  }
  const GroupedShape shape = grouped_shape(matrix);
  ASSIGN_OR_RETURN(std::unique_ptr<CpuWeight> weight, allocate(shape.panels, n_rows, matrix.cols));
  std::copy_n(shape.levels, 16, weight->panels_.levels);
  using Coding = ActivationCoding::Kind;
  // LLM.int8 keeps outliers apart because they spoil a token's one scale; groups' scales need no
  // such care.
  const bool per_token = matrix.activations.outlier_threshold <= 0;
  if (matrix.activations.kind == Coding::kInt8PerToken && per_token) {
    weight->rounding_.kind = ActivationRounding::Kind::kPerRow;
  } else if (matrix.activations.kind == Coding::kInt8Static) {
    weight->rounding_ = {ActivationRounding::Kind::kFixed, matrix.activations.static_scale};
  }
  if (!matrix.input_order.empty() && !shape.decoded) {
    weight->order_ = shared_order(matrix.input_order);
  }
  pool_.for_ranges(weight->panels_.n_panels(), 1, [&](int64_t begin, int64_t end, int) {
    pack_grouped(matrix, first_row, shape, weight->panels_, row_scales(*weight),
                 static_cast<int>(begin), static_cast<int>(end));
  });
  return std::unique_ptr<Weight>(std::move(weight));
}

}  // namespace penstock
