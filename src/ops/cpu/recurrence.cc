#include "ops/cpu/recurrence.h"

#include <algorithm>

#include "base/check.h"
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
      const int from = batch.seq_offsets[s], n_new = batch.seq_offsets[s + 1] - from;
      float* const state = cache.state(params.layer, states.block_tables[states.table_offsets[s]]);
      const ConvPart part{x.row_range(from, n_new),
                          out.row_range(from, n_new),
                          weight + first,
                          bias != nullptr ? bias + first : nullptr,
                          state + params.state_offset + first,
                          first,
                          n,
                          params.taps,
                          channels};
      if (batch.seq_lens[s] == n_new) {
        for (int r = 0; r + 1 < params.taps; ++r)
          std::fill_n(part.tail + static_cast<ptrdiff_t>(r) * channels, n, 0.0f);
      }
      convolve(part);
      keep_tail(part);
    }
  });
}

}  // namespace penstock
