// Products whose weights are streamed through shared memory: every warp prefetches weights into its
// own ring buffer, so that loads of memory are always in flight.
//
// Inputs of a tile are divided into items of 128 or 256, distributed to the warps of a block
// round-robin; sums of the warps are added in the order of the warps. An input is split into two
// BF16, hi + lo, which are two columns of mma's B and so multiplied at once. Codes are multiplied
// as 128 + code, a BF16 made by one mask and one or; accumulators start at minus the excess (numbers
// of E2M1 become BF16 as they are). Each
// of the four steps (16 inputs) of a unit has its own accumulators. So one row, with columns 2 s
// and 2 s + 1 in step s, gives the same bits as among other rows, which have their columns in all
// steps.
#pragma once
#include "ops/cuda/kernels/pairs.h"
#include "ops/cuda/kernels/row_norm.h"
#include "ops/cuda/kernels/thread.h"
#include "ops/cuda/kernels/warpgroup.h"
#include "ops/cuda/kernels/weight_coding.h"
#include "ops/cuda/kernels/weight_element.h"

namespace penstock::cuda {

template <int kN>
struct alignas(4 * kN) Words {  // loaded at once
  uint32_t words[kN];
};
template <int kN>
struct alignas(4 * kN) Floats {
  float at[kN];
};

// Returns `value` opaquely: the compiler recomputes expressions of it where they are used instead
// of keeping them in registers across a loop.
PENSTOCK_DEVICE int anew(int value) {
#if defined(__CUDACC__)
  asm volatile("" : "+r"(value));
#endif
  return value;
}

// Returns (word & mask) | bits by one lop3; compilers make two instructions for two constants.
PENSTOCK_DEVICE uint32_t and_or(uint32_t word, uint32_t mask, uint32_t bits) {
#if defined(__CUDACC__)
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
  return result;
#else
  return (word & mask) | bits;
#endif
}

// --- Weights.

// Converts a signed byte exactly by one addition, four times as fast as a conversion.
PENSTOCK_DEVICE float float_of_int8(uint32_t byte) {
  return float_of_bits(0x4b000000u | ((byte & 0xffu) ^ 0x80u)) - 8388736.0f;
}

// A lane's codes of a unit, and A fragments of them: two BF16 of 128 + code in a word. BF16 has 8
// bits of precision, so its low bits are the code. Codes of 8 bits are two planes of 4 bits, of
// which the upper one counts 16 times.
template <class C>
struct LaneCodes {
  const std::byte* slot;
  int lane;
  Words<4> low, high;  // 5 and 6 bits: fewer words of high

  PENSTOCK_DEVICE LaneCodes(const std::byte* unit, int of_lane) : slot(unit), lane(of_lane) {
    if constexpr (!C::kCodes) return;
    constexpr int kPlane = 512;  // bytes of a plane of 4 bits
    low = load<Words<4>>(slot, lane);
    if constexpr (C::kBits == 5) high.words[0] = load<uint32_t>(slot + kPlane, lane);
    if constexpr (C::kBits == 6) {
      const auto two = load<Words<2>>(slot + kPlane, lane);
      high.words[0] = two.words[0], high.words[1] = two.words[1];
    }
    if constexpr (C::kBits == 8) high = load<Words<4>>(slot + kPlane, lane);
  }

  PENSTOCK_DEVICE void fragment(int plane, int s, uint32_t (&a)[4]) const {
    for (int i = 0; i < 4; ++i) {
      if constexpr (!C::kCodes) {
        const int row = lane / 4 + 8 * (i & 1);
        a[i] = load<uint32_t>(slot + tile_piece(row, 2 * s + (i >> 1)), lane % 4);
      } else if constexpr (C::kE2M1) {
        a[i] = e2m1_pair(low.words[s], i);
      } else {
        const uint32_t word = plane == 0 ? low.words[s] : high.words[s];
        a[i] = and_or(word >> 4 * i, 0x000f000fu, 0x43004300u);
        if constexpr (C::kBits == 5)
          a[i] = and_or(to_bit_4(high.words[0], 4 * s + i), 0x00100010u, a[i]);
        if constexpr (C::kBits == 6)
          a[i] = and_or(to_bit_4(high.words[s / 2], 8 * (s % 2) + 2 * i), 0x00300030u, a[i]);
      }
    }
  }

