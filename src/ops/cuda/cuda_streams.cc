// Residual streams, and keys of blocks of tokens (kernels/streams.h, kernels/pool.h).
#include "ops/cuda/cuda_cache.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/kernels/pool.h"
#include "ops/cuda/kernels/streams.h"

namespace penstock::cuda {

void CudaOps::mix_streams(Tensor z, const StreamMixParams& params) {
  static_assert(MixStreams::kMostStreams == kMaxMixedStreams &&
                kMaxMixedStreams <= MixStreams::kThreads);
  const int n = params.count, n_scales = params.scale->size();
  PENSTOCK_CHECK(n > 0 && n <= kMaxMixedStreams && n_scales >= 1 && n_scales <= 3 &&
                 z.cols == (n_scales == 3 ? (2 + n) * n : n_scales * n) &&
                 params.base->size() == z.cols);
  launch(MixStreams{rows_of(z), device_data(params.scale), device_data(params.base), n, params.eps,
                    params.iterations, params.magnitude, params.write_eps},
         Grid{z.rows, 1, MixStreams::shared_bytes()});
}

void CudaOps::root_gates(Tensor a, Tensor b, float scale, Tensor out) {
  PENSTOCK_CHECK(a.rows == b.rows && a.cols == b.cols && out.rows == a.rows && out.cols == 1);
  launch(RootGates{rows_of(a), rows_of(b), rows_of(out), scale}, a_block_per_row(a));
}

void CudaOps::scale_heads_by_position(Tensor x, const Vector& slopes, const Vector& biases) {
  const int n_heads = slopes.size(), features = x.cols / n_heads;
  PENSTOCK_CHECK(x.cols == n_heads * features && biases.size() == n_heads);
  launch(ScaleHeads{rows_of(x), device_data(&slopes), device_data(&biases), features, batch()},
         a_thread_per_element<ScaleHeads>(x));
}

void CudaOps::pool_keys(Tensor keys, Tensor scores, const PoolParams& params, KvCache& cache,
                        Tensor out) {
  PENSTOCK_CHECK(params.pool > 1 && params.places->size() == params.pool * keys.cols &&
                 scores.cols == keys.cols && keys.cols == params.width(out.cols) &&
                 out.data != keys.data && out.data != scores.data);
  const PooledTokens tokens{rows_of(keys), rows_of(scores), params.taps(),
                            states_of(cache, params.layer, params.state_offset), batch()};
  launch(PoolKeys{tokens, rows_of(out), device_data(params.places), params.pool},
         a_thread_per_element<PoolKeys>(out));
  launch(KeepPooled{tokens}, a_thread_per_element<KeepPooled>(keys));
}

}  // namespace penstock::cuda
