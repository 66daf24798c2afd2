// Operations with a recurrent state (kernels/recurrence.h).
#include <algorithm>

#include "ops/cuda/cuda_cache.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/kernels/recurrence.h"
#include "ops/cuda/kernels/scan_heads.h"

namespace penstock::cuda {

// Grids have a block per row for sequences, too: every sequence has at least one token.
void CudaOps::causal_conv(Tensor x, const ConvParams& params, KvCache& cache, Tensor out) {
  PENSTOCK_CHECK(params.weight->size() == params.taps * x.cols && out.cols == x.cols &&
                 out.data != x.data);
  const States states = states_of(cache, params.layer, params.state_offset);
  launch(CausalConv{rows_of(x), rows_of(out), device_data(params.weight), device_data(params.bias),
                    params.taps, states, batch()},
         a_thread_per_element<CausalConv>(x));
}

void CudaOps::embed_ngrams(const NgramParams& params, KvCache& cache, Tensor out) {
  host_ngrams_.embed(params, states_of(cache, params.layer, params.state_offset), batch(), out);
}

void CudaOps::gated_delta(Tensor qkv, Tensor a, Tensor b, const DeltaParams& params, KvCache& cache,
                          Tensor out) {
  const int keys = params.n_key_heads * params.key_dim;
  PENSTOCK_CHECK(
      out.cols == params.n_value_heads * params.value_dim && qkv.cols == 2 * keys + out.cols &&
      a.cols == params.n_value_heads * params.decays_per_head() && b.cols == params.n_value_heads);
  launch(
      PrepareDelta{rows_of(qkv), rows_of(a), rows_of(b), device_data(params.rate),
                   device_data(params.bias), params.n_key_heads, params.key_dim,
                   params.decays_per_head(), params.write_factor, params.lowest_log_decay, batch()},
      Grid{qkv.rows});
  ScanStates scan{};
  scan.qkv = rows_of(qkv), scan.decay = rows_of(a), scan.beta = rows_of(b), scan.out = rows_of(out);
  scan.q_at = 0, scan.k_at = keys, scan.v_at = 2 * keys;
  scan.n_key_heads = params.n_key_heads, scan.n_heads = params.n_value_heads;
  scan.key_dim = params.key_dim, scan.value_dim = params.value_dim;
  scan.delta = true, scan.key_heads_in_turn = params.key_heads_in_turn;
  scan.decays_per_head = params.decays_per_head();
  scan.states = states_of(cache, params.layer, params.state_offset), scan.batch = batch();
  scan_states(scan);
}

// Of steps that are not recorded the number of sequences is known.
void CudaOps::scan_states(const ScanStates& scan) {
  const auto n_seqs = static_cast<int>(host_batch_.seq_lens.size());
  const int n = suits_graph_ ? scan.qkv.rows : std::clamp(n_seqs, 1, scan.qkv.rows);
  const auto by = [&]<class K>(const K& kernel, int shared_bytes) {
    launch(kernel, Grid{n, scan.n_heads * K::parts_of(scan.value_dim), shared_bytes});
  };
  const auto by_heads = [&]<class K>(const K& kernel) { by(kernel, K::kSharedBytes); };
  if (!suits_scan_heads(scan)) return by(scan, 0);
  if (scan.key_dim <= ScanHeads<4, 4>::kKeys) return by_heads(ScanHeads<4, 4>(scan));
  if (scan.key_dim <= ScanHeads<4, 8>::kKeys) return by_heads(ScanHeads<4, 8>(scan));
  by_heads(ScanHeads<8, 8>(scan));
}

void CudaOps::state_space(Tensor x, Tensor dt, Tensor decay, const StateSpaceParams& params,
                          KvCache& cache, Tensor out) {
  const int values = params.n_heads * params.head_dim, keys = params.n_groups * params.state_dim;
  PENSTOCK_CHECK(out.cols == values && x.cols == values + 2 * keys && dt.cols == params.n_heads);
  const bool by_channel = params.by_channel;
  launch(PrepareSteps{rows_of(dt), rows_of(decay), by_channel ? nullptr : device_data(params.rate),
                      device_data(params.bias), params.min_step, params.max_step, batch(),
                      params.gated_levels ? device_data(params.rate) : nullptr, rows_of(x)},
         Grid{x.rows});
  ScanStates scan{};
  scan.qkv = rows_of(x), scan.decay = rows_of(decay), scan.beta = rows_of(dt),
  scan.out = rows_of(out);
  scan.q_at = values + keys, scan.k_at = values, scan.v_at = 0;
  scan.n_key_heads = params.n_groups, scan.n_heads = by_channel ? 1 : params.n_heads;
  scan.key_dim = params.state_dim, scan.value_dim = by_channel ? params.n_heads : params.head_dim;
  scan.decays_per_head = 1, scan.skip = device_data(params.skip);
  scan.rates = by_channel ? device_data(params.rate) : nullptr;
  scan.states = states_of(cache, params.layer, params.state_offset), scan.batch = batch();
  scan_states(scan);
}

}  // namespace penstock::cuda
