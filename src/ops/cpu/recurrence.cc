#include "ops/cpu/recurrence.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/half.h"
#include "kernels/recurrence_kernels.h"
#include "kernels/vector_kernels.h"
#include "ops/cpu/host_tensor.h"
#include "ops/cpu/scan_steps.h"
#include "ops/cpu/state_runs.h"

namespace penstock {
namespace {

// Channels that are convolved together: their inputs and sums stay in the first cache.
constexpr int kChannels = 256;

float to_float(float value) { return value; }
void put(float value, float& to) { to = value; }
void put(float value, BFloat16& to) { to = to_bfloat16(value); }

// Channels [first, first + n) of one sequence, whose state is of type T.
template <class T>
struct ConvPart {
  Tensor x, out;               // the step's tokens of the sequence
  const float *weight, *bias;  // of channel `first`; bias may be null
  T* tail;                     // likewise; the inputs of the taps - 1 tokens before, a row each
  int first, n, taps, stride;  // stride: between rows of weights and of the tail
  Tensor of_token = {};        // ConvParams::of_token of these tokens

  // f(inputs of the token at t), which may be before the step's.
  template <class F>
  void with_input(int t, F&& f) const {
    t >= 0 ? f(static_cast<const float*>(f32(x, t)) + first)
           : f(static_cast<const T*>(tail) + static_cast<ptrdiff_t>(taps - 1 + t) * stride);
  }
};

template <class T>
void convolve(const ConvPart<T>& part) {
  for (int t = 0; t < part.x.rows; ++t) {
    float* const to = f32(part.out, t) + part.first;
    for (int c = 0; c < part.n; ++c) to[c] = part.bias != nullptr ? part.bias[c] : 0.0f;
    for (int k = 0; k < part.taps; ++k) {
      const float* const weight = part.weight + static_cast<ptrdiff_t>(k) * part.stride;
      part.with_input(t - part.taps + 1 + k, [&](const auto* from) {
        for (int c = 0; c < part.n; ++c) to[c] += weight[c] * to_float(from[c]);
      });
      if (part.of_token.cols == 0) continue;
      const int of_group = part.stride / (part.of_token.cols / part.taps);
      const float* const more = f32(part.of_token, t) + part.taps - 1 - k;
      part.with_input(t - part.taps + 1 + k, [&](const auto* from) {
        for (int c = 0; c < part.n; ++c)
          to[c] += more[static_cast<ptrdiff_t>((part.first + c) / of_group) * part.taps] *
                   to_float(from[c]);
      });
    }
  }
}

// The tail after the step. Row by row from the oldest, each from one that is younger.
template <class T>
void keep_tail(const ConvPart<T>& part) {
  for (int r = 0; r + 1 < part.taps; ++r) {
    T* const to = part.tail + static_cast<ptrdiff_t>(r) * part.stride;
    part.with_input(part.x.rows - part.taps + 1 + r, [&](const auto* from) {
      for (int c = 0; c < part.n; ++c) put(to_float(from[c]), to[c]);
    });
  }
}

template <class T>
void causal_conv(const RecurrenceContext& context, Tensor x, const ConvParams& params, Tensor out) {
  const int channels = x.cols, n_parts = (channels + kChannels - 1) / kChannels;
  const Batch& batch = context.batch;
  const KvView& states = batch.kv[static_cast<size_t>(context.cache.spec().state_group())];
  const float *weight = data_of(params.weight), *bias = data_of(params.bias);
  const bool by_token = context.batch_invariant && !std::is_same_v<T, float>;
  context.pool.for_ranges(
      int64_t{batch.n_seqs()} * n_parts, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          const auto s = static_cast<size_t>(i / n_parts);
          const int first = static_cast<int>(i % n_parts) * kChannels,
                    n = std::min(kChannels, channels - first);
          for_each_run(batch, states, s, by_token, [&](const StateRun& run) {
            T* tail = nullptr;
            for (int r = params.taps - 2; r >= 0; --r)
              tail = begin_state<T>(context.cache, params.layer, run,
                                    params.state_offset + int64_t{r} * channels + first, n);
            const ConvPart<T> part{
                x.row_range(run.first, run.n),
                out.row_range(run.first, run.n),
                weight + first,
                bias != nullptr ? bias + first : nullptr,
                tail,
                first,
                n,
                params.taps,
                channels,
                params.of_token.cols > 0 ? params.of_token.row_range(run.first, run.n) : Tensor()};
            convolve(part);
            keep_tail(part);
          });
        }
      });
}

}  // namespace

