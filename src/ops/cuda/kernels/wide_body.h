// The body of WideProduct (kernels/wide_product.h), included by .cu files that instantiate it.
#pragma once
#include "ops/cuda/kernels/tile_product.h"
#include "ops/cuda/kernels/unit_codes.h"
#include "ops/cuda/kernels/warpgroup.h"
#include "ops/cuda/kernels/wide_product.h"

namespace penstock::cuda {

// A lane's weights of a unit, rounded to BF16. Levels are integers around the middle one, so that
// rounding scale and offset to BF16 loses little: scale * (level - zero) + offset = scale * (level
// - middle) + (offset + scale * (middle - zero)).
template <StreamCoding Of>
class LaneWeights {
  using C = typename CodingOf<Of>::Type;
  static constexpr int kSteps = C::kGroup / 16;  // steps per group
  static constexpr float kMiddle = static_cast<float>(1 << (C::kBits - 1));
  UnitCodes<C> codes_;
  UnitScales<C> scales_;
  float middle_;
  uint32_t scale_[2], offset_[2];

 public:
  PENSTOCK_DEVICE LaneWeights(const Thread& t, const WeightOnDevice& w, const std::byte* unit,
                              const std::byte*)
      : codes_(unit, t.lane(),
               bf16_pair(-kMiddle - UnitCodes<C>::kOver, -kMiddle - UnitCodes<C>::kOver)),
        scales_(unit, t.lane() / 4, w.unit),
        middle_(w.first_level + kMiddle) {}
  // Returns the A fragment of step s. REQUIRES: called with increasing s, from 0 on.
  PENSTOCK_DEVICE void fragment(int s, uint32_t (&a)[4]) {
    for (int half = 0; half < 2 && s % kSteps == 0; ++half) {
      const GroupScale of = scales_.at(half, s / kSteps);
      const float offset = fmaf(of.scale, middle_ - of.zero, of.offset);
      scale_[half] = bf16_pair(of.scale, of.scale), offset_[half] = bf16_pair(offset, offset);
    }
    for (int i = 0; i < 4; ++i)
      a[i] = multiply_add_bf16_pairs(codes_.pair(s, i), scale_[i & 1], offset_[i & 1]);
  }
};

// A lane's weights of a unit as integers, exact in BF16, and what is applied to their sums: value =
// scale * number + offset.
template <StreamCoding Of>
class LaneNumbers {
  using C = typename CodingOf<Of>::Type;
  static constexpr bool kShifted = C::kOffsets || C::kZeros;
  static constexpr float kMiddle = static_cast<float>(1 << (C::kBits - 1));
  UnitCodes<C> codes_;
  UnitScales<C> scales_;
  float middle_;

 public:
  // number of accumulations per unit: groups of inputs with one scale, at least two
  static constexpr int kFolds = C::kGroups > 2 ? C::kGroups : 2;
  PENSTOCK_DEVICE LaneNumbers(const Thread& t, const WeightOnDevice& w, const std::byte* unit)
      : codes_(unit, t.lane(), less(w)),
        scales_(unit, t.lane() / 4, w.unit),
        middle_(w.first_level + kMiddle) {}
  PENSTOCK_DEVICE void fragment(int s, uint32_t (&a)[4]) const {
    for (int i = 0; i < 4; ++i) a[i] = codes_.pair(s, i);
  }
  PENSTOCK_DEVICE GroupScale scale(int half, int fold) const {
    GroupScale of = scales_.at(half, fold * C::kGroups / kFolds);
    of.offset = kShifted ? fmaf(of.scale, middle_ - of.zero, of.offset) : 0.0f;
    return of;
  }

 private:
  static PENSTOCK_DEVICE uint32_t less(const WeightOnDevice& w) {
    const float first = (kShifted ? -kMiddle : w.first_level) - UnitCodes<C>::kOver;
    return bf16_pair(first, first);
  }
};

// A lane's weights of a unit with any codes, looked up in a table of BF16 levels.
class LaneTable {
  const WeightOnDevice& w_;
  const std::byte *unit_, *factors_;
  const uint16_t* levels_;
  int lane_;

