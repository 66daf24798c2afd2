#include "ops/cuda/kernels/sample.h"

#include "ops/cuda/kernels/short_list.h"

namespace penstock::cuda {
namespace {

template <int kThreads>
PENSTOCK_DEVICE void edit_row(const DrawsOnDevice& all, const DrawOnDevice& draw, const Thread& t,
                              const float* raw, int n, float* row) {
  for (int i = t.index; i < n; i += kThreads) {
    const bool inside = draw.mask < 0 || (all.masks[draw.mask + i / 32] >> (i % 32) & 1) != 0;
    row[i] = inside ? raw[i] : kMinusInf;
  }
  t.sync();
  for (int i = 0; i < draw.n_edits; ++i) {  // the thread edits its own tokens, in order
    const EditOnDevice& edit = all.edits[draw.edits + i];
    if (edit.token % kThreads != t.index) continue;
    float& logit = row[edit.token];
    if (edit.kind == 0) logit = edit.value;
    if (edit.kind == 1) logit = plus(logit, edit.value);
    if (edit.kind == 2) logit = logit > 0 ? logit / edit.value : mul(logit, edit.value);
  }
  t.sync();
}

// Draws with top-p as the only filter, if a short sorted list reaches its mass; otherwise kLeft.
template <int kThreads>
PENSTOCK_DEVICE int draw_by_mass(const ShortList<kThreads>& list, const DrawOnDevice& draw,
                                 int n_possible) {
  const double mass = times(static_cast<double>(draw.top_p), list.scan.sum(list.scale, nullptr));
  for (int most = 64; most <= ScanMemory::kMostListed; most *= 16) {
    const int k = n_possible < most ? n_possible : most;
    list.select(k);
    list.weigh(k);
    const int n = list.prefix(k, mass);
    if (n > 0) return list.pick(n, times(draw.u, list.total(n)));
  }
  return DrawnOnDevice::kLeft;
}

template <int kThreads>
PENSTOCK_DEVICE int draw_filtered(const ShortList<kThreads>& list, const DrawOnDevice& draw) {
  const int n_possible = list.count();
  if (draw.top_k == 0 && draw.least_x == kMinusInf) return draw_by_mass(list, draw, n_possible);
  int n = draw.top_k > 0 && draw.top_k < n_possible ? draw.top_k : n_possible;
  if (n > ScanMemory::kMostListed) return DrawnOnDevice::kLeft;
  list.select(n);
  list.weigh(n);
  if (draw.top_p < 1.0f) {
    const int kept = list.prefix(n, times(static_cast<double>(draw.top_p), list.total(n)));
    n = kept > 0 ? kept : n;
  }
  return list.pick(n, times(draw.u, list.total(n)));
}

template <int kThreads>
PENSTOCK_DEVICE int draw_token(const Scan<kThreads>& scan, const DrawOnDevice& draw,
                               double* piece_sums) {
  if (draw.temperature == 0.0f) {
    const int token = scan.likeliest();
    return token < scan.n && scan.row[token] < INFINITY ? token : DrawnOnDevice::kNone;
  }
  const float most = scan.largest();
  if (!(most > kMinusInf && most < INFINITY)) return DrawnOnDevice::kNone;
  const ScanScaleOnDevice scale = {most, 1.0f / draw.temperature};
  if (draw.top_k > 0 || draw.top_p < 1.0f || draw.least_x > kMinusInf)
    return draw_filtered(ShortList<kThreads>(scan, scale, draw.least_x), draw);
  const double total = scan.sum(scale, piece_sums);
  return scan.pick(scale, times(draw.u, total), piece_sums);
}

// Lists the most likely tokens of the unedited row; returns their number.
template <int kThreads>
PENSTOCK_DEVICE int list_top(const Scan<kThreads>& raw, float most, int n, TopOnDevice* top) {
  if (!(most > kMinusInf && most < INFINITY)) return 0;
  const ShortList<kThreads> list(raw, {most, 1.0f}, kMinusInf);
  const int n_possible = list.count();
  n = n < n_possible ? n : n_possible;
  list.select(n);
  for (int i = raw.t.index; i < n; i += kThreads) {
    const int token = id_of_key(raw.memory.listed[i]);
    top[i] = {token, raw.row[token]};
  }
  raw.t.sync();
  return n;
}

}  // namespace

template <int kBlock>
PENSTOCK_BODY void DrawRows<kBlock>::operator()(const Thread& t) const {
  static_assert(sizeof(ScanMemory) <= kSharedBytes);
  if (t.x >= asked->n) return;
  const DrawsOnDevice& all = *asked;
  const DrawOnDevice& draw = all.draws[t.x];
  DrawnOnDevice result = {DrawnOnDevice::kLeft, 0, 0, 0.0f, 0.0f, 0.0};
  if (draw.row >= 0) {
    const int n = logits.cols;
    const float* const raw = logits.row(draw.row);
    const bool as_is = draw.mask < 0 && draw.n_edits == 0;
    float* const row = edited + static_cast<int64_t>(t.x) * n;
    const Scan<kThreads> as_it_came(t, raw, n), scan(t, as_is ? raw : row, n);
    if (draw.report || draw.likeliest || draw.n_top > 0) {
      result.raw_most = as_it_came.largest();
      result.raw_sum = as_it_came.sum({result.raw_most, 1.0f}, nullptr);
    }
    if (draw.n_top > 0)
      result.n_top = list_top(as_it_came, result.raw_most, draw.n_top,
                              all.tops + static_cast<int64_t>(t.x) * all.tops_stride);
    if (!as_is) edit_row<kThreads>(all, draw, t, raw, n, row);
    result.token = draw_token(
        scan, draw, piece_sums + static_cast<int64_t>(t.x) * ((n + kScanPiece - 1) / kScanPiece));
    if (draw.report && result.token >= 0) {
      result.raw_logit = raw[result.token];
      result.rank = 1 + as_it_came.count_greater(result.raw_logit);
    }
  }
  if (t.index == 0) all.tokens[t.x] = result.token, all.drawn[t.x] = result;
}
PENSTOCK_KERNEL(Draw)
PENSTOCK_KERNEL(DrawLong)
#if !defined(__CUDACC__)
PENSTOCK_KERNEL(DrawAlone)
#endif

}  // namespace penstock::cuda
