#include "ops/cuda/packed_weight.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "base/half.h"
#include "quant/codebook.h"

namespace penstock::cuda {
namespace {

void put_half_at(std::byte* to, int64_t index, float value) {
  const Half half = to_half(value);
  std::memcpy(to + 2 * index, &half, 2);
}
template <class T>
void put_at(std::byte* to, int64_t index, T value) {
  std::memcpy(to + static_cast<int64_t>(sizeof value) * index, &value, sizeof value);
}

void put_codes(const WeightOnDevice& w, const RowCodes& from, int row, int unit, std::byte* to) {
  const int first = unit * kUnitCols, n = std::min(kUnitCols, w.cols - first);
  for (int done = 0; done < w.bits;) {
    const int width = plane_bits(w.bits, done);
    for (int k = 0; k < n; ++k) {
      const uint32_t code =
          from.codes[static_cast<size_t>(first + k)] >> done & ((1u << width) - 1);
      const CodePlace place = code_place(width, row, k);
      uint32_t word;
      std::memcpy(&word, to + 4 * place.word, sizeof word);
      word |= code << place.shift;
      std::memcpy(to + 4 * place.word, &word, sizeof word);
    }
    to += width * kTileRows * kUnitCols / 8;
    done += width;
  }
}

void put_scales(const WeightOnDevice& w, const RowCodes& from, int row, int unit, std::byte* to) {
  const int groups = w.groups_per_unit();
  std::byte* const extra = to + kTileRows * groups * w.scale_bytes();
  for (int group = 0; group < groups; ++group) {
    const size_t of = static_cast<size_t>(unit * groups + group);
    const int place = scale_place(groups, row, group);
    if (unit * kUnitCols + group * w.group >= w.cols) continue;
    if (w.scales == ScaleForm::kSuper) {
      put_at(to, place, from.sub_scales[of]);
      if (w.offsets) put_at(extra, place, from.sub_mins[of]);
      continue;
    }
    if (w.scales == ScaleForm::kHalf) put_half_at(to, place, from.scales[of]);
    if (w.scales == ScaleForm::kFloat) put_at(to, place, from.scales[of]);
    if (w.offsets) put_half_at(extra, place, from.offsets[of]);
    if (w.zeros) put_at(extra, place, from.zeros[of]);
  }
}

void put_factors(const WeightOnDevice& w, const RowCodes& from, int row, std::byte* to) {
  const int per_row = w.offsets ? 2 : 1;
  for (size_t block = 0; block < from.factors.size(); ++block) {
    const int64_t at = (static_cast<int64_t>(block) * kTileRows + row) * per_row;
    put_half_at(to, at, from.factors[block]);
    if (w.offsets) put_half_at(to, at + 1, from.min_factors[block]);
  }
}

// Packs a tile. REQUIRES: `to` is zeroed.
void pack_tile(const WeightSource& source, int tile, std::byte* to) {
  const WeightOnDevice& w = source.shape;
  RowCodes row_codes;
  for (int r = 0; r < kTileRows && tile * kTileRows + r < w.rows; ++r) {
    const int row = tile * kTileRows + r;
    if (w.form != WeightForm::kCodes) {
      source.floats(row, to + r * (w.tile_bytes / kTileRows));
      continue;
    }
    source.codes(row, row_codes);
    for (int unit = 0; unit * kUnitCols < w.cols; ++unit) {
      std::byte* const at = to + static_cast<int64_t>(unit) * w.unit_bytes;
      put_codes(w, row_codes, r, unit, at);
      put_scales(w, row_codes, r, unit, at + w.code_bytes());
    }
    if (w.scales == ScaleForm::kSuper)
      put_factors(w, row_codes, r, to + static_cast<int64_t>(w.n_units()) * w.unit_bytes);
  }
}

void set_steps(WeightOnDevice& shape, std::span<const float> levels) {
  if (levels.empty()) return;
  const float first = levels[0], last = first + static_cast<float>(levels.size() - 1);
  const float whole = shape.bits == 8 ? 16.0f : 1.0f;
  shape.in_steps = first >= -256.0f && last <= 256.0f && std::fmod(first, whole) == 0.0f;
  for (size_t code = 0; code < levels.size(); ++code)
    shape.in_steps &= levels[code] == first + static_cast<float>(code);
  shape.first_level = first;
  shape.is_e2m1 = std::ranges::equal(levels, quant::kE2M1Levels);
}

void set_addresses(WeightOnDevice& shape, const WeightParts& parts, const std::byte* data) {
  shape.data = data;
  if (parts.order_at() > parts.levels_at())
    shape.levels = reinterpret_cast<const float*>(data + parts.levels_at());
  if (parts.bytes() > parts.order_at())
    shape.input_order = reinterpret_cast<const int32_t*>(data + parts.order_at());
}

std::unique_ptr<Weight> weight_at(Memory memory, WeightOnDevice shape, const WeightParts& parts,
                                  InputRounding rounding, std::span<const float> levels) {
  set_steps(shape, levels);
  set_addresses(shape, parts, memory.as<const std::byte>());
  return std::make_unique<CudaWeight>(shape, std::move(memory), rounding);
}

}  // namespace

WeightOnDevice WeightImage::at(const std::byte* data) const {
  WeightOnDevice placed = shape;
  set_addresses(placed, parts, data);
  return placed;
}

Result<std::unique_ptr<Weight>> WeightPacker::pack_image(const WeightSource& source) {
  WeightOnDevice shape = source.shape;
  const WeightParts parts(shape, !source.input_order.empty());
  std::unique_ptr<std::byte[]> bytes(new (std::nothrow) std::byte[parts.bytes()]);
  if (bytes == nullptr)
    return errorf(ErrorCode::kResourceExhausted,
                  "an expert's copy for the GPU: {} bytes of the host's memory refused",
                  parts.bytes());
  std::memset(bytes.get(), 0, parts.levels_at());
  const int n_tiles = (shape.rows + kTileRows - 1) / kTileRows;
  pool_.for_ranges(n_tiles, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t tile = begin; tile < end; ++tile)
      pack_tile(source, static_cast<int>(tile), bytes.get() + tile * shape.tile_bytes);
  });
  const auto put = [&](size_t at, const auto& values) {
    if (!values.empty())
      std::memcpy(bytes.get() + at, values.data(), std::span(values).size_bytes());
  };
  put(parts.levels_at(), source.levels), put(parts.order_at(), source.input_order);
  set_steps(shape, source.levels);
  return std::make_unique<ImageWeight>(std::make_shared<const WeightImage>(
      WeightImage{shape, parts, source.rounding, std::move(bytes)}));
}