 public:
  PENSTOCK_DEVICE LaneTable(const Thread& t, const WeightOnDevice& w, const std::byte* unit,
                            const std::byte* levels)
      : w_(w),
        unit_(unit),
        factors_(unit + w.unit_bytes),
        levels_(reinterpret_cast<const uint16_t*>(levels)),
        lane_(t.lane()) {}
  PENSTOCK_DEVICE void fragment(int s, uint32_t (&a)[4]) {
    uint32_t rest[4];
    fragments(s, a, rest);
  }
  // Returns the A fragment of step s, and that of the rounding errors.
  PENSTOCK_DEVICE void fragments(int s, uint32_t (&a)[4], uint32_t (&rest)[4]) {
    for (int half = 0; half < 2; ++half) {
      const GroupScale of =
          group_scale(w_, unit_, factors_, lane_ / 4 + 8 * half, 16 * s / w_.group);
      const float offset = fmaf(-of.scale, of.zero, of.offset);
      for (int i = half; i < 4; i += 2) {
        const uint32_t codes = code_pair(unit_, w_.bits, lane_, s, i);
        const SplitPair pair =
            split_pair(fmaf(of.scale, bf16_to_float(levels_[codes & 0xffffu]), offset),
                       fmaf(of.scale, bf16_to_float(levels_[codes >> 16]), offset));
        a[i] = pair.hi, rest[i] = pair.lo;
      }
    }
  }
};

// Copies a block's part of a unit to a stage of shared memory: tiles of inputs, then weights.
template <class K, int Tokens, StreamCoding Of, int Parts>
class StageFiller {
  static constexpr int kRows = K::kThreads / 8;  // rows of BF16 copied at once
  const std::byte *input_, *weight_ = nullptr, *factors_ = nullptr;
  int64_t part_bytes_;
  const std::byte* rows_[4];  // BF16: start of the rows that the thread copies

 public:
  // first: the block's first output; with two weights, of each.
  PENSTOCK_DEVICE StageFiller(const Thread& t, const K& k, int first) {
    const WeightOnDevice& w = k.weight_of(t.shuffle(t.warp(), 0));
    const int warp = K::kWeights == 2 ? t.warp() % 4 : t.warp();
    input_ = k.inputs + static_cast<int64_t>(t.x) * Tokens * kTileRowBytes + t.index * 16;
    part_bytes_ = static_cast<int64_t>(k.padded_tokens) * kTileRowBytes;
    const int last_tile = (w.rows + 15) / 16 - 1;
    if constexpr (K::kFloats) {
      for (int i = 0; i < 4; ++i) {  // rows after the last read the last; results are unused
        const int row = first + t.index / 8 + kRows * (K::kWeights == 2 ? i % 2 : i);
        rows_[i] =
            (K::kWeights == 2 && i >= 2 ? k.weight_of(4) : k.w).data + t.index % 8 * 16 +
            int64_t{2} * w.padded_cols * (row < last_tile * 16 + 15 ? row : last_tile * 16 + 15);
      }
    } else {
      const int tile = first / 16 + warp;
      weight_ = w.unit_at(tile < last_tile ? tile : last_tile, 0) + t.lane() * 16;
      factors_ = w.factors_of(tile < last_tile ? tile : last_tile, 0) + t.lane() * 16;
    }
  }
  PENSTOCK_DEVICE void bring(const Thread& t, const K& k, int unit, std::byte* stage) const {
    const WeightOnDevice& w = k.w;
    constexpr int kBytes = Tokens * kTileRowBytes, kAtOnce = K::kThreads * 16;
#pragma unroll
    for (int part = 0; part < Parts; ++part) {
      const std::byte* const from = input_ + (int64_t{unit} * Parts + part) * part_bytes_;
#pragma unroll
      for (int at = 0; at < kBytes; at += kAtOnce)
        if (kBytes % kAtOnce == 0 || at + t.index * 16 < kBytes)
          t.copy_ahead(stage + part * kBytes + at + t.index * 16, from + at);
    }
    if constexpr (K::kHasSums) {
      constexpr int kPieces = Tokens / 4;  // pieces of half a unit
      const int half = t.index / kPieces, at = t.index % kPieces * 4;
      if (half < 2) {
        const float* const from =
            k.input_sums + (int64_t{2} * unit + half) * k.padded_tokens + t.x * Tokens + at;
        t.copy_ahead(stage + K::kSumsAt + (half * Tokens + at) * 4,
                     reinterpret_cast<const std::byte*>(from));
      }
    }
    std::byte* const weights = stage + K::kWeightsAt;
    if constexpr (K::kFloats) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        t.copy_ahead(weights + tile_piece(t.index / 8 + kRows * i, t.index % 8),
                     rows_[i] + unit * 128);
    } else {
      std::byte* const to = weights + t.warp() * K::kTileBytes + t.lane() * 16;
      const int bytes = unit_bytes(w), factor_bytes = factor_bytes_of(w);
      const std::byte* const codes = weight_ + static_cast<int64_t>(unit) * bytes;
#pragma unroll
      for (int at = 0; at < K::kTileBytes; at += kWarp * 16)
        if (at + t.lane() * 16 < bytes) t.copy_ahead(to + at, codes + at);
      if (t.lane() * 16 < factor_bytes)
        t.copy_ahead(to + bytes, factors_ + unit / 4 * factor_bytes);
    }
  }

