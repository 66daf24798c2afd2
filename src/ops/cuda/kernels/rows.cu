#include "ops/cuda/kernels/rows.h"

#include "ops/cuda/kernels/activate.h"
#include "ops/cuda/kernels/row_norm.h"
#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {

// --- Rowwise operations.

PENSTOCK_BODY void AddNorm::operator()(const Thread& t) const {
  float* const values = x.row(t.x);
  const int n = x.cols;
  if (delta.data != nullptr) {  // each thread reads only what it writes
    for (int i = t.index; i < n; i += kThreads) values[i] += delta.row(t.x)[i] * delta_scale;
  }
  if (out.data == nullptr) return;
  const RowMoments moments = moments_of_row<kThreads>(t, norm, values, n, t.shared_as<float>());
  float* const to = out.row(t.x);
  for (int i = t.index; i < n; i += kThreads) to[i] = normed(norm, moments, t.x, n, i, values[i]);
}
PENSTOCK_KERNEL(AddNorm)

PENSTOCK_BODY void RoundInt8::operator()(const Thread& t) const {
  float* const values = x.row(t.x);
  float most = 1e-5f;
  for (int i = t.index; i < x.cols; i += kThreads) most = fmaxf(most, fabsf(values[i]));
  most = block_max<kThreads>(t, most, t.shared_as<float>());
  const float up = 127.0f / most, down = most / 127.0f;
  for (int i = t.index; i < x.cols; i += kThreads) values[i] = rintf(values[i] * up) * down;
}
PENSTOCK_KERNEL(RoundInt8)

PENSTOCK_DEVICE double mean_square(const Thread& t, const float* row, int n) {
  double sum = 0;
  for (int i = t.index; i < n; i += MatchMagnitude::kThreads)
    sum += static_cast<double>(row[i]) * row[i];
  return block_sum<MatchMagnitude::kThreads>(t, sum, t.shared_as<double>()) / n;
}

PENSTOCK_BODY void MatchMagnitude::operator()(const Thread& t) const {
  const auto own = static_cast<float>(mean_square(t, x.row(t.x), x.cols));
  const auto wanted = static_cast<float>(mean_square(t, like.row(t.x), like.cols));
  const float factor = sqrtf(wanted / fmaxf(own, least));
  for (int i = t.index; i < x.cols; i += kThreads) x.row(t.x)[i] *= factor;
}
PENSTOCK_KERNEL(MatchMagnitude)

PENSTOCK_BODY void KeepAbove::operator()(const Thread& t) const {
  float* const values = x.row(t.x);
  double* const scratch = t.shared_as<double>();
  double sum = 0;
  for (int i = t.index; i < x.cols; i += kThreads) sum += values[i];
  const double mean = block_sum<kThreads>(t, sum, scratch) / x.cols;
  sum = 0;
  for (int i = t.index; i < x.cols; i += kThreads) sum += (values[i] - mean) * (values[i] - mean);
  const double deviation = sqrt(block_sum<kThreads>(t, sum, scratch) / x.cols);
  const auto cutoff = static_cast<float>(mean + deviations * deviation);
  for (int i = t.index; i < x.cols; i += kThreads) values[i] = fmaxf(values[i] - cutoff, 0.0f);
}
PENSTOCK_KERNEL(KeepAbove)

// --- Elementwise operations.

// Column of the thread, in kernels with one thread per element.
template <class K>
PENSTOCK_DEVICE int column_of(const Thread& t) {
  return t.y * K::kThreads + t.index;
}

PENSTOCK_BODY void ScaleRows::operator()(const Thread& t) const {
  const int i = column_of<ScaleRows>(t);
  if (i >= x.cols) return;
  float& value = x.row(t.x)[i];
  value *= factor;
  if (cap > 0.0f) value = cap * tanhf(value / cap);
}
PENSTOCK_KERNEL(ScaleRows)

PENSTOCK_BODY void CopyRows::operator()(const Thread& t) const {
  const int i = column_of<CopyRows>(t);
  if (i >= out.cols) return;
  int row = t.x;
  bool there = from.data != nullptr;
  if (there && outputs != nullptr) {
    there = row < outputs->n_outputs;
    if (there) row = outputs->output_rows[row];
  }
  out.row(t.x)[i] = there ? from.row(row)[i] : 0.0f;
}
PENSTOCK_KERNEL(CopyRows)

PENSTOCK_BODY void ActivateRows::operator()(const Thread& t) const {
  const int i = column_of<ActivateRows>(t);
  if (i >= x.cols) return;
  const float value = x.row(t.x)[i];
  out.row(t.x)[i] = up.data != nullptr ? gated(f, value, up.row(t.x)[i]) : activated(f, value);
}
PENSTOCK_KERNEL(ActivateRows)

PENSTOCK_BODY void MultiplyRows::operator()(const Thread& t) const {
  const int i = column_of<MultiplyRows>(t);
  if (i >= x.cols) return;
  const float factor = how == How::kElements ? by.row(t.x)[i]
                       : how == How::kGate   ? activated(gate, by.row(t.x)[0])
                                             : by.data[i];
  x.row(t.x)[i] *= factor;
}
PENSTOCK_KERNEL(MultiplyRows)

PENSTOCK_BODY void AddMixed::operator()(const Thread& t) const {
  const int i = column_of<AddMixed>(t);
  if (i >= to.cols) return;
  const int n = from.cols / width, q = i / width;
  float sum = to.row(t.x)[i];
  for (int p = 0; p < n; ++p) sum += by.row(t.x)[q * n + p] * from.row(t.x)[p * width + i % width];
  to.row(t.x)[i] = sum;
}
PENSTOCK_KERNEL(AddMixed)

PENSTOCK_BODY void TakeGiven::operator()(const Thread& t) const {
  const int i = column_of<TakeGiven>(t);
  if (i >= x.cols || t.x >= batch->n_tokens) return;
  const int row = batch->given_of[t.x];
  if (row < 0) return;
  const int64_t at = (int64_t{level} * batch->n_given + row) * x.cols + i;
  x.row(t.x)[i] = batch->given[at] + (level > 0 ? x.row(t.x)[i] : 0.0f);
}
PENSTOCK_KERNEL(TakeGiven)

PENSTOCK_BODY void ScaleByPosition::operator()(const Thread& t) const {
  const int i = column_of<ScaleByPosition>(t);
  if (i >= x.cols || t.x >= batch->n_tokens) return;
  const float periods = static_cast<float>(batch->positions[t.x] + offset) / period;
  x.row(t.x)[i] *= 1.0f + beta * logf(smooth ? fmaxf(1.0f, periods) : 1.0f + floorf(periods));
}
PENSTOCK_KERNEL(ScaleByPosition)

}  // namespace penstock::cuda
