// Reading of weights (kernels/weight.h) in kernels.
#pragma once
#include "ops/cuda/kernels/thread.h"
#include "ops/cuda/kernels/weight.h"

namespace penstock::cuda {

// value = scale * level + offset, or scale * (level - zero).
struct GroupScale {
  float scale, offset, zero;
};

template <class T>
PENSTOCK_DEVICE T load(const std::byte* at, int64_t index) {
  return reinterpret_cast<const T*>(at)[index];
}

// Returns the scale of row `row` of a tile and a group of a unit at any address. factors: of the
// unit's 256 inputs, if it has super scales.
PENSTOCK_DEVICE GroupScale group_scale(const WeightOnDevice& w, const std::byte* unit,
                                       const std::byte* factors, int row, int group) {
  const int groups = w.groups_per_unit(), place = scale_place(groups, row, group);
  const std::byte* const scales = unit + w.code_bytes();
  const std::byte* const extra = scales + WeightOnDevice::kTileRows * groups * w.scale_bytes();
  GroupScale of = {1.0f, 0.0f, 0.0f};
  if (w.scales == ScaleForm::kSuper) {
    const int at = row * (w.offsets ? 2 : 1);
    of.scale = half_to_float(load<uint16_t>(factors, at)) *
               static_cast<float>(load<int8_t>(scales, place)) * w.unit;
    if (w.offsets)
      of.offset = -(half_to_float(load<uint16_t>(factors, at + 1)) *
                    static_cast<float>(load<int8_t>(extra, place)));
    return of;
  }
  of.scale = w.scales == ScaleForm::kHalf ? half_to_float(load<uint16_t>(scales, place))
                                          : load<float>(scales, place);
  if (w.offsets) of.offset = half_to_float(load<uint16_t>(extra, place));
  if (w.zeros) of.zero = static_cast<float>(load<int16_t>(extra, place));
  return of;
}

PENSTOCK_DEVICE GroupScale group_scale(const WeightOnDevice& w, int tile, int unit, int row,
                                       int group) {
  return group_scale(w, w.unit_at(tile, unit), w.factors_of(tile, unit), row, group);
}

// Returns element k of a row; k counts in the stored order of columns.
PENSTOCK_DEVICE float weight_element(const WeightOnDevice& w, int row, int k) {
  const int64_t at = static_cast<int64_t>(row) * w.padded_cols + k;
  if (w.form == WeightForm::kF32) return load<float>(w.data, at);
  if (w.form == WeightForm::kF16) return half_to_float(load<uint16_t>(w.data, at));
  if (w.form == WeightForm::kBF16) return bf16_to_float(load<uint16_t>(w.data, at));
  const int tile = row / WeightOnDevice::kTileRows, r = row % WeightOnDevice::kTileRows;
  const int unit = k / WeightOnDevice::kUnitCols, in_unit = k % WeightOnDevice::kUnitCols;
  const std::byte* plane = w.unit_at(tile, unit);
  uint32_t code = 0;
  for (int done = 0; done < w.bits;) {
    const int width = plane_bits(w.bits, done);
    const CodePlace place = code_place(width, r, in_unit);
    code |= (load<uint32_t>(plane, place.word) >> place.shift & ((1u << width) - 1)) << done;
    plane += width * WeightOnDevice::kTileRows * WeightOnDevice::kUnitCols / 8;
    done += width;
  }
  const GroupScale of = group_scale(w, tile, unit, r, in_unit / w.group);
  if (w.zeros) return of.scale * (w.levels[code] - of.zero);
  return w.offsets ? of.scale * w.levels[code] + of.offset : of.scale * w.levels[code];
}

}  // namespace penstock::cuda