 private:
  static PENSTOCK_DEVICE int unit_bytes(const WeightOnDevice& w) {
    if constexpr (Of == StreamCoding::kNone) return w.unit_bytes;
    return CodingOf < Of == StreamCoding::kNone ? StreamCoding::kHalf4 : Of > ::Type::kUnitBytes;
  }
  static PENSTOCK_DEVICE int factor_bytes_of(const WeightOnDevice& w) {
    if constexpr (Of == StreamCoding::kNone) return w.factor_bytes();
    return CodingOf < Of == StreamCoding::kNone ? StreamCoding::kHalf4 : Of > ::Type::kFactorBytes;
  }
};

// total += a unit of codes times its inputs in two parts: integers are multiplied by wgmma, and
// each group's scale is applied to its sums.
template <StreamCoding Of, int kHalfTokens>
PENSTOCK_DEVICE void fold_unit(const Thread& t, const WeightOnDevice& w, const std::byte* unit,
                               const std::byte* inputs, const std::byte* sums,
                               float (&total)[kHalfTokens]) {
  using Numbers = LaneNumbers<Of>;
  constexpr int kTokens = 2 * kHalfTokens, kFolds = Numbers::kFolds, kSteps = 4 / kFolds;
  constexpr bool kHasSums = WideProduct<kTokens, Of, 2>::kHasSums;
  const Numbers mine(t, w, unit);
  uint32_t a[2][kSteps][4];
  float part[2][kHalfTokens];
#pragma unroll
  for (int fold = 0; fold <= kFolds; ++fold) {
    if (fold < kFolds) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) mine.fragment(fold * kSteps + s, a[fold % 2][s]);
      begin_wgmma();
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        wgmma<kTokens>(t, part[fold % 2], a[fold % 2][s], inputs + kTokens * kTileRowBytes,
                       fold * kSteps + s, s > 0);
        wgmma<kTokens>(t, part[fold % 2], a[fold % 2][s], inputs, fold * kSteps + s, true);
      }
      end_wgmma();
    }
    if (fold == 0) continue;
    fold < kFolds ? wait_for_wgmma<1>() : wait_for_wgmma<0>();
    const int done = fold - 1;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const GroupScale of = mine.scale(half, done);
#pragma unroll
      for (int n = 0; n < kTokens / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& sum = total[4 * n + 2 * half + j];
          sum = fmaf(of.scale, part[done % 2][4 * n + 2 * half + j], sum);
          if constexpr (kHasSums)
            sum = fmaf(
                of.offset,
                load<float>(sums, done * 2 / kFolds * kTokens + 8 * n + 2 * (t.lane() % 4) + j),
                sum);
        }
      }
    }
  }
}