void cpu_causal_conv(const RecurrenceContext& context, Tensor x, const ConvParams& params,
                     Tensor out) {
  PENSTOCK_CHECK(params.weight->size() == params.taps * x.cols && out.cols == x.cols &&
                 out.data != x.data);
  context.cache.spec().state_dtype == StateDType::kF32
      ? causal_conv<float>(context, x, params, out)
      : causal_conv<BFloat16>(context, x, params, out);
}

namespace {

// Channels of one sequence's keys and scores, and of what becomes of them.
template <class T>
struct PoolPart {
  // The same channels of both; of overlapping blocks those of the first half, and of the second.
  ConvPart<T> keys[2], scores[2];
  int pool, first_index;  // index of the first token in its sequence

  // Keys and scores of tap k of `taps`.
  const ConvPart<T>& key_of(int k, int taps) const { return keys[half_of(k, taps)]; }
  const ConvPart<T>& score_of(int k, int taps) const { return scores[half_of(k, taps)]; }

 private:
  int half_of(int k, int taps) const { return taps > pool && k >= pool ? 1 : 0; }
};

// Writes the keys of blocks that end with a token of the part, and zeros for the others.
template <class T>
void pool_part(const PoolPart<T>& part, int taps) {
  const int n = part.keys[0].n;
  float most[kChannels], sum[kChannels], weights[kChannels];
  for (int t = 0; t < part.keys[0].x.rows; ++t) {
    float* const to = f32(part.keys[0].out, t) + part.keys[0].first;
    std::fill_n(to, n, 0.0f);
    const int index = part.first_index + t;
    if ((index + 1) % part.pool != 0) continue;
    const int first_tap = std::max(0, taps - 1 - index);  // nothing is before the sequence
    const auto scored = [&](int k, auto&& f) {
      const ConvPart<T>& scores = part.score_of(k, taps);
      const float* const place =
          scores.weight + static_cast<ptrdiff_t>(k % part.pool) * scores.stride;
      scores.with_input(t - taps + 1 + k, [&](const auto* from) {
        for (int c = 0; c < n; ++c) f(c, to_float(from[c]) + place[c]);
      });
    };
    std::fill_n(most, n, -std::numeric_limits<float>::infinity());
    for (int k = first_tap; k < taps; ++k)
      scored(k, [&](int c, float score) { most[c] = std::max(most[c], score); });
    std::fill_n(sum, n, 0.0f);
    for (int k = first_tap; k < taps; ++k) {
      scored(k, [&](int c, float score) { sum[c] += weights[c] = std::exp(score - most[c]); });
      part.key_of(k, taps).with_input(t - taps + 1 + k, [&](const auto* from) {
        for (int c = 0; c < n; ++c) to[c] += weights[c] * to_float(from[c]);
      });
    }
    for (int c = 0; c < n; ++c) to[c] /= sum[c];
  }
}

template <class T>
void pool_keys(const RecurrenceContext& context, Tensor keys, Tensor scores,
               const PoolParams& params, Tensor out) {
  const int channels = out.cols, width = keys.cols, taps = params.taps();
  const int n_parts = (channels + kChannels - 1) / kChannels, n_halves = width / channels;
  const Batch& batch = context.batch;
  const KvView& states = batch.kv[static_cast<size_t>(context.cache.spec().state_group())];
  const bool by_token = context.batch_invariant && !std::is_same_v<T, float>;
  context.pool.for_ranges(
      int64_t{batch.n_seqs()} * n_parts, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          const auto s = static_cast<size_t>(i / n_parts);
          const int first = static_cast<int>(i % n_parts) * kChannels,
                    n = std::min(kChannels, channels - first);
          for_each_run(batch, states, s, by_token, [&](const StateRun& run) {
            PoolPart<T> part{};
            part.pool = params.pool;
            part.first_index = batch.seq_lens[s] - batch.seq_offsets[s + 1] + run.first;
            for (int half = 0; half < n_halves; ++half) {
              const int at = half * channels + first;
              T* tail = nullptr;  // keys of the tokens before, and their scores behind
              for (int r = 2 * (taps - 1) - 1; r >= 0; --r)
                tail = begin_state<T>(context.cache, params.layer, run,
                                      params.state_offset + int64_t{r} * width + at, n);
              const auto of = [&](Tensor x, T* own) {
                return ConvPart<T>{x.row_range(run.first, run.n),
                                   out.row_range(run.first, run.n),
                                   data_of(params.places) + at,
                                   nullptr,
                                   own,
                                   at,
                                   n,
                                   taps,
                                   width};
              };
              part.keys[half] = of(keys, tail);
              part.scores[half] = of(scores, tail + int64_t{taps - 1} * width);
            }
            pool_part(part, taps);
            for (int half = 0; half < n_halves; ++half) {
              keep_tail(part.keys[half]);
              keep_tail(part.scores[half]);
            }
          });
        }
      });
}

}  // namespace

