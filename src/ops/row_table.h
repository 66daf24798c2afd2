// A table of which few rows are read, and which stays in its file: rows are decoded where they are
// looked up.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quant/quant_type.h"

namespace penstock {

// Views into files, which outlive the table. Immutable: any thread may read.
class RowTable {
 public:
  // Appends rows. REQUIRES: all parts have equally many columns, whole blocks of their type.
  void append(const QuantizedMatrix& rows) {
    parts_.push_back({n_rows_, rows});
    n_rows_ += rows.rows;
  }
  int64_t n_rows() const { return n_rows_; }
  int n_cols() const { return parts_.empty() ? 0 : parts_[0].rows.cols; }
  int64_t bytes() const {
    int64_t total = 0;
    for (const Part& part : parts_) total += static_cast<int64_t>(part.rows.size_bytes());
    return total;
  }
  // The bytes of a row, in an encoding of its part. REQUIRES: 0 <= row < n_rows().
  struct Row {
    QuantType type;
    std::span<const std::byte> bytes;
  };
  Row row(int64_t index) const {
    const auto next = std::ranges::upper_bound(parts_, index, {}, &Part::first);
    const Part& part = *(next - 1);
    const auto at = static_cast<size_t>(index - part.first);
    return {part.rows.type,
            part.rows.bytes.subspan(at * part.rows.stride(), part.rows.row_bytes())};
  }

 private:
  struct Part {
    int64_t first;
    QuantizedMatrix rows;
  };
  std::vector<Part> parts_;  // ascending
  int64_t n_rows_ = 0;
};

}  // namespace penstock
