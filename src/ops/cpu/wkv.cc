// RWKV's recurrence (WkvParams).
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "base/half.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/host_tensor.h"
#include "ops/cpu/recurrence.h"
#include "ops/cpu/state_runs.h"

namespace penstock {
namespace {

// One head of one token. Rows of the state S [dim, dim] are those of keys.
struct WkvToken {
  const float *r, *w, *k, *v;
  const float *a, *b;  // null: zeros
  const float* u;
  float *out, *bonus;
  int dim;
};

void add_times(const float* row, float factor, int n, float* to) {
  for (int j = 0; j < n; ++j) to[j] += factor * row[j];
}

// said [dim]: scratch.
void step(const WkvToken& t, const WkvParams& params, float* state, float* said) {
  constexpr float kSlowest = 0.60653066f;  // 1 / sqrt(e)
  const int dim = t.dim;
  const bool reads_before = params.reads_before;
  float share = 0.0f;
  for (int i = 0; i < dim; ++i) share += t.r[i] * t.u[i] * t.k[i];
  for (int j = 0; j < dim; ++j) t.bonus[j] = share * t.v[j];
  std::fill_n(t.out, dim, 0.0f);
  std::fill_n(said, dim, 0.0f);
  for (int i = 0; t.a != nullptr && i < dim; ++i) add_times(state + i * dim, t.a[i], dim, said);
  for (int i = 0; i < dim; ++i) {
    float* const row = state + i * dim;
    if (reads_before) add_times(row, t.r[i], dim, t.out);
    const float rate = params.by_sigmoid ? kSlowest / (1.0f + std::exp(-t.w[i])) : std::exp(t.w[i]);
    const float decay = std::exp(-rate), key = t.k[i], by = t.b != nullptr ? t.b[i] : 0.0f;
    for (int j = 0; j < dim; ++j) row[j] = decay * row[j] + key * t.v[j] + by * said[j];
    if (!reads_before) add_times(row, t.r[i], dim, t.out);
  }
}

float widened(float value) { return value; }
float widened(BFloat16 value) { return to_float(value); }
void narrow(float value, float& to) { to = value; }
void narrow(float value, BFloat16& to) { to = to_bfloat16(value); }

// The tokens of a run, of which a head has columns [at, at + dim).
template <class T>
void scan(const WkvTensors& x, const WkvParams& params, const StateRun& run, int at, T* kept,
          float* memory) {
  const int dim = params.head_dim;
  float* const state = memory;
  for (int i = 0; i < dim * dim; ++i) state[i] = widened(kept[i]);
  for (int t = run.first; t < run.first + run.n; ++t) {
    const auto of = [&](Tensor each) {
      return each.cols > 0 ? f32(each, t) + at : static_cast<float*>(nullptr);
    };
    step({of(x.r), of(x.w), of(x.k), of(x.v), of(x.a), of(x.b), data_of(params.u) + at, of(x.out),
          of(x.bonus), dim},
         params, state, memory + dim * dim);
  }
  for (int i = 0; i < dim * dim; ++i) narrow(state[i], kept[i]);
}

template <class T>
void wkv(const RecurrenceContext& context, const WkvTensors& tensors, const WkvParams& params) {
  const int dim = params.head_dim, n_heads = params.n_heads, values = dim * dim;
  const Batch& batch = context.batch;
  const KvView& states = batch.kv[static_cast<size_t>(context.cache.spec().state_group())];
  // Else the bits of a rounded state depend on where steps end.
  const bool by_token = context.batch_invariant && !std::is_same_v<T, float>;
  context.scratch.reset();
  const int each = values + dim;
  float* const memory = context.scratch.allocate_array<float>(
      static_cast<size_t>(each) * static_cast<size_t>(context.pool.size()));
  context.pool.for_ranges(
      int64_t{batch.n_seqs()} * n_heads, 1, [&](int64_t begin, int64_t end, int worker) {
        for (int64_t i = begin; i < end; ++i) {
          const auto head = static_cast<int>(i % n_heads);
          for_each_run(batch, states, static_cast<size_t>(i / n_heads), by_token,
                       [&](const StateRun& run) {
                         T* const kept =
                             begin_state<T>(context.cache, params.layer, run,
                                            params.state_offset + int64_t{head} * values, values);
                         scan(tensors, params, run, head * dim, kept,
                              memory + static_cast<ptrdiff_t>(worker) * each);
                       });
        }
      });
}

}  // namespace

void cpu_wkv(const RecurrenceContext& context, const WkvTensors& tensors, const WkvParams& params) {
  const int width = params.n_heads * params.head_dim;
  for (const Tensor& each :
       {tensors.r, tensors.w, tensors.k, tensors.v, tensors.out, tensors.bonus})
    PENSTOCK_CHECK(each.cols == width);
  PENSTOCK_CHECK(params.u->size() == width && (tensors.a.cols > 0) == (tensors.b.cols > 0));
  context.cache.spec().state_dtype == StateDType::kF32 ? wkv<float>(context, tensors, params)
                                                       : wkv<BFloat16>(context, tensors, params);
}

void CpuOps::wkv(const WkvTensors& tensors, const WkvParams& params, KvCache& cache) {
  cpu_wkv(recurrence(cache), tensors, params);
  // Rows behind the step's tokens are read by products.
  for (const Tensor& each : {tensors.out, tensors.bonus})
    for (int t = batch_.n_tokens(); t < each.rows; ++t) std::fill_n(f32(each, t), each.cols, 0.0f);
}

}  // namespace penstock