 private:
  // Two doubled numbers of E2M1, whose bits are i-th in the halves of a word: as BF16 with the same
  // exponent bits they are less by 127 powers of two, also that below the normal ones.
  static PENSTOCK_DEVICE uint32_t e2m1_pair(uint32_t word, int i) {
    const uint32_t digits = 4 * i <= 6 ? word << (6 - 4 * i) : word >> (4 * i - 6);
    const uint32_t signs = word << (12 - 4 * i) & 0x80008000u;
    return multiply_bf16_pairs(and_or(digits, 0x01c001c0u, signs), 0x7f007f00u);
  }
  static PENSTOCK_DEVICE uint32_t to_bit_4(uint32_t word, int from) {
    return from >= 4 ? word >> (from - 4) : word << (4 - from);
  }
};

// A lane's scales of an item, for rows g and g + 8 (half).
template <class C>
struct LaneScales {
  const std::byte* item;
  int g;
  float factors[2] = {1.0f, 1.0f}, offset_factors[2];

  PENSTOCK_DEVICE LaneScales(const std::byte* of_item, int of_g, float unit)
      : item(of_item), g(of_g) {
    for (int half = 0; C::kSuper && half < 2; ++half) {
      const std::byte* const of_row = item + C::kUnits * C::kUnitBytes;
      const uint32_t two =
          C::kOffsets ? load<uint32_t>(of_row, g + 8 * half) : load<uint16_t>(of_row, g + 8 * half);
      factors[half] = half_to_float(static_cast<uint16_t>(two)) * unit;
      offset_factors[half] = half_to_float(static_cast<uint16_t>(two >> 16));
    }
  }
  PENSTOCK_DEVICE float scale(int unit, int half, int group) const {
    if constexpr (!C::kCodes) return 1.0f;
    const std::byte* const scales = item + unit * C::kUnitBytes + C::kCodeBytes;
    const int at = (2 * g + half) * C::kGroups + group;
    if constexpr (C::kSuper) return factors[half] * float_of_int8(load<uint8_t>(scales, at));
    if constexpr (C::kScaleBytes == 4) return load<float>(scales, at);
    return half_to_float(load<uint16_t>(scales, at));
  }
  PENSTOCK_DEVICE float extra(int unit, int half,
                              int group) const {  // the zero, or the offset's integer
    const std::byte* const extras = item + unit * C::kUnitBytes + C::kCodeBytes + C::kExtraAt;
    const int at = (2 * g + half) * C::kGroups + group;
    return C::kSuper ? float_of_int8(load<uint8_t>(extras, at))
                     : static_cast<float>(load<int16_t>(extras, at));
  }
};

// A warp's ring buffer of items, filled from the first tile to the last tile that follows it with
// the same coding. Tile: has there(), advance(), data, n_units and coding(); warp() and n_warps(),
// of the warps that share a tile; and row_bytes() of BF16.
template <class C, class Tile>
class ItemRing {
 public:
  static constexpr int kSlots = kRingBytes / C::kItemBytes < 8 ? kRingBytes / C::kItemBytes : 8;
  static_assert(kSlots >= 2);

  PENSTOCK_DEVICE ItemRing(const Thread& t, const Tile& first, std::byte* ring)
      : ring_(ring), tile_(first), coding_(first.coding()) {
    const int lane = t.lane(), units = tile_.warp(t) * C::kUnits;
    row_bytes_ = tile_.row_bytes();
    own_ = C::kCodes ? units * C::kUnitBytes + lane * 16
                     : lane / 8 * row_bytes_ + units * 128 + lane % 8 * 16;
    enter(t);
  }
  // Fills all slots but one. copies: false if the copies were already made (by prefetch()).
  PENSTOCK_DEVICE void fill(const Thread& t, bool copies) {
    for (int i = 0; i < kSlots - 1; ++i) bring(t, copies);
  }
  // Returns the oldest item that was not taken yet, and starts the copy of the next one; valid
  // until the next take().
  PENSTOCK_DEVICE const std::byte* take(const Thread& t) {
    t.wait_for_copies<kSlots - 2>();
    // copies of all lanes are complete, and all have read the previous item
    t.sync_warp();
    const std::byte* const item = ring_ + from_;
    from_ = from_ + C::kItemBytes < kSlots * C::kItemBytes ? from_ + C::kItemBytes : 0;
    bring(t, true);
    return item;
  }

