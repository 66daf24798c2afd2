#include "ops/cuda/kernels/rows.h"

#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {

// --- Rows.

PENSTOCK_BODY void AddNorm::operator()(const Thread& t) const {
  float* const scratch = t.shared_as<float>();
  float* const values = x.row(t.x);
  const int n = x.cols;
  float sum = 0.0f;
  for (int i = t.index; i < n; i += kThreads) {
    if (delta.data != nullptr) values[i] += delta.row(t.x)[i] * delta_scale;
    sum += layer_norm ? values[i] : values[i] * values[i];
  }
  if (out.data == nullptr) return;
  const float mean = block_sum<kThreads>(t, sum, scratch) / static_cast<float>(n);
  float squares = mean, middle = 0.0f;
  if (layer_norm) {
    middle = mean, sum = 0.0f;
    for (int i = t.index; i < n; i += kThreads) sum += (values[i] - middle) * (values[i] - middle);
    squares = block_sum<kThreads>(t, sum, scratch) / static_cast<float>(n);
  }
  const float factor = 1.0f / sqrtf(squares + eps);
  const int64_t of_row = static_cast<int64_t>(t.x % weight_rows) * n;
  float* const to = out.row(t.x);
  for (int i = t.index; i < n; i += kThreads) {
    float v = (values[i] - middle) * factor;
    if (weight != nullptr) v *= weight[of_row + i];
    if (bias != nullptr) v += bias[i];
    to[i] = v;
  }
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
  for (int i = t.index; i < n; i += MatchMagnitude::kThreads) sum += static_cast<double>(row[i]) * row[i];
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

// --- Elements.

// The column of a thread of a kernel with a thread per element.
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

PENSTOCK_DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

PENSTOCK_DEVICE float activated(const ActivationFunction& f, float x) {
  const float* const p = f.parameters;
  switch (f.kind) {
    case Activation::kSilu: return x * sigmoid(x);
    case Activation::kGelu: return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    case Activation::kGeluTanh:  // 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3)
      return x * sigmoid(2 * 0.7978845608f * x * (1.0f + 0.044715f * x * x));
    case Activation::kRelu: return fmaxf(x, 0.0f);
    case Activation::kRelu2: return x > 0.0f ? x * x : 0.0f;
    case Activation::kXielu:
      return x > 0.0f ? p[0] * x * x + p[2] * x : p[1] * (expm1f(fminf(x, p[3])) - x) + p[2] * x;
    case Activation::kClampedSilu: {
      const float v = fminf(x, p[1]);
      return v * sigmoid(p[0] * v);
    }
    case Activation::kSigmoid: return sigmoid(x);
  }
  return x;
}

PENSTOCK_BODY void ActivateRows::operator()(const Thread& t) const {
  const int i = column_of<ActivateRows>(t);
  if (i >= x.cols) return;
  float value = activated(f, x.row(t.x)[i]);
  if (up.data != nullptr) {
    const float by = up.row(t.x)[i];
    const float most = f.parameters[1];
    value *= f.kind == Activation::kClampedSilu ? fmaxf(-most, fminf(by, most)) + 1.0f : by;
  }
  out.row(t.x)[i] = value;
}
PENSTOCK_KERNEL(ActivateRows)

PENSTOCK_BODY void MultiplyRows::operator()(const Thread& t) const {
  const int i = column_of<MultiplyRows>(t);
  if (i >= x.cols) return;
  const float factor = how == How::kElements ? by.row(t.x)[i]
                       : how == How::kGate   ? sigmoid(by.row(t.x)[0])
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

PENSTOCK_BODY void ScaleByPosition::operator()(const Thread& t) const {
  const int i = column_of<ScaleByPosition>(t);
  if (i >= x.cols || t.x >= batch->n_tokens) return;
  const float periods = floorf(static_cast<float>(batch->positions[t.x] + offset) / period);
  x.row(t.x)[i] *= 1.0f + beta * logf(1.0f + periods);
}
PENSTOCK_KERNEL(ScaleByPosition)

}  // namespace penstock::cuda
