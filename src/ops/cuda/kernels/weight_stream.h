// The products of a tile (kernels/tile_product.h) with weights that come through shared memory: every warp has a ring of its own,
// into which it asks for units well before it multiplies them, so that memory is always at work. The bits are those of multiply_tile().
#pragma once
#include "ops/cuda/kernels/row_norm.h"
#include "ops/cuda/kernels/tile_product.h"

namespace penstock::cuda {

template <int kN>
struct alignas(4 * kN) Words {  // that are read at once
  uint32_t words[kN];
};

// What of a weight's form is known when the kernel is compiled; 16 bits: BF16.
template <int kOfBits, int kOfGroup, ScaleForm kOfScales, bool kHasOffsets, bool kHasZeros>
struct Coding {
  static constexpr int kBits = kOfBits, kGroup = kOfGroup, kGroups = 64 / kOfGroup;
  static constexpr bool kCodes = kBits < 16, kSuper = kOfScales == ScaleForm::kSuper;
  static constexpr bool kOffsets = kHasOffsets, kZeros = kHasZeros;
  static constexpr int kCodeBytes = kBits * 128;
  // Words that a lane reads of the scales of rows g and g + 8, and how many are behind all of these.
  static constexpr int kScaleWords = 2 * kGroups * (kSuper ? 1 : 2) / 4, kExtraAt = 8 * kScaleWords * 4;
  static constexpr int kUnitBytes = kCodes ? kCodeBytes + kExtraAt * (kOffsets || kZeros ? 2 : 1) : 16 * 128;
  static constexpr int kFactorBytes = kSuper ? 16 * (kOffsets ? 4 : 2) : 0;
};
using OfBF16 = Coding<16, 64, ScaleForm::kHalf, false, false>;

// fn.operator()<Coding>() for what stream_coding() says.
template <class Fn>
PENSTOCK_DEVICE void with_coding(StreamCoding coding, Fn fn) {
  using enum ScaleForm;
  if (coding == StreamCoding::kBF16) fn.template operator()<OfBF16>();
  if (coding == StreamCoding::kHalf8) fn.template operator()<Coding<8, 32, kHalf, false, false>>();
  if (coding == StreamCoding::kHalf4) fn.template operator()<Coding<4, 32, kHalf, false, false>>();
  if (coding == StreamCoding::kWide4) fn.template operator()<Coding<4, 64, kHalf, false, false>>();
  if (coding == StreamCoding::kWide4Zeros) fn.template operator()<Coding<4, 64, kHalf, false, true>>();
  if (coding == StreamCoding::kSuper4) fn.template operator()<Coding<4, 32, kSuper, true, false>>();
  if (coding == StreamCoding::kSuper5) fn.template operator()<Coding<5, 32, kSuper, true, false>>();
  if (coding == StreamCoding::kSuper6) fn.template operator()<Coding<6, 16, kSuper, false, false>>();
}

// Rows of BF16 lie in pieces of 16 bytes, of which neighbours in a column are in other banks.
PENSTOCK_DEVICE int piece_of_row(int row, int piece) { return row * 128 + (piece ^ row % 8) * 16; }

// A lane's codes of a unit, and A fragments of them: as load_weights(), by arithmetic. BF16 have 8 bits, so that 128 + code of up to 7
// bits is one whose last bits are the code, and 2048 + 16 code of 4 bits another.
template <class C>
struct LaneCodes {
  const std::byte* slot;
  int lane;
  Words<4> low, high;  // of 5 and 6 bits: fewer words of high
  uint32_t less;       // the first level, less what there is too much: two BF16

  static constexpr float kOver = C::kBits == 8 ? 2048.0f + 128.0f : 128.0f;
  PENSTOCK_DEVICE LaneCodes(const std::byte* unit, int of_lane, uint32_t of_levels)
      : slot(unit), lane(of_lane), less(of_levels) {
    if constexpr (!C::kCodes) return;
    constexpr int kPlane = 512;  // bytes of 4 bits
    low = load<Words<4>>(slot, lane);
    if constexpr (C::kBits == 5) high.words[0] = load<uint32_t>(slot + kPlane, lane);
    if constexpr (C::kBits == 6) {
      const auto two = load<Words<2>>(slot + kPlane, lane);
      high.words[0] = two.words[0], high.words[1] = two.words[1];
    }
    if constexpr (C::kBits == 8) high = load<Words<4>>(slot + kPlane, lane);
  }