 private:
  // Goes to the warp's first item of the tile, or of the next tile that has one for the warp.
  PENSTOCK_DEVICE void enter(const Thread& t) {
    for (; tile_.there() && tile_.coding() == coding_; tile_.advance()) {
      left_ = tile_.n_units - tile_.warp(t) * C::kUnits;
      if (left_ <= 0) continue;
      units_ = tile_.data + own_;
      if constexpr (C::kSuper)
        factors_ = tile_.data + tile_.n_units * C::kUnitBytes + tile_.warp(t) * C::kFactorBytes +
                   t.lane() * 16;
      return;
    }
    left_ = 0;
  }
  PENSTOCK_DEVICE void bring(const Thread& t, bool copies) {
    if (left_ > 0) {
      if (copies) copy(t, ring_ + to_);
      const int step = tile_.n_warps() * C::kUnits;
      left_ -= step;
      units_ += step * (C::kCodes ? C::kUnitBytes : 128);
      if constexpr (C::kSuper) factors_ += step / 4 * C::kFactorBytes;
      if (left_ <= 0) tile_.advance(), enter(t);
    }
    if (copies) t.end_copies();
    to_ = to_ + C::kItemBytes < kSlots * C::kItemBytes ? to_ + C::kItemBytes : 0;
  }
  // Copies 16 bytes, or sets zeros beyond the tile's end.
  PENSTOCK_DEVICE void piece(const Thread& t, std::byte* to, const std::byte* from,
                             bool there) const {
    if (there) {
      t.copy_ahead(to, from);
    } else {
      *reinterpret_cast<Words<4>*>(to) = {};
    }
  }
  PENSTOCK_DEVICE void copy(const Thread& t, std::byte* to) const {
    if constexpr (!C::kCodes) {
      const int lane = anew(t.lane());
      for (int unit = 0; unit < C::kUnits; ++unit) {
        for (int i = 0; i < 4; ++i) {
          const int row = lane / 8 + 4 * i;
          piece(t, to + unit * C::kUnitBytes + tile_piece(row, lane % 8),
                units_ + unit * 128 + int64_t{4 * i} * row_bytes_, unit < left_);
        }
      }
    } else {
      constexpr int kBytes = C::kUnits * C::kUnitBytes;
      const int lane_at = t.lane() * 16, there = C::kSuper ? kBytes : left_ * C::kUnitBytes;
      for (int at = 0; at < kBytes; at += kWarp * 16) {
        const bool all =
            at + kWarp * 16 <= kBytes && (C::kSuper || at + kWarp * 16 <= C::kUnitBytes);
        if (all || at + lane_at < kBytes)
          piece(t, to + at + lane_at, units_ + at, all || C::kSuper || at + lane_at < there);
      }
      if (lane_at < C::kFactorBytes) t.copy_ahead(to + kBytes + lane_at, factors_);
    }
  }

  std::byte* ring_;
  Tile tile_;  // the tile that is being copied
  StreamCoding coding_;
  // address of the lane's first 16 bytes of the next item
  const std::byte *units_ = nullptr, *factors_ = nullptr;
  int left_ = 0;  // units of the tile from there on
  int to_ = 0, from_ = 0;
  // offset of the lane's first 16 bytes in a tile; bytes of a row (BF16)
  int own_, row_bytes_;
};

// --- Inputs.

// Loads a lane's four values of a B fragment: k, k + 1, k + 8 and k + 9; zeros if k >= n. REQUIRES:
// n is a multiple of 16, and values are aligned to 8 bytes.
PENSTOCK_DEVICE void read_four(const float* values, int k, int n, float (&to)[4]) {
  Floats<2> low = {}, high = {};
  if (k < n) {
    low = *reinterpret_cast<const Floats<2>*>(values + k);
    high = *reinterpret_cast<const Floats<2>*>(values + k + 8);
  }
  to[0] = low.at[0], to[1] = low.at[1], to[2] = high.at[0], to[3] = high.at[1];
}

// An item's inputs in shared memory, for kTokens rows. Pairs of units 2 u and 2 u + 1:
// [step][row][hi, lo][t][unit][two words of B]. Then, by plane, [unit][step][row] the sums of hi
// and of lo (twice), times the first level less the excess of codes: where accumulators start. With
// offsets, then the sums as B of one mma.
template <class C, int kTokens>
struct ItemInputs {
  static constexpr int kSumsAt = C::template kPairBytes<kTokens>;
  static constexpr int kMinsAt = kSumsAt + C::kPlanes * C::template kSumBytes<kTokens>;

