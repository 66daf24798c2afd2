#include "ops/cpu/recurrence.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/recurrence_kernels.h"
#include "kernels/vector_kernels.h"
#include "ops/cpu/host_tensor.h"

namespace penstock {
namespace {

// Channels that are convolved together: their inputs and sums stay in the first cache.
constexpr int kChannels = 256;

// Channels [first, first + n) of one sequence.
struct ConvPart {
  Tensor x, out;               // the step's tokens of the sequence
  const float *weight, *bias;  // of channel `first`; bias may be null
  float* tail;                 // likewise; the inputs of the taps - 1 tokens before, a row each
  int first, n, taps, stride;  // stride: between rows of weights and of the tail
};

// The inputs of the token at t, which may be before the step's.
const float* input(const ConvPart& part, int t) {
  return t >= 0 ? f32(part.x, t) + part.first
                : part.tail + static_cast<ptrdiff_t>(part.taps - 1 + t) * part.stride;
}

void convolve(const ConvPart& part) {
  for (int t = 0; t < part.x.rows; ++t) {
    float* const to = f32(part.out, t) + part.first;
    for (int c = 0; c < part.n; ++c) to[c] = part.bias != nullptr ? part.bias[c] : 0.0f;
    for (int k = 0; k < part.taps; ++k) {
      const float* const from = input(part, t - part.taps + 1 + k);
      const float* const weight = part.weight + static_cast<ptrdiff_t>(k) * part.stride;
      for (int c = 0; c < part.n; ++c) to[c] += weight[c] * from[c];
    }
  }
}

// The tail after the step. Row by row from the oldest, each from one that is younger.
void keep_tail(const ConvPart& part) {
  for (int r = 0; r + 1 < part.taps; ++r) {
    const float* const from = input(part, part.x.rows - part.taps + 1 + r);
    std::copy_n(from, part.n, part.tail + static_cast<ptrdiff_t>(r) * part.stride);
  }
}

// Tokens of a sequence, `n` from row `first` of the step on, and the blocks with the state before and after them.
struct StateRun {
  int first, n;
  BlockId before, after;
  bool fresh;  // nothing is before them
};

// Calls f for runs of all of a sequence's tokens in the step: one, or one for each token where each has a state.
template <class F>
void for_each_run(const Batch& batch, const KvView& states, size_t sequence, F&& f) {
  const int first = batch.seq_offsets[sequence], n = batch.seq_offsets[sequence + 1] - first;
  const auto blocks = states.block_tables.subspan(
      static_cast<size_t>(states.table_offsets[sequence]),
      static_cast<size_t>(states.table_offsets[sequence + 1] - states.table_offsets[sequence]));
  const bool fresh = batch.seq_lens[sequence] == n;
  if (blocks.size() == 1) return f(StateRun{first, n, blocks[0], blocks[0], fresh});
  PENSTOCK_CHECK(static_cast<int>(blocks.size()) == n);
  for (int i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(i);
    f(StateRun{first + i, 1, blocks[i > 0 ? at - 1 : 0], blocks[at], fresh && i == 0});
  }
}

// What [values] of the layer's state from `offset` on are before the run, in their place after it.
float* begin_state(CpuKvCache& cache, int layer, const StateRun& run, int64_t offset, int64_t values) {
  float* const to = cache.state(layer, run.after) + offset;
  if (run.fresh) {
    std::fill_n(to, values, 0.0f);
  } else if (run.before != run.after) {
    std::copy_n(cache.state(layer, run.before) + offset, values, to);
  }
  return to;
}

}  // namespace

void cpu_causal_conv(ThreadPool& pool, const Batch& batch, Tensor x, const ConvParams& params,
                     CpuKvCache& cache, Tensor out) {
  const int channels = x.cols, n_parts = (channels + kChannels - 1) / kChannels;
  PENSTOCK_CHECK(params.weight->size() == params.taps * channels && out.cols == channels &&
                 out.data != x.data);
  const KvView& states = batch.kv[static_cast<size_t>(cache.spec().state_group())];
  const float *weight = data_of(params.weight), *bias = data_of(params.bias);
  pool.for_ranges(int64_t{batch.n_seqs()} * n_parts, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const auto s = static_cast<size_t>(i / n_parts);
      const int first = static_cast<int>(i % n_parts) * kChannels, n = std::min(kChannels, channels - first);
      for_each_run(batch, states, s, [&](const StateRun& run) {
        float* tail = nullptr;
        for (int r = params.taps - 2; r >= 0; --r)
          tail =
              begin_state(cache, params.layer, run, params.state_offset + int64_t{r} * channels + first, n);
        const ConvPart part{x.row_range(run.first, run.n),
                            out.row_range(run.first, run.n),
                            weight + first,
                            bias != nullptr ? bias + first : nullptr,
                            tail,
                            first,
                            n,
                            params.taps,
                            channels};
        convolve(part);
        keep_tail(part);
      });
    }
  });
}