void cpu_pool_keys(const RecurrenceContext& context, Tensor keys, Tensor scores,
                   const PoolParams& params, Tensor out) {
  PENSTOCK_CHECK(params.pool > 1 && params.places->size() == params.pool * keys.cols &&
                 scores.cols == keys.cols && keys.cols == params.width(out.cols) &&
                 out.data != keys.data && out.data != scores.data);
  context.cache.spec().state_dtype == StateDType::kF32
      ? pool_keys<float>(context, keys, scores, params, out)
      : pool_keys<BFloat16>(context, keys, scores, params, out);
}

namespace {

constexpr float kUnitEps = 1e-6f;  // beside the sum of squares

// Queries and keys at unit length, the queries divided by sqrt(key_dim); a becomes the decay, b
// what weighs the update.
void prepare_token(const VectorKernels& kernels, const DeltaTensors& tensors,
                   const DeltaParams& params, int t) {
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
    const float lowest = params.lowest_log_decay;
    for (int i = h * each; i < (h + 1) * each; ++i) {
      const float x = a[i] + bias[i];
      a[i] = std::exp(lowest < 0 ? lowest / (1.0f + std::exp(rate[h] * x)) : rate[h] * softplus(x));
    }
    b[h] = params.write_factor / (1.0f + std::exp(-b[h]));
  }
}

int key_head_of(const DeltaParams& params, int value_head) {
  return params.key_heads_in_turn ? value_head % params.n_key_heads
                                  : value_head / (params.n_value_heads / params.n_key_heads);
}

