#include "ops/cuda/kernels/activate.h"
#include "ops/cuda/kernels/wide_body.h"

namespace penstock::cuda {

template <int Tokens, StreamCoding Of>
PENSTOCK_BODY void WideGatedProduct<Tokens, Of>::operator()(const Thread& t) const {
#if defined(__CUDA_ARCH__) && !defined(PENSTOCK_WGMMA)
  return;  // never launched without wgmma
#endif
  using Base = WideProduct<Tokens, Of, 1>;
  constexpr int kGiven = Tokens / 4;  // sums that a thread hands to the thread of the other weight
  constexpr int kTileAt = 2 * kGiven * 128 * 4;
  static_assert(kTileAt + Tokens * kTileRowBytes <= Base::kStages * Base::kStageBytes);
  const Base& base = *this;
  const int first_output = t.y * kOutputs;
  float total[Tokens / 2];
  multiply_units<Tokens, Of, 1>(t, *this, first_output, 0, base.w.n_units(), total);

  // Two threads, of w and of up, have the same outputs and rows; each finishes half of the rows.
  t.sync();  // all warps have read the stages, whose memory is reused
  std::byte* const shared = first_tile(t);
  float* const sums = reinterpret_cast<float*>(shared);
  const bool second = t.shuffle(t.warp(), 0) >= 4;
  const int at = t.index % 128;
  float own[kGiven];
#pragma unroll
  for (int i = 0; i < kGiven; ++i) {
    own[i] = second ? total[kGiven + i] : total[i];
    sums[((second ? kGiven : 0) + i) * 128 + at] = second ? total[i] : total[kGiven + i];
  }
  t.sync();
  const int row = t.warp() % 4 * 16 + t.lane() / 4,
            place = 2 * (t.lane() % 4) + (second ? Tokens / 2 : 0);
  const int n_left = base.x.rows - t.x * Tokens;
  std::byte* const tile = shared + kTileAt;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int output = first_output + row + 8 * half;
    const float add = base.bias != nullptr ? base.bias[output] : 0.0f;
    const float add_up = up_bias != nullptr ? up_bias[output] : 0.0f;
#pragma unroll
    for (int n = 0; n < kGiven / 4; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int i = 4 * n + 2 * half + j, token = place + 8 * n + j;
        const float other = sums[((second ? 0 : kGiven) + i) * 128 + at];
        const float by = (second ? own[i] : other) + add_up;
        const float value = gated(f, (second ? other : own[i]) + add, by);
        if (token < n_left) base.out.row(t.x * Tokens + token)[output] = value;
        *reinterpret_cast<uint16_t*>(tile + tile_piece(token, row / 8 + half) + row % 8 * 2) =
            static_cast<uint16_t>(bf16_pair(value, value));
      }
    }
  }
  t.sync();
  std::byte* const to = tiles + (int64_t{t.y} * base.padded_tokens + t.x * Tokens) * kTileRowBytes;
  for (int i = t.index * 16; i < Tokens * kTileRowBytes; i += Base::kThreads * 16)
    *reinterpret_cast<Words<4>*>(to + i) = *reinterpret_cast<const Words<4>*>(tile + i);
}

#define PENSTOCK_WIDE_GATED(Of)                            \
  PENSTOCK_KERNEL(WideGatedProduct<128, StreamCoding::Of>) \
  PENSTOCK_KERNEL(WideGatedProduct<256, StreamCoding::Of>)
PENSTOCK_WIDE_GATED(kBF16)
PENSTOCK_WIDE_GATED(kHalf8)
PENSTOCK_WIDE_GATED(kHalf4)
PENSTOCK_WIDE_GATED(kWide4)
PENSTOCK_WIDE_GATED(kWide4Zeros)
PENSTOCK_WIDE_GATED(kSuper4)
PENSTOCK_WIDE_GATED(kSuper5)
PENSTOCK_WIDE_GATED(kSuper6)

}  // namespace penstock::cuda