namespace {

constexpr float kUnitEps = 1e-6f;  // beside the sum of squares

float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

// Queries and keys at unit length, the queries divided by sqrt(key_dim); a becomes the decay, b what weighs the update.
void prepare_token(const VectorKernels& kernels, const DeltaTensors& tensors, const DeltaParams& params,
                   int t) {
  const int dim = params.key_dim;
  const float root = 1.0f / std::sqrt(static_cast<float>(dim));
  for (int h = 0; h < 2 * params.n_key_heads; ++h) {
    float* const x = f32(tensors.qkv, t) + static_cast<ptrdiff_t>(h) * dim;
    kernels.rms_norm(x, nullptr, kUnitEps / static_cast<float>(dim), dim, x);
    kernels.scale_softcap(x, h < params.n_key_heads ? root * root : root, 0.0f, dim);
  }
  const float *rate = data_of(params.rate), *bias = data_of(params.bias);
  float *const a = f32(tensors.a, t), *const b = f32(tensors.b, t);
  const int each = params.decays_per_head();
  for (int h = 0; h < params.n_value_heads; ++h) {
    for (int i = h * each; i < (h + 1) * each; ++i) a[i] = std::exp(rate[h] * softplus(a[i] + bias[i]));
    b[h] = 1.0f / (1.0f + std::exp(-b[h]));
  }
}

int key_head_of(const DeltaParams& params, int value_head) {
  return params.key_heads_in_turn ? value_head % params.n_key_heads
                                  : value_head / (params.n_value_heads / params.n_key_heads);
}

// One strip of a value head's features, of a sequence's n_tokens tokens from row `first` on.
DeltaStrip strip_of(const DeltaTensors& tensors, const DeltaParams& params, int first, int n_tokens, int head,
                    int feature) {
  const int key = key_head_of(params, head) * params.key_dim, keys = params.n_key_heads * params.key_dim;
  const int value = head * params.value_dim + feature;
  const float* const row = f32(tensors.qkv, first);
  DeltaStrip strip{};
  strip.key_dim = params.key_dim;
  strip.n_features = std::min(kDeltaLanes, params.value_dim - feature);
  strip.n_tokens = n_tokens;
  strip.q = row + key, strip.k = row + keys + key, strip.v = row + 2 * keys + value;
  strip.stride = tensors.qkv.row_stride;
  strip.decay = f32(tensors.a, first) + head * params.decays_per_head(),
  strip.beta = f32(tensors.b, first) + head;
  strip.decay_stride = tensors.a.row_stride, strip.beta_stride = tensors.b.row_stride;
  strip.out = f32(tensors.out, first) + value, strip.out_stride = tensors.out.row_stride;
  return strip;
}

// Of every sequence so many matrices [key_dim, value_dim].
struct StateShape {
  int n_heads, key_dim, value_dim, layer;
  int64_t offset;
};

// kernel(make(run, head, first feature)) for all strips of all sequences, each with its state.
template <class Make>
void for_each_strip(const RecurrenceContext& context, const StateShape& shape, Make&& make,
                    void (*kernel)(const DeltaStrip&)) {
  const Batch& batch = context.batch;
  const KvView& states = batch.kv[static_cast<size_t>(context.cache.spec().state_group())];
  const int per_head = (shape.value_dim + kDeltaLanes - 1) / kDeltaLanes;
  const int per_sequence = shape.n_heads * per_head, strip_values = shape.key_dim * kDeltaLanes;
  context.pool.for_ranges(int64_t{batch.n_seqs()} * per_sequence, 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int part = static_cast<int>(i % per_sequence);
      for_each_run(batch, states, static_cast<size_t>(i / per_sequence), [&](const StateRun& run) {
        if (run.n == 0) return;
        DeltaStrip strip = make(run, part / per_head, part % per_head * kDeltaLanes);
        strip.state = begin_state(context.cache, shape.layer, run,
                                  shape.offset + int64_t{part} * strip_values, strip_values);
        kernel(strip);
      });
    }
  });
}

}  // namespace