  PENSTOCK_DEVICE uint32_t pair(int s, int i) const {
    if constexpr (!C::kCodes) {
      const int row = lane / 4 + 8 * (i & 1);
      return load<uint32_t>(slot + piece_of_row(row, 2 * s + (i >> 1)), lane % 4);
    } else {
      uint32_t codes = low.words[s] >> 4 * i & 0x000f000fu;
      if constexpr (C::kBits == 8) {
        const uint32_t upper = (high.words[s] >> 4 * i & 0x000f000fu) | 0x45004500u;
        return add_bf16_pairs(codes | 0x43004300u, add_bf16_pairs(upper, less));
      }
      if constexpr (C::kBits == 5) codes |= (high.words[0] >> (4 * s + i) & 0x00010001u) << 4;
      if constexpr (C::kBits == 6) codes |= (high.words[s / 2] >> (8 * (s % 2) + 2 * i) & 0x00030003u) << 4;
      return add_bf16_pairs(codes | 0x43004300u, less);
    }
  }
};

// The byte as a signed number, exactly: one addition where a conversion takes four times as long.
PENSTOCK_DEVICE float float_of_int8(uint32_t byte) {
  return float_of_bits(0x4b000000u | ((byte & 0xffu) ^ 0x80u)) - 8388736.0f;
}

// A lane's scales of a unit, of rows g and g + 8 (half): as group_scale().
template <class C>
struct LaneScales {
  uint32_t scales[2], extra = 0;
  uint32_t factors[2];
  float unit;

  PENSTOCK_DEVICE LaneScales(const std::byte* slot, int g, float of_unit) : unit(of_unit) {
    if constexpr (!C::kCodes) return;
    const std::byte* const at = slot + C::kCodeBytes;
    if constexpr (C::kScaleWords == 2) {
      const auto two = load<Words<2>>(at, g);
      scales[0] = two.words[0], scales[1] = two.words[1];
    } else {
      scales[0] = load<uint32_t>(at, g);
    }
    if constexpr (C::kOffsets || C::kZeros) extra = load<uint32_t>(at + C::kExtraAt, g);
    if constexpr (!C::kSuper) return;
    for (int half = 0; half < 2; ++half) {
      const std::byte* const of_row = slot + C::kUnitBytes;
      factors[half] =
          C::kOffsets ? load<uint32_t>(of_row, g + 8 * half) : load<uint16_t>(of_row, g + 8 * half);
    }
  }
  PENSTOCK_DEVICE GroupScale at(int half, int group) const {
    GroupScale of = {1.0f, 0.0f, 0.0f};
    if constexpr (!C::kCodes) return of;
    const int i = half * C::kGroups + group;
    if constexpr (C::kSuper) {
      of.scale = half_to_float(static_cast<uint16_t>(factors[half])) *
                 float_of_int8(scales[i / 4] >> 8 * (i % 4)) * unit;
      if constexpr (C::kOffsets)
        of.offset = -(half_to_float(static_cast<uint16_t>(factors[half] >> 16)) *
                      float_of_int8(extra >> 8 * (i % 4)));
    } else {
      of.scale = half_to_float(static_cast<uint16_t>(scales[i / 2] >> 16 * (i % 2)));
      if constexpr (C::kZeros)
        of.zero = static_cast<float>(static_cast<int16_t>(static_cast<uint16_t>(extra >> 16 * (i % 2))));
    }
    return of;
  }
};

// A warp's ring of units, and their way through it: in a slot one of each of kWeights weights, which have the same inputs. Lanes bring
// the same pieces of every unit.
template <class C, int kWeights>
class UnitRing {
 public:
  static constexpr int kBytes = kWeights * 8192;
  static constexpr int kPlaceBytes = C::kUnitBytes + C::kFactorBytes, kSlotBytes = kWeights * kPlaceBytes;
  static constexpr int kSlots = kBytes / kSlotBytes < 12 ? kBytes / kSlotBytes : 12;
  static constexpr int kWarps = 4;  // of a block: each has every fourth unit

