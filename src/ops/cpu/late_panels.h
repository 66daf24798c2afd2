// Lazy packing: a weight that is not packed at load. Its rows stay in the mapped file, in the
// file's order, until the first steps pack them.
//
// The first step packs a few panels at a time into a buffer and multiplies from there, so that the
// first token does not wait for new memory. Each following step packs some of the weights that it
// uses into their own memory, once, while it multiplies with them. Both give the same bits as a
// weight that was packed at load.
#pragma once
#include <atomic>
#include <memory>

#include "base/memory.h"
#include "kernels/gemm_kernels.h"
#include "quant/quant_type.h"

namespace penstock {

class LatePanels {
 public:
  // rows: the matrix in the file, which `file` keeps mapped. Panels are packed into `to` and
  // row_scales (null unless the layout has row scales), whose memory must be untouched.
  LatePanels(const QuantizedMatrix& rows, std::shared_ptr<const void> file, const PanelMatrix& to,
             float* row_scales, size_t memory_bytes);

  // Whether all panels are packed. Any thread.
  bool done() const { return n_left_.load(std::memory_order_acquire) == 0; }
  // Returns true to exactly one caller, which must then pack every panel once by keep() and report
  // it by kept(). Any thread.
  bool claim() { return !claimed_.exchange(true); }
  // Packs panels [begin, end) into the weight's memory. Threads may pack disjoint panels in
  // parallel.
  void keep(int begin, int end);
  // Marks panels [begin, end) as packed and drops their rows of the file from memory.
  void kept(int begin, int end);

  // Most panels that copy() packs into a buffer of buffer_bytes().
  int n_at_once() const { return n_at_once_; }
  size_t buffer_bytes() const;
  // Packs panels [begin, begin + n) into the buffer and returns them as a matrix. REQUIRES: n <=
  // n_at_once().
  PanelMatrix copy(int begin, int n, uint8_t* buffer) const;

  void decode_row(int row, float* out) const;

 private:
  QuantizedMatrix rows_of(int begin, int n) const;

  const QuantizedMatrix rows_;
  const std::shared_ptr<const void> file_;
  const PanelMatrix to_;
  float* const row_scales_;
  const int n_at_once_;
  std::atomic<bool> claimed_ = false;
  std::atomic<int> n_left_;
  PromisedMemory promised_;
};

}  // namespace penstock