void cpu_gated_delta(const RecurrenceContext& context, const DeltaTensors& tensors,
                     const DeltaParams& params) {
  static_assert(kDeltaLanes == DeltaParams::kFeatureGroup);
  const Batch& batch = context.batch;
  PENSTOCK_CHECK(tensors.out.cols == params.n_value_heads * params.value_dim &&
                 tensors.qkv.cols == 2 * params.n_key_heads * params.key_dim + tensors.out.cols &&
                 tensors.a.cols == params.n_value_heads * params.decays_per_head() &&
                 tensors.b.cols == params.n_value_heads);
  context.pool.for_ranges(batch.n_tokens(), 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t)
      prepare_token(*context.kernels.vector, tensors, params, static_cast<int>(t));
  });
  for_each_strip(
      context, {params.n_value_heads, params.key_dim, params.value_dim, params.layer, params.state_offset},
      [&](const StateRun& run, int head, int feature) {
        return strip_of(tensors, params, run.first, run.n, head, feature);
      },
      params.decay_by_key ? context.kernels.recurrence->delta_rule_by_key
                          : context.kernels.recurrence->delta_rule);
}

namespace {

// The step, and how much of the state stays.
void prepare_step(const DeltaTensors& tensors, const StateSpaceParams& params, int t) {
  const float *rate = data_of(params.rate), *bias = data_of(params.bias);
  float *const decay = f32(tensors.a, t), *const dt = f32(tensors.b, t);
  for (int h = 0; h < params.n_heads; ++h) {
    dt[h] = std::clamp(softplus(dt[h] + bias[h]), params.min_step, params.max_step);
    decay[h] = std::exp(rate[h] * dt[h]);
  }
}

DeltaStrip strip_of(const DeltaTensors& tensors, const StateSpaceParams& params, const StateRun& run,
                    int head, int feature) {
  const int group = head / (params.n_heads / params.n_groups), values = params.n_heads * params.head_dim;
  const float* const row = f32(tensors.qkv, run.first);
  DeltaStrip strip{};
  strip.key_dim = params.state_dim;
  strip.n_features = std::min(kDeltaLanes, params.head_dim - feature);
  strip.n_tokens = run.n;
  strip.v = row + head * params.head_dim + feature;
  strip.k = row + values + group * params.state_dim;
  strip.q = strip.k + params.n_groups * params.state_dim;
  strip.stride = tensors.qkv.row_stride;
  strip.decay = f32(tensors.a, run.first) + head, strip.beta = f32(tensors.b, run.first) + head;
  strip.decay_stride = strip.beta_stride = tensors.a.row_stride;
  strip.out = f32(tensors.out, run.first) + head * params.head_dim + feature;
  strip.out_stride = tensors.out.row_stride;
  strip.skip = data_of(params.skip)[head];
  return strip;
}

}  // namespace

void cpu_state_space(const RecurrenceContext& context, const DeltaTensors& tensors,
                     const StateSpaceParams& params) {
  const int values = params.n_heads * params.head_dim;
  PENSTOCK_CHECK(tensors.out.cols == values &&
                 tensors.qkv.cols == values + 2 * params.n_groups * params.state_dim &&
                 tensors.a.cols == params.n_heads && tensors.a.row_stride == tensors.b.row_stride);
  context.pool.for_ranges(context.batch.n_tokens(), 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) prepare_step(tensors, params, static_cast<int>(t));
  });
  for_each_strip(
      context, {params.n_heads, params.state_dim, params.head_dim, params.layer, params.state_offset},
      [&](const StateRun& run, int head, int feature) {
        return strip_of(tensors, params, run, head, feature);
      },
      context.kernels.recurrence->state_space);
}

}  // namespace penstock