  // Splits and stores an item's inputs. first: index of its first input. Inputs: has row() and
  // rows(). Of: the kernel's parameters x, has_norm and norm.
  template <class Inputs, class Of>
  static PENSTOCK_DEVICE void store(const Thread& t, const Inputs& inputs, const Of& of,
                                    const RowMoments* moments, int first, float first_level,
                                    std::byte* to) {
    constexpr int kPlaces = C::kItemCols / 128;         // steps per lane
    constexpr int kAtOnce = kTokens < 4 ? kTokens : 4;  // rows loaded at once
    const bool has_weight = of.has_norm && of.norm.weight != nullptr;
    float weights[kPlaces][4];
#pragma unroll
    for (int place = 0; place < kPlaces; ++place)
      if (has_weight)
        read_four(of.norm.weight, first + input(t.lane(), place), of.x.cols, weights[place]);
#pragma unroll 1
    for (int from = 0; from < kTokens; from += kAtOnce) {
      if (kTokens > kAtOnce && from >= inputs.rows()) break;
      float values[kAtOnce][kPlaces][4];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
        for (int place = 0; place < kPlaces; ++place)
          if (kTokens == 1 || from + i < inputs.rows())
            read_four(inputs.row(from + i), first + input(t.lane(), place), of.x.cols,
                      values[i][place]);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (kTokens > 1 && from + i >= inputs.rows()) break;
#pragma unroll
        for (int place = 0; place < kPlaces; ++place) {
          const int k = first + input(t.lane(), place);
          if (of.has_norm && k < of.x.cols)
            norm(of, moments[from + i], has_weight, weights[place], k, values[i][place]);
          split(t, step(t.lane(), place), from + i, first_level, values[i][place], to);
        }
      }
    }
  }

 private:
  static PENSTOCK_DEVICE int step(int lane, int place) { return lane / 4 + 8 * place; }
  static PENSTOCK_DEVICE int input(int lane, int place) {
    return 16 * step(lane, place) + 2 * (lane % 4);
  }

  template <class Of>
  static PENSTOCK_DEVICE void norm(const Of& of, RowMoments moments, bool has_weight,
                                   const float (&weights)[4], int k, float (&v)[4]) {
#pragma unroll
    for (int h = 0; h < 4; ++h) {
      v[h] = (v[h] - moments.middle) * moments.factor;
      if (has_weight) v[h] *= weights[h];
    }
    if (of.norm.bias == nullptr) return;
    float biases[4];
    read_four(of.norm.bias, k, of.x.cols, biases);
#pragma unroll
    for (int h = 0; h < 4; ++h) v[h] += biases[h];
  }
  static PENSTOCK_DEVICE void split(const Thread& t, int step, int token, float first_level,
                                    const float (&v)[4], std::byte* to) {
    const int place_t = t.lane() % 4, unit = step / 4, s = step % 4;
    const SplitPair low = split_pair(v[0], v[1]), high = split_pair(v[2], v[3]);
    std::byte* const pairs =
        to + unit / 2 * (512 * kTokens) + (s * kTokens + token) * 128 + place_t * 16;
    reinterpret_cast<Words<2>*>(pairs)[unit % 2] = {{low.hi, high.hi}};
    reinterpret_cast<Words<2>*>(pairs + 64)[unit % 2] = {{low.lo, high.lo}};
    if constexpr (C::kSums) {
      const float hi = sum_of_step(t, low.hi, high.hi), lo = sum_of_step(t, low.lo, high.lo);
      const float mine = place_t % 2 == 0 ? hi : lo;
      auto* const sums =
          reinterpret_cast<float*>(to + kSumsAt) + (step * kTokens + token) * 4 + place_t;
      constexpr float kOver = 128.0f;
      sums[0] = (C::kPlanes == 2 ? -kOver : first_level - kOver) * mine;
      if constexpr (C::kPlanes == 2)
        sums[C::template kSumBytes<kTokens> / 4] = (first_level / 16.0f - kOver) * mine;
      if constexpr (C::kOffsets) {
        const float sum = hi + lo;
        const uint16_t sum_hi = static_cast<uint16_t>(bf16_pair(sum, 0.0f));
        const uint16_t sum_lo = static_cast<uint16_t>(bf16_pair(sum - bf16_to_float(sum_hi), 0.0f));
        auto* const mins = reinterpret_cast<uint16_t*>(to + kMinsAt + token * 64 + place_t * 32);
        if (place_t < 2)
          mins[step % 8 / 2 * 4 + step / 8 * 2 + step % 2] = place_t == 0 ? sum_hi : sum_lo;
      }
    }
  }
  static PENSTOCK_DEVICE float sum_of_step(const Thread& t, uint32_t low, uint32_t high) {
    float sum = (float_of_bits(low << 16) + float_of_bits(low & 0xffff0000u)) +
                (float_of_bits(high << 16) + float_of_bits(high & 0xffff0000u));
    sum += t.shuffle_xor(sum, 1);
    return sum + t.shuffle_xor(sum, 2);
  }
};

