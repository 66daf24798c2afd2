// Elementwise and rowwise kernels.
#pragma once
#include <cstdint>

#include "kernels/activation.h"
#include "ops/cuda/kernels/batch.h"
#include "ops/cuda/kernels/launch.h"

namespace penstock::cuda {

// A tensor of floats for kernels.
struct Rows {
  float* data = nullptr;
  int64_t stride = 0;  // elements between rows
  int rows = 0, cols = 0;

  PENSTOCK_DEVICE float* row(int i) const { return data + i * stride; }
};

// NormParams for kernels.
struct RowNorm {
  const float *weight = nullptr,
              // [weight_rows, cols]: row r has weights r % weight_rows; null: ones, zeros
      *bias = nullptr;
  int weight_rows = 1;
  float eps = 0.0f;
  bool layer_norm = false;
};

// --- One block per row: Grid::x = rows.

// x += delta * delta_scale if delta is given; out = norm(x) if out is given.
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

// --- One thread per element: Grid::x = rows, Grid::y = groups of kThreads columns
// (a_thread_per_element() in tensors.h).

// x = cap * tanh(x * factor / cap); x * factor if cap is 0
struct ScaleRows {
  static constexpr int kThreads = 256;
  Rows x;
  float factor, cap;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// out = from, or zeros without from. With `outputs`, row i is that of the batch's output i, and
// rows of padding are zeros.
struct CopyRows {
  static constexpr int kThreads = 256;
  Rows from, out;
  const BatchOnDevice* outputs;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// out = f(x) * up; f(x) without up
struct ActivateRows {
  static constexpr int kThreads = 256;
  Rows x, up, out;
  ActivationFunction f;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// x *= by, as `how` says
struct MultiplyRows {
  static constexpr int kThreads = 256;
  enum class How : uint8_t { kElements, kGate, kColumns };  // by; gate(by[row][0]); by[0]
  Rows x, by;
  How how;
  ActivationFunction gate;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Ops::add_mixed
struct AddMixed {
  static constexpr int kThreads = 256;
  Rows from, by, to;
  int width;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Ops::put_given (level 0) and Ops::add_given
struct TakeGiven {
  static constexpr int kThreads = 256;
  Rows x;
  const BatchOnDevice* batch;
  int level;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Ops::scale_by_position
struct ScaleByPosition {
  static constexpr int kThreads = 256;
  Rows x;
  const BatchOnDevice* batch;
  float beta, period;
  int offset;
  bool smooth;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