  // weight(i): the i-th.
  template <class Weights>
  PENSTOCK_DEVICE UnitRing(const Thread& t, const Weights& weight, int tile, std::byte* rings)
      : ring_(rings + t.warp() * kBytes),
        n_units_((weight(0).n_units() - t.warp() + kWarps - 1) / kWarps),
        left_(n_units_) {
    for (int i = 0; i < kWeights; ++i) next_[i] = first_place(t, weight(i), tile);
    if constexpr (!C::kCodes) row_bytes_ = int64_t{2} * weight(0).padded_cols;
  }
  PENSTOCK_DEVICE int n_units() const { return n_units_; }  // of a weight
  // All slots but one. copies: or as if that was done.
  PENSTOCK_DEVICE void fill(const Thread& t, bool copies) {
    for (int i = 0; i < kSlots - 1; ++i) bring(t, copies);
  }
  // The next unit there is, if any, into the next slot.
  PENSTOCK_DEVICE void bring(const Thread& t, bool copies = true) {
    if (left_ > 0) {
      --left_;
      for (int i = 0; i < kWeights; ++i) {
        if (copies) copy(t, next_[i], ring_ + to_ + i * kPlaceBytes);
        next_[i].unit += kWarps * (C::kCodes ? C::kUnitBytes : 128), next_[i].factors += C::kFactorBytes;
      }
    }
    if (copies) t.end_copies();
    to_ = to_ + kSlotBytes < kSlots * kSlotBytes ? to_ + kSlotBytes : 0;
  }
  // The units that were brought first of those that were not taken, kPlaceBytes apart; they stay there until the next take().
  PENSTOCK_DEVICE const std::byte* take(const Thread& t) {
    t.wait_for_copies<kSlots - 2>();
    t.sync_warp();  // all lanes' pieces are there, and nobody reads the unit before any more
    const std::byte* const unit = ring_ + from_;
    from_ = from_ + kSlotBytes < kSlots * kSlotBytes ? from_ + kSlotBytes : 0;
    bring(t);
    return unit;
  }

 private:
  struct Place {
    const std::byte *unit, *factors;  // the lane's first piece
  };
  static PENSTOCK_DEVICE Place first_place(const Thread& t, const WeightOnDevice& w, int tile) {
    if constexpr (!C::kCodes) {
      const int row = tile * 16 + t.lane() / 8, byte = t.warp() * 128 + t.lane() % 8 * 16;
      return {w.data + int64_t{2} * row * w.padded_cols + byte, nullptr};
    }
    return {w.unit_at(tile, t.warp()) + t.lane() * 16, w.factors_of(tile, t.warp()) + t.lane() * 16};
  }
  PENSTOCK_DEVICE void copy(const Thread& t, const Place& from, std::byte* to) const {
    if constexpr (!C::kCodes) {
      for (int i = 0; i < 4; ++i) {
        const int row = t.lane() / 8 + 4 * i;
        t.copy_ahead(to + piece_of_row(row, t.lane() % 8), from.unit + 4 * i * row_bytes_);
      }
    } else {
      const int lane_at = t.lane() * 16;
      for (int at = 0; at < C::kUnitBytes; at += kWarp * 16)
        if (at + lane_at < C::kUnitBytes) t.copy_ahead(to + at + lane_at, from.unit + at);
      if (lane_at < C::kFactorBytes) t.copy_ahead(to + C::kUnitBytes + lane_at, from.factors);
    }
  }

  std::byte* ring_;
  Place next_[kWeights];
  int n_units_, left_, to_ = 0, from_ = 0;
  int64_t row_bytes_ = 0;
};

// A unit's inputs as a warp brings them near: a lane two of each row. Raw until they are normed and split.
// Of: has x, has_norm and norm, which are the kernel's parameters.
template <int kTokens>
struct UnitInputs {
  static constexpr int kRowBytes = 32 * 8 + 32;  // of pairs in shared memory, so that rows are in other banks
  float values[kTokens][2];
  float weights[2] = {1.0f, 1.0f}, biases[2] = {};

