// From rows of a file to panels, and one row back. Portable; run once at load.
#pragma once
#include <cstddef>

#include "kernels/gemm_kernels.h"

namespace penstock {

// How a matrix of this type is laid out in panels.
struct PanelShape {
  QuantType type;  // of the panels
  int padded_cols;
  size_t panel_bytes;  // a multiple of 64
  bool row_scales;     // needs a factor per row
};

// Integer codes and floats of 16 and 32 bits are kept as they are; other numbers become FP16 or F32, exactly
// but for F64.
PanelShape panel_shape(QuantType type, int cols);

// Packs panels [panel_begin, panel_end) of `from` into `to`, whose shape is panel_shape(from.type,
// from.cols); row_scales (null unless the shape asks for it) is written for the rows of these panels.
void pack_panels(const QuantizedMatrix& from, const PanelMatrix& to, float* row_scales, int panel_begin,
                 int panel_end);

// Row `row` as w.cols floats.
void unpack_row(const PanelMatrix& w, int row, float* out);

}  // namespace penstock