// One strip of a value head's features, of a sequence's n_tokens tokens from row `first` on.
DeltaStrip strip_of(const DeltaTensors& tensors, const DeltaParams& params, int first, int n_tokens,
                    int head, int feature) {
  const int key = key_head_of(params, head) * params.key_dim,
            keys = params.n_key_heads * params.key_dim;
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

// States of a sequence: n_heads matrices [key_dim, value_dim], each as strips of kDeltaLanes
// columns.
struct StateShape {
  int n_heads, key_dim, value_dim, layer;
  int64_t offset;
};

static_assert(static_cast<int>(StateDType::kF32) == static_cast<int>(StateFormat::kF32));
static_assert(static_cast<int>(StateDType::kBF16) == static_cast<int>(StateFormat::kBF16));

int place_of(int i) { return i / kDeltaLanes * kDeltaLanes + bf16_place(i % kDeltaLanes); }
void widen(const BFloat16* state, int n_values, float* wide) {
  for (int i = 0; i < n_values; ++i) wide[i] = to_float(state[place_of(i)]);
}
void narrow(const float* wide, int n_values, BFloat16* state) {
  for (int i = 0; i < n_values; ++i) state[place_of(i)] = to_bfloat16(wide[i]);
}

// Computes several tokens of a strip with a BF16 state by an F32 kernel; `wide` holds the state as
// F32 meanwhile.
void scan_widened(DeltaStrip strip, RecurrenceKernels::Kernel kernel, int n_values, float* wide) {
  auto* const state = static_cast<BFloat16*>(strip.state);
  widen(state, n_values, wide);
  strip.state = wide;
  kernel(strip);
  narrow(wide, n_values, state);
}

struct RuleKernels {
  const RecurrenceKernels::Kernel (&by_token)[kStateFormats];
  const RecurrenceKernels::Chunks* chunks;  // null: all runs are computed token by token
  bool by_key;                              // then heads do not share what chunks.keys makes
};

// The recurrence of a step over all states of its sequences. make(run, head, first feature) returns
// the strip of a run's tokens.
template <class Make>
class StepScan {
 public:
  StepScan(const RecurrenceContext& context, const StateShape& shape, const RuleKernels& kernels,
           Make make)
      : context_(context),
        shape_(shape),
        kernels_(kernels),
        make_(make),
        states_(context.batch.kv[static_cast<size_t>(context.cache.spec().state_group())]),
        f32_(context.cache.spec().state_dtype == StateDType::kF32),
        per_head_((shape.value_dim + kDeltaLanes - 1) / kDeltaLanes),
        strip_values_(shape.key_dim * kDeltaLanes) {
    context.scratch.reset();
  }

  // Runs of a chunk and more in chunks, unless a token's bits must not depend on its step; then the
  // others.
  void run() {
    const Batch& batch = context_.batch;
    int32_t* const sequences =
        context_.scratch.allocate_array<int32_t>(static_cast<size_t>(batch.n_seqs()));
    const auto in_chunks = [&](int32_t s) {
      const auto i = static_cast<size_t>(s);
      return !context_.batch_invariant && kernels_.chunks != nullptr &&
             batch.seq_offsets[i + 1] - batch.seq_offsets[i] >= kScanChunk &&
             states_.table_offsets[i + 1] - states_.table_offsets[i] == 1;
    };
    std::iota(sequences, sequences + batch.n_seqs(), 0);
    int32_t* const others = std::partition(sequences, sequences + batch.n_seqs(), in_chunks);
    scan_in_chunks(sequences, static_cast<int>(others - sequences));
    scan_by_token(others, static_cast<int>(sequences + batch.n_seqs() - others));
  }

 private:
  template <class Fn>
  void each_run(int32_t sequence, Fn&& f) const {
    for_each_run(context_.batch, states_, static_cast<size_t>(sequence), false, f);
  }

  // The state of strips [first, first + n) behind the run, as it is before the run.
  void* state(const StateRun& run, int first, int n) const {
    const int64_t at = shape_.offset + int64_t{first} * strip_values_,
                  values = int64_t{n} * strip_values_;
    if (f32_) return begin_state<float>(context_.cache, shape_.layer, run, at, values);
    return begin_state<BFloat16>(context_.cache, shape_.layer, run, at, values);
  }

  void scan_by_token(const int32_t* sequences, int n) {
    const RecurrenceKernels::Kernel kernel =
        kernels_.by_token[static_cast<int>(f32_ ? StateFormat::kF32 : StateFormat::kBF16)];
    const int per_sequence = shape_.n_heads * per_head_;
    float* const wide = f32_ ? nullptr : scratch(strip_values_);
    context_.pool.for_ranges(int64_t{n} * per_sequence, 4, [&](int64_t begin, int64_t end, int w) {
      for (int64_t i = begin; i < end; ++i) {
        const int part = static_cast<int>(i % per_sequence);
        each_run(sequences[i / per_sequence], [&](const StateRun& run) {
          if (run.n == 0) return;
          DeltaStrip strip = make_(run, part / per_head_, part % per_head_ * kDeltaLanes);
          strip.state = state(run, part, 1);
          if (f32_ || run.n == 1 || context_.batch_invariant) return kernel(strip);
          scan_widened(strip, kernels_.by_token[static_cast<int>(StateFormat::kF32)], strip_values_,
                       wide + static_cast<ptrdiff_t>(w) * strip_values_);
        });
      }
    });
  }

  // A worker computes its heads chunk by chunk, so that a chunk's rows are read contiguously and
  // heads share its keys.
  void scan_in_chunks(const int32_t* sequences, int n) {
    if (n == 0) return;
    const int head_values = per_head_ * strip_values_, n_workers = context_.pool.size();
    const int most = std::min(shape_.n_heads, (n * shape_.n_heads + n_workers - 1) / n_workers);
    const int wide_values = f32_ ? 0 : most * head_values;
    const auto key_values = static_cast<int>(ChunkKeys::floats(shape_.key_dim));
    float* const memory = scratch(wide_values + key_values);
    context_.pool.for_ranges(
        int64_t{n} * shape_.n_heads, 1, [&](int64_t begin, int64_t end, int w) {
          float* const keys = memory + int64_t{w} * (wide_values + key_values);
          while (begin < end) {
            const auto first = static_cast<int>(begin % shape_.n_heads);
            const int last =
                static_cast<int>(std::min<int64_t>(shape_.n_heads, first + end - begin));
            each_run(sequences[begin / shape_.n_heads], [&](const StateRun& run) {
              scan_heads(run, first, last - first, keys, keys + key_values);
            });
            begin += last - first;
          }
        });
  }

  void scan_heads(const StateRun& run, int first, int n, float* keys, float* wide) const {
    const int values = per_head_ * strip_values_;
    void* const kept = state(run, first * per_head_, n * per_head_);
    float* const states = f32_ ? static_cast<float*>(kept) : wide;
    if (!f32_) widen(static_cast<const BFloat16*>(kept), n * values, wide);
    const ChunkKeys of_keys(shape_.key_dim, keys);
    for (int t = 0; t < run.n; t += kScanChunk) {
      StateRun chunk = run;
      chunk.first += t, chunk.n = std::min(kScanChunk, run.n - t);
      const float* done = nullptr;  // the keys that are in of_keys
      for (int head = first; head < first + n; ++head) {
        DeltaStrip strip = make_(chunk, head, 0);
        strip.n_features = shape_.value_dim;
        strip.state = states + int64_t{head - first} * values;
        if (strip.k != done || kernels_.by_key) kernels_.chunks->keys(strip, of_keys);
        done = strip.k;
        kernels_.chunks->scan(strip, of_keys);
      }
    }
    if (!f32_) narrow(wide, n * values, static_cast<BFloat16*>(kept));
  }

  // Allocates n floats for each worker.
  float* scratch(int n) const {
    return context_.scratch.allocate_array<float>(static_cast<size_t>(context_.pool.size()) *
                                                  static_cast<size_t>(n));
  }

  const RecurrenceContext& context_;
  const StateShape shape_;
  const RuleKernels kernels_;
  const Make make_;
  const KvView& states_;
  const bool f32_;
  const int per_head_, strip_values_;  // strips of a head, numbers of a strip
};

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
  const RecurrenceKernels& kernels = *context.kernels.recurrence;
  const bool by_key = params.decay_by_key;
  StepScan(
      context,
      {params.n_value_heads, params.key_dim, params.value_dim, params.layer, params.state_offset},
      {by_key ? kernels.delta_rule_by_key : kernels.delta_rule,
       by_key ? &kernels.delta_rule_by_key_chunks : &kernels.delta_rule_chunks, by_key},
      [&](const StateRun& run, int head, int feature) {
        return strip_of(tensors, params, run.first, run.n, head, feature);
      })
      .run();
}