  // k: the lane's first input. Zeros beyond the last.
  template <class Of>
  PENSTOCK_DEVICE void read(const Of& of, int k) {
    for (int h = 0; h < 2; ++h) {
      const bool inside = k + h < of.x.cols;
      for (int token = 0; token < kTokens; ++token)
        values[token][h] = inside && (kTokens == 1 || token < of.x.rows) ? of.x.row(token)[k + h] : 0.0f;
      if (inside && of.has_norm && of.norm.weight != nullptr) weights[h] = of.norm.weight[k + h];
      if (inside && of.has_norm && of.norm.bias != nullptr) biases[h] = of.norm.bias[k + h];
    }
  }
  template <class Of>
  PENSTOCK_DEVICE void split(const Thread& t, const Of& of, const RowMoments* moments, int k,
                             std::byte* pairs) const {
    for (int token = 0; token < kTokens; ++token) {
      if (kTokens > 1 && token >= of.x.rows) break;
      float v[2] = {values[token][0], values[token][1]};
      if (of.has_norm) {
        for (int h = 0; h < 2; ++h) {
          const float normed = normed_by(of.norm, moments[token], v[h], weights[h], biases[h]);
          v[h] = k + h < of.x.cols ? normed : 0.0f;
        }
      }
      const SplitPair pair = split_pair(v[0], v[1]);
      *reinterpret_cast<Words<2>*>(pairs + token * kRowBytes + t.lane() * 8) = {{pair.hi, pair.lo}};
    }
  }
};

// total += the unit times its inputs; pairs: of this lane's row.
template <class C>
PENSTOCK_DEVICE void multiply_unit(const Thread& t, const LaneCodes<C>& codes, const LaneScales<C>& scales,
                                   const std::byte* pairs, float (&total)[1][4]) {
  constexpr bool kShifted = C::kOffsets || C::kZeros;
  constexpr int kSteps = C::kGroup / 16;  // of a group
  const uint32_t ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
  float part[4], inputs[4];
  for (int s = 0; s < 4; ++s) {
    if (s % kSteps == 0)
      for (int j = 0; j < 4; ++j) part[j] = inputs[j] = 0.0f;
    uint32_t a[4];
    for (int i = 0; i < 4; ++i) a[i] = codes.pair(s, i);
    const auto low = load<Words<2>>(pairs, 8 * s), high = load<Words<2>>(pairs, 8 * s + 4);
    const uint32_t hi[2] = {low.words[0], high.words[0]}, lo[2] = {low.words[1], high.words[1]};
    t.mma(part, a, lo);
    t.mma(part, a, hi);
    if constexpr (kShifted) t.mma(inputs, ones, lo);
    if constexpr (kShifted) t.mma(inputs, ones, hi);
    if (s % kSteps != kSteps - 1) continue;
    for (int half = 0; half < 2; ++half) {
      const GroupScale of = scales.at(half, s / kSteps);
      const float offset = C::kZeros ? -(of.scale * of.zero) : of.offset;
      for (int j = 2 * half; j < 2 * half + 2; ++j)
        total[0][j] += kShifted ? of.scale * part[j] + offset * inputs[j] : of.scale * part[j];
    }
  }
}

// totals += the warp's units of a tile of each weight by rows of x, or of their norm, from what `ring` brings; next: the first ones'
// inputs. pairs: two pieces of kTokens rows of the warp, by turns, and a row of zeros.
template <class C, int kTokens, int kWeights, class Of, class Weights>
PENSTOCK_DEVICE void stream_units(const Thread& t, const Of& of, UnitRing<C, kWeights>& ring,
                                  const Weights& weight, const RowMoments* moments, std::byte* pairs,
                                  UnitInputs<kTokens>& next, float (&totals)[kWeights][1][4]) {
  constexpr int kRowBytes = UnitInputs<kTokens>::kRowBytes, kStep = UnitRing<C, kWeights>::kWarps * 64;
  const int lane = t.lane(), g = lane / 4, first_k = t.warp() * 64 + 2 * lane, n = ring.n_units();
  const bool has_row = g < (kTokens == 1 ? 1 : of.x.rows);
  const std::byte* const zeros = pairs + 2 * kTokens * kRowBytes + lane % 4 * 8;
  const RowMoments first_moments = of.has_norm ? moments[0] : RowMoments{};
  int at = 0;
  for (int i = 0, k = first_k; i < n; ++i, k += kStep) {
    next.split(t, of, kTokens == 1 ? &first_moments : moments, k, pairs + at);
    next.read(of, k + kStep);
    const std::byte* const units = ring.take(t);  // here the inputs are there, too
    const std::byte* const inputs = has_row ? pairs + at + g * kRowBytes + lane % 4 * 8 : zeros;
    for (int w = 0; w < kWeights; ++w) {
      const std::byte* const unit = units + w * UnitRing<C, kWeights>::kPlaceBytes;
      const float least = weight(w).first_level - LaneCodes<C>::kOver;
      multiply_unit<C>(t, LaneCodes<C>(unit, lane, bf16_pair(least, least)),
                       LaneScales<C>(unit, g, weight(w).unit), inputs, totals[w]);
    }
    at = at == 0 ? kTokens * kRowBytes : 0;
  }
}

}  // namespace penstock::cuda