// --- Products.

// A warp's accumulators of a tile, as fragments of mma. For one row, columns are its hi and lo by
// step; for more rows there are fragments by step and by four rows, whose columns are hi and lo.
template <int kTokens>
struct TileSums {
  static constexpr int kSteps = kTokens == 1 ? 1 : 4, kSets = kTokens == 1 ? 1 : kTokens / 4;
  float sums[kSteps][kSets][4] = {};

  // Adds the steps, and hi and lo: to[row * kTokens + token].
  PENSTOCK_DEVICE void store(const Thread& t, float* to) const {
    const int g = t.lane() / 4, place = t.lane() % 4;
    for (int half = 0; half < 2; ++half) {
      const auto of = [&](int s, int set) {
        return sums[s][set][2 * half] + sums[s][set][2 * half + 1];
      };
      if constexpr (kTokens == 1) {
        float sum = of(0, 0);
        sum += t.shuffle_xor(sum, 1);
        sum += t.shuffle_xor(sum, 2);
        if (place == 0) to[g + 8 * half] = sum;
      } else {
        for (int set = 0; set < kSets; ++set)
          to[(g + 8 * half) * kTokens + 4 * set + place] =
              (of(0, set) + of(1, set)) + (of(2, set) + of(3, set));
      }
    }
  }
};

