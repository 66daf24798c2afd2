// Packs rows of a file into panels, and unpacks single rows. Portable; runs once at load.
#pragma once
#include <cstddef>

#include "kernels/gemm_kernels.h"
#include "quant/grouped_matrix.h"

namespace penstock {

// Layout of a matrix in panels.
struct PanelShape {
  PanelType type;
  int padded_cols;
  size_t panel_bytes;  // a multiple of 64
  bool row_scales;     // the layout has a factor per row
};

// Version of the layouts. Increment it when a matrix packs to other bytes: panels on disk are then
// packed again.
inline constexpr int kPanelVersion = 2;

// Columns and bytes of a panel; zeros for types that are never packed.
struct PanelSize {
  int padded_cols;
  size_t bytes;
};
PanelSize panel_size(PanelType type, int cols);

// Returns the layout of a matrix. Integer codes and floats of 16 and 32 bits are unchanged; other
// numbers become FP16 or F32, exactly except for F64.
PanelShape panel_shape(QuantType type, int cols);

// Packs panels [panel_begin, panel_end) of `from` into `to`, whose shape is panel_shape(from.type,
// from.cols); row_scales (null unless the shape asks for it) is written for the rows of these
// panels.
void pack_panels(const QuantizedMatrix& from, const PanelMatrix& to, float* row_scales,
                 int panel_begin, int panel_end);

// Layout of a grouped matrix in panels.
struct GroupedShape {
  PanelShape panels;
  int code_offset = 0;       // added to codes and zeros
  uint8_t levels[16] = {};   // PanelMatrix::levels
  float level_scale = 1.0f;  // value of one unit of the levels
  // stored as FP16 values, since no layout of codes fits
  bool decoded = false;
};

// Returns the layout of a grouped matrix. Codes are unchanged; scales become FP16 relative to a
// power of two of their row. Exceptions: uneven levels are rounded to 8 bits (relative to the
// largest), unless they are multiples of one number; codes of 6 and 7 bits become 8 bits. Decoded
// to FP16: groups that are no multiple of 32 (of 16 for 4 bits without zeros), F8 with scales
// inside a row.
GroupedShape grouped_shape(const GroupedMatrix& matrix);

// Packs panels [panel_begin, panel_end) of rows [first_row, first_row + to.rows). Columns of `to`
// are in the order of the codes (from.input_order), unless decoded.
void pack_grouped(const GroupedMatrix& from, int first_row, const GroupedShape& shape,
                  const PanelMatrix& to, float* row_scales, int panel_begin, int panel_end);

// out = row `row` as w.cols floats.
void unpack_row(const PanelMatrix& w, int row, float* out);

}  // namespace penstock