Result<std::unique_ptr<Weight>> WeightPacker::pack(const WeightSource& source) {
  const WeightOnDevice& shape = source.shape;
  const int n_tiles = (shape.rows + kTileRows - 1) / kTileRows;
  const auto tile_bytes = static_cast<size_t>(shape.tile_bytes);
  const WeightParts parts(shape, !source.input_order.empty());
  ASSIGN_OR_RETURN(Memory memory, Memory::make(device_, parts.bytes()));
  auto* const data = memory.as<std::byte>();
  const int at_once = std::max(1, static_cast<int>(StagedCopies::kPieceBytes / tile_bytes));
  for (int first = 0; first < n_tiles; first += at_once) {
    const int n = std::min(at_once, n_tiles - first);
    ASSIGN_OR_RETURN(const std::span<std::byte> staged,
                     copies_.next(static_cast<size_t>(n) * tile_bytes));
    pool_.for_ranges(n, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        std::byte* const to = staged.data() + static_cast<size_t>(i) * tile_bytes;
        std::memset(to, 0, tile_bytes);
        pack_tile(source, first + static_cast<int>(i), to);
      }
    });
    copies_.send(data + static_cast<size_t>(first) * tile_bytes);
  }
  device_.copy_in(data + parts.levels_at(), source.levels.data(),
                  source.levels.size() * sizeof(float));
  device_.copy_in(data + parts.order_at(), source.input_order.data(),
                  source.input_order.size() * sizeof(int32_t));
  RETURN_IF_ERROR(device_.status());
  return weight_at(std::move(memory), shape, parts, source.rounding, source.levels);
}

Result<std::unique_ptr<Weight>> WeightPacker::put_back(const WeightOnDevice& shape,
                                                       const WeightParts& parts,
                                                       InputRounding rounding,
                                                       std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(Memory memory, Memory::make(device_, parts.bytes()));
  // kPart: bytes per task of the thread pool
  constexpr size_t kPiece = StagedCopies::kPieceBytes, kPart = size_t{1} << 20;
  for (size_t first = 0; first < bytes.size(); first += kPiece) {
    const std::span<const std::byte> from =
        bytes.subspan(first, std::min(kPiece, bytes.size() - first));
    ASSIGN_OR_RETURN(const std::span<std::byte> staged, copies_.next(from.size()));
    pool_.for_ranges(
        static_cast<int64_t>(from.size()), kPart, [&](int64_t begin, int64_t end, int) {
          std::memcpy(staged.data() + begin, from.data() + begin, static_cast<size_t>(end - begin));
        });
    copies_.send(memory.as<std::byte>() + first);
  }
  RETURN_IF_ERROR(device_.status());
  std::vector<float> levels((parts.order_at() - parts.levels_at()) / sizeof(float));
  std::memcpy(levels.data(), bytes.data() + parts.levels_at(), levels.size() * sizeof(float));
  return weight_at(std::move(memory), shape, parts, rounding, levels);
}

}  // namespace penstock::cuda