namespace {

DeltaStrip strip_of(const DeltaTensors& tensors, const StateSpaceParams& params,
                    const StateRun& run, int head, int feature) {
  const int group = head / (params.n_heads / params.n_groups),
            values = params.n_heads * params.head_dim;
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

// Strips of kDeltaLanes channels, which have one state [state_dim, n_heads] together.
void scan_channels(const RecurrenceContext& context, const DeltaTensors& tensors,
                   const StateSpaceParams& params, const float* rates) {
  const int n = params.n_heads;
  StepScan(context, {1, params.state_dim, n, params.layer, params.state_offset},
           {context.kernels.recurrence->channel_scan, nullptr, false},
           [&](const StateRun& run, int, int channel) {
             DeltaStrip strip{};
             strip.key_dim = params.state_dim;
             strip.n_features = std::min(kDeltaLanes, n - channel);
             strip.n_tokens = run.n;
             const float* const row = f32(tensors.qkv, run.first);
             strip.v = row + channel, strip.k = row + n, strip.q = strip.k + params.state_dim;
             strip.stride = tensors.qkv.row_stride;
             strip.beta = f32(tensors.b, run.first) + channel;
             strip.beta_stride = tensors.b.row_stride;
             strip.rates = rates + int64_t{channel} * params.state_dim;
             strip.out = f32(tensors.out, run.first) + channel;
             strip.out_stride = tensors.out.row_stride;
             return strip;
           })
      .run();
  const float* const skip = data_of(params.skip);
  context.pool.for_ranges(context.batch.n_tokens(), 4, [&](int64_t begin, int64_t end, int) {
    for (int t = static_cast<int>(begin); t < end; ++t) {
      float* const out = f32(tensors.out, t);
      const float* const x = f32(tensors.qkv, t);
      for (int c = 0; c < n; ++c) out[c] += skip[c] * x[c];
    }
  });
}

// Returns the rates of strips: [strip][state_dim][kDeltaLanes], zeros beyond the last channel. They
// are valid until this thread's next call, which allocates only for larger ones.
std::span<const float> rates_of_strips(ThreadPool& pool, const StateSpaceParams& params) {
  const int n_strips = (params.n_heads + kDeltaLanes - 1) / kDeltaLanes, dim = params.state_dim;
  const int64_t each = int64_t{dim} * kDeltaLanes;
  thread_local std::vector<float> kept;
  if (kept.size() < static_cast<size_t>(n_strips * each))
    kept.resize(static_cast<size_t>(n_strips * each));
  const std::span<float> rates(kept.data(), static_cast<size_t>(n_strips * each));
  const float* const from = data_of(params.rate);
  pool.for_ranges(n_strips, 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t strip = begin; strip < end; ++strip) {
      float* const to = rates.data() + strip * each;
      for (int lane = 0; lane < kDeltaLanes; ++lane) {
        const int64_t channel = strip * kDeltaLanes + lane;
        for (int i = 0; i < dim; ++i)
          to[i * kDeltaLanes + lane] = channel < params.n_heads ? from[channel * dim + i] : 0.0f;
      }
    }
  });
  return rates;
}

}  // namespace

