// A weight that is not packed when it is loaded: its rows stay in the mapped file, in the file's order.
//
// The first step packs a few panels at a time into a buffer and multiplies from there, so a first token waits for no new
// memory. Each of the next steps packs some of the weights that it uses into their own memory, once, as it multiplies with
// them. Both give the bits of a weight that was packed before.
#pragma once
#include <atomic>
#include <memory>

#include "base/memory.h"
#include "kernels/gemm_kernels.h"
#include "quant/quant_type.h"

namespace penstock {

class LatePanels {
 public:
  // file: keeps the rows. Panels go to `to` and row_scales (null unless the layout has any), memory that nobody has touched.
  LatePanels(const QuantizedMatrix& rows, std::shared_ptr<const void> file, const PanelMatrix& to,
             float* row_scales, size_t memory_bytes);

  // All panels are in their place. Any thread.
  bool done() const { return n_left_.load(std::memory_order_acquire) == 0; }
  // Whether the caller, and nobody else, is to keep() every panel once, and say so by kept().
  bool claim() { return !claimed_.exchange(true); }
  // Packs panels [begin, end) into their place. Of several threads each other panels.
  void keep(int begin, int end);
  // Theirs are: the rows are dropped.
  void kept(int begin, int end);

  // Panels that a buffer of buffer_bytes() takes at once.
  int n_at_once() const { return n_at_once_; }
  size_t buffer_bytes() const;
  // Panels [begin, begin + n) as a matrix of their own in the buffer. n <= n_at_once().
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
