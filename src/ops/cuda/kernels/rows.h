// Kernels that work on tensors element by element, or row by row.
#pragma once
#include <cstdint>

#include "kernels/activation.h"
#include "ops/cuda/kernels/batch.h"
#include "ops/cuda/kernels/launch.h"

namespace penstock::cuda {

// A tensor of floats as kernels take it.
struct Rows {
  float* data = nullptr;
  int64_t stride = 0;  // elements between rows
  int rows = 0, cols = 0;

  PENSTOCK_DEVICE float* row(int i) const { return data + i * stride; }
};

// NormParams as kernels take them.
struct RowNorm {
  const float *weight = nullptr,
              // [weight_rows, cols], row r has the weights r % weight_rows; null: ones, zeros
      *bias = nullptr;
  int weight_rows = 1;
  float eps = 0.0f;
  bool layer_norm = false;
};

// --- A block per row: Grid::x = rows.

// x += delta * delta_scale, if there is a delta; out = norm(x), if there is an out.
struct AddNorm {
  static constexpr int kThreads = 256;
  Rows x, delta, out;
  float delta_scale;
  RowNorm norm;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// x = round(x * 127 / m) * m / 127, m = max(|row|, 1e-5), halves to even.
struct RoundInt8 {
  static constexpr int kThreads = 256;
  Rows x;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// x *= sqrt(mean(like^2) / max(mean(x^2), least))
struct MatchMagnitude {
  static constexpr int kThreads = 256;
  Rows x, like;
  float least;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// x = max(x - mean - deviations * standard deviation, 0)
struct KeepAbove {
  static constexpr int kThreads = 256;
  Rows x;
  float deviations;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// --- A thread per element: Grid::x = rows, Grid::y = parts of kThreads columns (elements_of in
//   cuda_ops.h).

// x = cap * tanh(x * factor / cap); without a cap x * factor
struct ScaleRows {
  static constexpr int kThreads = 256;
  Rows x;
  float factor, cap;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// out = from, or zeros where there is no from; with output_rows row i is that of the batch's output
// i, zeros behind the last
struct CopyRows {
  static constexpr int kThreads = 256;
  Rows from, out;
  const BatchOnDevice* outputs;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// out = f(x) * up, or f(x) where there is no up
struct ActivateRows {
  static constexpr int kThreads = 256;
  Rows x, up, out;
  ActivationFunction f;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// x *= by: what `how` says
struct MultiplyRows {
  static constexpr int kThreads = 256;
  enum class How : uint8_t { kElements, kGate, kColumns };  // by; sigmoid(by[row][0]); by[0]
  Rows x, by;
  How how;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Ops::add_mixed
struct AddMixed {
  static constexpr int kThreads = 256;
  Rows from, by, to;
  int width;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Ops::scale_by_position
struct ScaleByPosition {
  static constexpr int kThreads = 256;
  Rows x;
  const BatchOnDevice* batch;
  float beta, period;
  int offset;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