void cpu_state_space(const RecurrenceContext& context, const DeltaTensors& tensors,
                     const StateSpaceParams& params) {
  const int values = params.n_heads * params.head_dim;
  PENSTOCK_CHECK(tensors.out.cols == values &&
                 tensors.qkv.cols == values + 2 * params.n_groups * params.state_dim &&
                 tensors.a.cols == params.n_heads && tensors.a.row_stride == tensors.b.row_stride);
  context.pool.for_ranges(context.batch.n_tokens(), 16, [&](int64_t begin, int64_t end, int) {
    for (int t = static_cast<int>(begin); t < end; ++t) {
      if (!params.gated_levels) prepare_step(tensors, params, t);
      if (params.gated_levels)
        prepare_levels(tensors, params, t, context.batch.positions[static_cast<size_t>(t)] == 0);
    }
  });
  if (params.by_channel)
    return scan_channels(context, tensors, params, rates_of_strips(context.pool, params).data());
  const RecurrenceKernels& kernels = *context.kernels.recurrence;
  StepScan(context,
           {params.n_heads, params.state_dim, params.head_dim, params.layer, params.state_offset},
           {kernels.state_space, &kernels.state_space_chunks, false},
           [&](const StateRun& run, int head, int feature) {
             return strip_of(tensors, params, run, head, feature);
           })
      .run();
}

}  // namespace penstock