// Multiplies units while later ones are copied. The wgmma that reads a unit has completed at the
// sync two units later (for codes in two parts, at the next sync); the unit's stage is refilled
// after that sync.
template <int Tokens, StreamCoding Of, int Parts, class K>
PENSTOCK_DEVICE void multiply_units(const Thread& t, const K& k, int first_output, int begin,
                                    int end, float (&total)[Tokens / 2]) {
  constexpr int kStages = K::kStages, kStageBytes = K::kStageBytes, kAhead = K::kAhead,
                kWeightsAt = K::kWeightsAt, kTileBytes = K::kTileBytes, kSumsAt = K::kSumsAt;
  constexpr bool kFolds = K::kFolds, kFloats = K::kFloats;
  const WeightOnDevice& w = k.weight_of(t.shuffle(t.warp(), 0));
  constexpr int kPartBytes = Tokens * kTileRowBytes;
  std::byte* const stages = first_tile(t);
  std::byte* const levels = stages + K::kLevelsAt;
  if constexpr (Of == StreamCoding::kNone)
    load_levels<K::kThreads>(t, w, reinterpret_cast<uint16_t*>(levels));
  const StageFiller<K, Tokens, Of, Parts> filler(t, k, first_output);
  const auto bring = [&](int unit) {
    if (unit < end) filler.bring(t, k, unit, stages + unit % kStages * kStageBytes);
    t.end_copies();
  };
  for (int unit = begin; unit < begin + kAhead; ++unit) bring(unit);
  if constexpr (kFolds)
    for (float& sum : total) sum = 0.0f;
  uint32_t a[4][4];
  for (int unit = begin; unit < end; ++unit) {
    t.wait_for_copies<kAhead - 1>();
    show_wgmma();
    t.sync();
    bring(unit + kAhead);
    const std::byte* const stage = stages + unit % kStages * kStageBytes;
    const std::byte* const weights = stage + kWeightsAt;
    const bool later = unit > begin;
    if constexpr (kFloats) {
      constexpr TileNumbers kNumbers =
          Of == StreamCoding::kF16 ? TileNumbers::kF16 : TileNumbers::kBF16;
      const std::byte* const rows = weights + t.shuffle(t.warp(), 0) / 4 * 64 * kTileRowBytes;
      begin_wgmma();
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        if constexpr (Parts == 2)
          wgmma<Tokens, kNumbers>(t, total, rows, stage + kPartBytes, s, later || s > 0);
        wgmma<Tokens, kNumbers>(t, total, rows, stage, s, Parts == 2 || later || s > 0);
      }
      end_wgmma();
      wait_for_wgmma<1>();
    } else if constexpr (Of == StreamCoding::kNone) {  // waits: not straight-line code
      LaneTable mine(t, w, weights + t.warp() * kTileBytes, levels);
      uint32_t rest[4][4];
      wait_for_wgmma<0>();
#pragma unroll
      for (int s = 0; s < 4; ++s) mine.fragments(s, a[s], rest[s]);
      begin_wgmma();
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        if constexpr (Parts == 2) {
          wgmma<Tokens>(t, total, rest[s], stage, s, later || s > 0);
          wgmma<Tokens>(t, total, a[s], stage + kPartBytes, s, true);
        }
        wgmma<Tokens>(t, total, a[s], stage, s, Parts == 2 || later || s > 0);
      }
      end_wgmma();
    } else if constexpr (kFolds) {
      fold_unit<Of>(t, w, weights + t.warp() * kTileBytes, stage, stage + kSumsAt, total);
    } else {
      LaneWeights<Of> mine(t, w, weights + t.warp() * kTileBytes, levels);
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        wait_for_wgmma<3>();
        mine.fragment(s, a[s]);
        begin_wgmma();
        wgmma<Tokens>(t, total, a[s], stage, s, later || s > 0);
        end_wgmma();
      }
    }
  }
  wait_for_wgmma<0>();
}

template <int Tokens, StreamCoding Of, int Parts>
PENSTOCK_BODY void WideProduct<Tokens, Of, Parts>::operator()(const Thread& t) const {
#if defined(__CUDA_ARCH__) && !defined(PENSTOCK_WGMMA)
  // larger blocks are never launched without wgmma
  if constexpr (Tokens * Parts > 64) return;
#endif
  const int split = t.y % n_splits, first_output = t.y / n_splits * kOutputs;
  float total[Tokens / 2];
  multiply_units<Tokens, Of, Parts>(t, *this, first_output, w.n_units() * split / n_splits,
                                    w.n_units() * (split + 1) / n_splits, total);
  const int first_token = t.x * Tokens + 2 * (t.lane() % 4), n_left = x.rows - first_token;
  const bool whole = split_sums == nullptr;
  const int64_t stride = whole ? out.stride : w.rows;
  float* const to =
      whole ? out.row(first_token) : split_sums + (int64_t{split} * x.rows + first_token) * stride;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_output + t.warp() * 16 + t.lane() / 4 + 8 * half;
    if (row >= w.rows) continue;
    const float add = whole && bias != nullptr ? bias[row] : 0.0f;
    float* at = to + row;
#pragma unroll
    for (int n = 0; n < Tokens / 8; ++n, at += 8 * stride) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (8 * n + j >= n_left) continue;
        float sum = total[4 * n + 2 * half + j];
        if constexpr (Of == StreamCoding::kF16) sum *= token_scales[first_token + 8 * n + j];
        at[j * stride] = sum + add;
      }
    }
  }
}

}  // namespace penstock::cuda