// sums += an item of weights times its inputs. zeros: 16 bytes of 0. kPairs: unroll count of pairs.
template <class C, int kTokens, int kPairs>
PENSTOCK_DEVICE void multiply_item(const Thread& t, const std::byte* item, const std::byte* inputs,
                                   float unit, const std::byte* zeros, TileSums<kTokens>& total) {
  constexpr int kSets = TileSums<kTokens>::kSets;
  constexpr bool kOne = kTokens == 1;
  using Part = Floats<4>;
  const int lane = kPairs > 1 ? t.lane() : anew(t.lane()), g = lane / 4, place = lane % 4,
            column = g / 2, lo = g % 2;
  const LaneScales<C> scales(item, g, unit);
  const auto begin = [&](int unit_index, int plane, int s, int token) -> Part {
    if constexpr (!C::kSums) return {};
    return load<Part>(
        inputs + ItemInputs<C, kTokens>::kSumsAt + plane * C::template kSumBytes<kTokens>,
        (unit_index * 4 + s) * kTokens + token);
  };
  // first: the initial value of the accumulators.
  const auto add = [&](int unit_index, int group, const Part(&part)[C::kPlanes], const Part& first,
                       float(&to)[4]) {
    for (int half = 0; half < 2; ++half) {
      const float scale = scales.scale(unit_index, half, group);
      for (int j = 2 * half; j < 2 * half + 2; ++j) {
        float sum = part[0].at[j];
        if constexpr (C::kPlanes == 2) sum = fmaf(16.0f, part[1].at[j], sum);
        if constexpr (C::kZeros)
          sum = fmaf(scales.extra(unit_index, half, group) * (1.0f / 128), first.at[j], sum);
        to[j] = fmaf(scale, sum, to[j]);
      }
    }
  };
  const std::byte* const own_pairs = inputs + column * 128 + lo * 64 + place * 16;
#pragma unroll(kPairs)
  for (int pair = 0; pair < C::kUnits / 2; ++pair) {
    const LaneCodes<C> codes[2] = {LaneCodes<C>(item + 2 * pair * C::kUnitBytes, lane),
                                   LaneCodes<C>(item + (2 * pair + 1) * C::kUnitBytes, lane)};
    const std::byte* const pairs = own_pairs + pair * (512 * kTokens);
    Part parts[2][C::kPlanes], firsts[2];
    if constexpr (kOne) {
      Words<4> of_step[4];  // nonzero in one step of a lane only
#pragma unroll
      for (int s = 0; s < 4; ++s) of_step[s] = load<Words<4>>(column == s ? pairs : zeros, 0);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
#pragma unroll
        for (int plane = 0; plane < C::kPlanes; ++plane)
          parts[e][plane] = begin(2 * pair + e, plane, place, 0);
        firsts[e] = parts[e][0];
      }
#pragma unroll
      for (int s = 0; s < 4; ++s)
#pragma unroll
        for (int e = 0; e < 2; ++e)
#pragma unroll
          for (int plane = 0; plane < C::kPlanes; ++plane) {
            uint32_t a[4];
            codes[e].fragment(plane, s, a);
            const uint32_t b[2] = {of_step[s].words[2 * e], of_step[s].words[2 * e + 1]};
            t.mma(parts[e][plane].at, a, b);
          }
#pragma unroll
      for (int e = 0; e < 2; ++e)
        add(2 * pair + e, place * 16 / C::kGroup, parts[e], firsts[e], total.sums[0][0]);
    } else {
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        Words<4> b[kSets];
#pragma unroll
        for (int set = 0; set < kSets; ++set)
          b[set] = load<Words<4>>(pairs + (s * kTokens + 4 * set) * 128, 0);
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          Part of_rows[kSets][C::kPlanes], begun[kSets];
#pragma unroll
          for (int set = 0; set < kSets; ++set) {
#pragma unroll
            for (int plane = 0; plane < C::kPlanes; ++plane)
              of_rows[set][plane] = begin(2 * pair + e, plane, s, 4 * set + place);
            begun[set] = of_rows[set][0];
          }
#pragma unroll
          for (int plane = 0; plane < C::kPlanes; ++plane) {
            uint32_t a[4];
            codes[e].fragment(plane, s, a);
#pragma unroll
            for (int set = 0; set < kSets; ++set) {
              const uint32_t of_set[2] = {b[set].words[2 * e], b[set].words[2 * e + 1]};
              t.mma(of_rows[set][plane].at, a, of_set);
            }
          }
#pragma unroll
          for (int set = 0; set < kSets; ++set)
            add(2 * pair + e, s * 16 / C::kGroup, of_rows[set], begun[set], total.sums[s][set]);
        }
      }
    }
  }
  if constexpr (C::kOffsets) {  // mins times sums of inputs
    static_assert(C::kUnits == 4 && C::kGroup == 32);
    uint32_t a[4];
    for (int i = 0; i < 4; ++i) {
      const float whole = scales.extra(place / 2 + 2 * (i >> 1), i & 1, place % 2);
      a[i] = bf16_pair(whole, whole);
    }
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
      Words<2> sums = {};
      if (!kOne || column == 0)
        sums = load<Words<2>>(inputs + ItemInputs<C, kTokens>::kMinsAt + (4 * set + column) * 64,
                              lo * 4 + place);
      const uint32_t b[2] = {sums.words[0], sums.words[1]};
      float offsets[4] = {};
      t.mma(offsets, a, b);
      for (int j = 0; j < 4; ++j)
        total.sums[0][set][j] =
            fmaf(-scales.offset_factors[j / 2], offsets[j], total.sums[0][set][j]);
    }
  }
}

}  // namespace penstock::cuda
