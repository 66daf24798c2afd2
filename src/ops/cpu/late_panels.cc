#include "ops/cpu/late_panels.h"

#include <algorithm>
#include <utility>

#include "base/kept_map.h"
#include "kernels/pack/panel_pack.h"

namespace penstock {
namespace {

// Bytes that stay in the second-level cache between packing and multiplying.
constexpr size_t kBufferBytes = size_t{256} << 10;
// Panels that kernels multiply together (GemmPlan::panels). Fewer at once take longer than what
// leaves the cache: a wide row of BF16 weights has one panel in kBufferBytes.
constexpr int kTogether = 4;
constexpr size_t kScaleBytes = sizeof(float) * kPanelRows;  // of a panel's rows

}  // namespace

LatePanels::LatePanels(const QuantizedMatrix& rows, std::shared_ptr<const void> file,
                       const PanelMatrix& to, float* row_scales, size_t memory_bytes)
    : rows_(rows),
      file_(std::move(file)),
      to_(to),
      row_scales_(row_scales),
      n_at_once_(std::max(1, static_cast<int>(kBufferBytes / to.panel_bytes) / kTogether) *
                 kTogether),
      n_left_(to.n_panels()),
      promised_(to.data, memory_bytes) {}

QuantizedMatrix LatePanels::rows_of(int begin, int n) const {
  const int first = begin * kPanelRows;
  return rows_.row_range(first, std::min(n * kPanelRows, rows_.rows - first));
}

void LatePanels::keep(int begin, int end) { pack_panels(rows_, to_, row_scales_, begin, end); }

void LatePanels::kept(int begin, int end) {
  drop_mapped(rows_of(begin, end - begin).bytes);
  n_left_.fetch_sub(end - begin, std::memory_order_acq_rel);
}

size_t LatePanels::buffer_bytes() const {
  return static_cast<size_t>(n_at_once_) * (to_.panel_bytes + kScaleBytes);
}

PanelMatrix LatePanels::copy(int begin, int n, uint8_t* buffer) const {
  const QuantizedMatrix rows = rows_of(begin, n);
  auto* scales = reinterpret_cast<float*>(buffer + static_cast<size_t>(n) * to_.panel_bytes);
  PanelMatrix panels = to_;
  panels.data = buffer;
  panels.rows = rows.rows;
  panels.row_scales = row_scales_ != nullptr ? scales : nullptr;
  pack_panels(rows, panels, row_scales_ != nullptr ? scales : nullptr, 0, n);
  return panels;
}

void LatePanels::decode_row(int row, float* out) const {
  dequantize_row(rows_.type, rows_.bytes.data() + static_cast<size_t>(row) * rows_.stride(), out,
                 rows_.cols);
}

}  // namespace penstock
