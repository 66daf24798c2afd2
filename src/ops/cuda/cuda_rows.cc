// Elementwise and rowwise operations.
#include "ops/cuda/cuda_ops.h"

namespace penstock::cuda {
namespace {

bool same_shape(Tensor a, Tensor b) { return a.rows == b.rows && a.cols == b.cols; }

AddNorm norm_kernel(Tensor x, const NormParams& params, Tensor out) {
  return {rows_of(x), {}, rows_of(out), 0.0f, row_norm_of(params, x.cols)};
}

}  // namespace

void CudaOps::gather_outputs(Tensor x, Tensor out) {
  PENSTOCK_CHECK(out.rows == shape_.outputs && out.cols == x.cols);
  launch(CopyRows{rows_of(x), rows_of(out), batch()}, a_thread_per_element<CopyRows>(out));
}

void CudaOps::norm(Tensor x, const NormParams& params, Tensor out) {
  PENSTOCK_CHECK(same_shape(x, out));
  launch(norm_kernel(x, params, out), a_block_per_row(x));
}

void CudaOps::add_norm(Tensor x, Tensor delta, float delta_scale, const NormParams& params,
                       Tensor out) {
  PENSTOCK_CHECK(same_shape(x, delta) && same_shape(x, out));
  AddNorm kernel = norm_kernel(x, params, out);
  kernel.delta = rows_of(delta), kernel.delta_scale = delta_scale;
  launch(kernel, a_block_per_row(x));
}

void CudaOps::add(Tensor x, Tensor delta, float delta_scale) {
  PENSTOCK_CHECK(same_shape(x, delta));
  AddNorm kernel = norm_kernel(x, {}, {});
  kernel.delta = rows_of(delta), kernel.delta_scale = delta_scale;
  launch(kernel, a_block_per_row(x));
}

void CudaOps::scale(Tensor x, float factor, float softcap) {
  launch(ScaleRows{rows_of(x), factor, softcap}, a_thread_per_element<ScaleRows>(x));
}

void CudaOps::copy(Tensor from, Tensor to) {
  PENSTOCK_CHECK(same_shape(from, to));
  launch(CopyRows{rows_of(from), rows_of(to), nullptr}, a_thread_per_element<CopyRows>(to));
}

void CudaOps::clear(Tensor x) {
  launch(CopyRows{{}, rows_of(x), nullptr}, a_thread_per_element<CopyRows>(x));
}

void CudaOps::round_int8(Tensor x) { launch(RoundInt8{rows_of(x)}, a_block_per_row(x)); }

void CudaOps::activate(Tensor x, const ActivationFunction& f) {
  launch(ActivateRows{rows_of(x), {}, rows_of(x), f}, a_thread_per_element<ActivateRows>(x));
}

void CudaOps::activate_mul(Tensor gate, Tensor up, const ActivationFunction& f, Tensor out) {
  PENSTOCK_CHECK(same_shape(gate, up) && same_shape(gate, out));
  launch(ActivateRows{rows_of(gate), rows_of(up), rows_of(out), f},
         a_thread_per_element<ActivateRows>(gate));
}

void CudaOps::gate_rows(Tensor x, Tensor gate, Activation f) {
  PENSTOCK_CHECK(x.rows == gate.rows && gate.cols == 1);
  launch(MultiplyRows{rows_of(x), rows_of(gate), MultiplyRows::How::kGate, f},
         a_thread_per_element<MultiplyRows>(x));
}

void CudaOps::multiply(Tensor x, Tensor by) {
  PENSTOCK_CHECK(same_shape(x, by));
  launch(MultiplyRows{rows_of(x), rows_of(by), MultiplyRows::How::kElements},
         a_thread_per_element<MultiplyRows>(x));
}

void CudaOps::scale_columns(Tensor x, const Vector& by) {
  PENSTOCK_CHECK(x.cols == by.size());
  const Rows row{const_cast<float*>(device_data(&by)), 0, 1, by.size()};
  launch(MultiplyRows{rows_of(x), row, MultiplyRows::How::kColumns},
         a_thread_per_element<MultiplyRows>(x));
}

void CudaOps::add_mixed(Tensor from, Tensor by, int width, Tensor to) {
  const int n_from = from.cols / width, n_to = to.cols / width;
  PENSTOCK_CHECK(from.cols == n_from * width && to.cols == n_to * width &&
                 by.cols == n_from * n_to);
  PENSTOCK_CHECK(from.rows == to.rows && from.rows == by.rows);
  launch(AddMixed{rows_of(from), rows_of(by), rows_of(to), width},
         a_thread_per_element<AddMixed>(to));
}

void CudaOps::match_magnitude(Tensor x, Tensor like, float least) {
  PENSTOCK_CHECK(x.rows == like.rows);
  launch(MatchMagnitude{rows_of(x), rows_of(like), least}, a_block_per_row(x));
}

void CudaOps::keep_above(Tensor x, float deviations) {
  launch(KeepAbove{rows_of(x), deviations}, a_block_per_row(x));
}

void CudaOps::put_given(Tensor x) {
  launch(TakeGiven{rows_of(x), batch(), 0}, a_thread_per_element<TakeGiven>(x));
}

void CudaOps::add_given(int level, Tensor x) {
  PENSTOCK_CHECK(level < host_batch_.given_levels);
  launch(TakeGiven{rows_of(x), batch(), level}, a_thread_per_element<TakeGiven>(x));
}

void CudaOps::scale_by_position(Tensor x, const PositionScale& scale) {
  launch(ScaleByPosition{rows_of(x), batch(), scale.beta, scale.period, scale.offset, scale.smooth},
         a_thread_per_element<ScaleByPosition>(x));
}

}  // namespace penstock::cuda
