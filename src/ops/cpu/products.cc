#include "ops/cpu/products.h"

#include <new>

#include "base/check.h"
#include "ops/cpu/host_tensor.h"

namespace penstock {
namespace {

constexpr int kPaddedUnit = 256;     // a multiple of every layout's unit
constexpr int kFewRows = 4;          // less work than starting the workers
constexpr int kDropBytes = 4 << 20;  // of a file at once: little memory, few calls

int padded_cols(Tensor x) { return (x.cols + kPaddedUnit - 1) / kPaddedUnit * kPaddedUnit; }

const CpuWeight& cpu_weight(const LinearTarget& target) {
  return static_cast<const CpuWeight&>(*target.weight);
}

// From the columns of this panel on.
GemmOutput output_of(const LinearTarget& target, int panel) {
  const ptrdiff_t first = ptrdiff_t{panel} * kPanelRows;
  const float* bias = data_of(target.bias);
  return {f32(target.out) + first, target.out.row_stride, bias == nullptr ? nullptr : bias + first};
}

}  // namespace

GemmChoice choose_gemm(const LinearContext& context, const CpuWeight& weight, int n_rows) {
  return choose_gemm(GemmPlans::of(context.kernels), weight.panels().type,
                     weight.rounding().one_scale(), n_rows, context.traits);
}

// --- RoundedRows

RoundedRows::RoundedRows(Arena& arena, Tensor x, const ActivationRounding& rounding, int block_rows)
    : x_(x),
      rounding_(rounding),
      padded_(padded_cols(x)),
      n_steps_(padded_ / 32),
      block_(block_rows) {
  const auto n = static_cast<size_t>(n_rows());
  values_ = arena.allocate_array<int8_t>(n * static_cast<size_t>(padded_));
  groups_ = arena.allocate_array<ActivationGroup>(n * static_cast<size_t>(n_steps_));
  halves_ = arena.allocate_array<ActivationHalves>(n * static_cast<size_t>(n_steps_));
}

void RoundedRows::make(const GemmKernels& kernels, int begin, int end) const {
  for (int m = begin; m < end; ++m) {
    const bool exists = m < x_.rows;
    if (exists && from_ != nullptr) {
      copy_row(m);
      continue;
    }
    kernels.quantize_row(exists ? f32(x_, m) : nullptr, exists ? x_.cols : 0, padded_, rounding_,
                         block_, values_ + first_of(m) * 32, groups_ + first_of(m),
                         halves_ + first_of(m));
  }
}

void RoundedRows::copy_row(int m) const {
  ptrdiff_t from = from_->first_of(from_rows_[m]), to = first_of(m);
  for (int step = 0; step < n_steps_; ++step, from += from_->block_, to += block_) {
    std::copy_n(from_->values_ + from * 32, 32, values_ + to * 32);
    groups_[to] = from_->groups_[from], halves_[to] = from_->halves_[from];
  }
}

// --- Activations

Activations::Form Activations::wanted(const CpuWeight& weight, const GemmChoice& choice) {
  Form form{Kind::kFloats, weight.input_order(), {}, choice.block_rows};
  switch (choice.path()) {
    case GemmPath::kF32: break;
    case GemmPath::kInt8:
    case GemmPath::kInt8Tiles: form.kind = Kind::kInt8; break;
    case GemmPath::kInt8RowTiles: form.kind = Kind::kInt8Tiles; break;
    case GemmPath::kBf16Tiles: form.kind = Kind::kBf16Tiles; break;
  }
  if (form.kind == Kind::kInt8 || form.kind == Kind::kInt8Tiles) form.rounding = weight.rounding();
  return form;
}

Activations::Activations(const LinearContext& context, Tensor x, const Form& form,
                         const PickedRows& picked)
    : x_(x), ordered_(x), form_(form) {
  Arena& arena = context.scratch.linear;
  if (form.order != nullptr) {
    ordered_.data =
        arena.allocate_array<float>(static_cast<size_t>(x.rows) * static_cast<size_t>(x.cols));
    ordered_.row_stride = x.cols;
  }
  if (form.kind == Kind::kInt8) {
    int8_ = RoundedRows(arena, ordered_, form.rounding, form.block_rows);
    if (picked.of != nullptr) {
      PENSTOCK_CHECK(form.order == nullptr && form.rounding == picked.of->rounding());
      int8_.copy_from(*picked.of, picked.rows);
    }
  } else if (form.kind != Kind::kFloats) {
    const TileKernels& tiles = *context.kernels.tiles;
    const auto bytes_of =
        form.kind == Kind::kInt8Tiles ? tiles.int8_tile_bytes : tiles.bf16_tile_bytes;
    tiles_ = static_cast<uint8_t*>(arena.allocate(bytes_of(x.rows, padded_cols(x))));
  }
}

void Activations::make(const LinearContext& context, int begin, int end) const {
  if (form_.order != nullptr) {
    for (int m = begin; m < end; ++m) {
      const float* from = f32(x_, m);
      float* to = f32(ordered_, m);
      for (int j = 0; j < x_.cols; ++j) to[j] = from[(*form_.order)[static_cast<size_t>(j)]];
    }
  }
  const TileKernels* tiles = context.kernels.tiles;
  const FloatRows rows{f32(ordered_), ordered_.row_stride};
  switch (form_.kind) {
    case Kind::kFloats: break;
    case Kind::kInt8:
      return int8_.make(*context.kernels.gemm, begin, end == x_.rows ? int8_.n_rows() : end);
    case Kind::kInt8Tiles:
      return tiles->pack_int8(rows, x_.rows, begin, end - begin, x_.cols, padded_cols(x_),
                              form_.rounding, tiles_);
    case Kind::kBf16Tiles:
      return tiles->pack_bf16(rows, x_.rows, begin, end - begin, x_.cols, padded_cols(x_), tiles_);
  }
}

void Activations::run(const LinearContext& context, const PanelMatrix& w, const GemmChoice& choice,
                      int begin, int end, const GemmOutput& out, uint8_t* tiles_scratch) const {
  const auto type = static_cast<size_t>(w.type);
  const GemmKernels& vectors = *context.kernels.gemm;
  const TileKernels* tiles = context.kernels.tiles;
  const size_t plan = choice.index;
  const int n_rows = x_.rows;
  switch (choice.path()) {
    case GemmPath::kF32:
      return vectors.f32[type][plan](w, {f32(ordered_), ordered_.row_stride}, n_rows, begin, end,
                                     out);
    case GemmPath::kInt8: return vectors.int8[type][plan](w, int8_.rows(), n_rows, begin, end, out);
    case GemmPath::kInt8Tiles:
      return tiles->int8[type][plan](w, int8_.rows(), n_rows, begin, end, out);
    case GemmPath::kInt8RowTiles:
    case GemmPath::kBf16Tiles:
      return tiles->tiles[type][plan](w, tiles_, n_rows, begin, end, out, tiles_scratch);
  }
}

// --- RowProducts

RowProducts::RowProducts(const LinearContext& context, Tensor x,
                         std::span<const LinearTarget> targets, const PickedRows& picked)
    : targets_(targets),
      n_rows_(x.rows),
      forms_(context.scratch.linear.allocate_array<Activations>(targets.size())),
      jobs_(context.scratch.linear.allocate_array<Job>(targets.size())) {
  for (size_t i = 0; i < targets.size(); ++i) {
    const CpuWeight& weight = cpu_weight(targets[i]);
    PENSTOCK_CHECK(weight.panels().cols == x.cols && weight.panels().rows == targets[i].out.cols &&
                   targets[i].out.rows == x.rows);
    const GemmChoice choice = choose_gemm(context, weight, x.rows);
    const Activations::Form form = Activations::wanted(weight, choice);
    const auto same = std::find_if(forms_, forms_ + n_forms_,
                                   [&](const Activations& other) { return other.form() == form; });
    if (same == forms_ + n_forms_) new (&forms_[n_forms_++]) Activations(context, x, form, picked);
    LatePanels* late = weight.late();
    const bool keeps = late != nullptr && context.scratch.bytes_to_keep > 0 && late->claim();
    if (keeps) context.scratch.bytes_to_keep -= weight.packed_bytes();
    jobs_[i] = {choice, same, late, keeps};
    needs_.add({choice.needs_tiles(), late != nullptr && !keeps ? late->buffer_bytes() : 0});
  }
}

// What streams of memory need to get going, or a block of tiles.
int64_t RowProducts::run_grain() const {
  if (n_rows_ > 32) return has_tiles() ? 16 : 4;
  return 8;
}

void RowProducts::make(const LinearContext& context, int begin, int end) const {
  for (int i = 0; i < n_forms_; ++i) forms_[i].make(context, begin, end);
}

void RowProducts::run(const LinearContext& context, size_t i, int64_t begin, int64_t end,
                      const WorkerBuffers& buffers) const {
  const Job& job = jobs_[i];
  if (job.late != nullptr)
    return run_late(context, i, static_cast<int>(begin), static_cast<int>(end), buffers);
  const LinearTarget& target = targets_[i];
  job.activations->run(context, cpu_weight(target).panels(), job.choice, static_cast<int>(begin),
                       static_cast<int>(end), output_of(target, 0), buffers.tiles);
}

// As many panels as stay in the cache are packed, then multiplied with.
void RowProducts::run_late(const LinearContext& context, size_t i, int begin, int end,
                           const WorkerBuffers& buffers) const {
  const Job& job = jobs_[i];
  const LinearTarget& target = targets_[i];
  const int n_to_drop =
      std::max(1, kDropBytes / static_cast<int>(cpu_weight(target).panels().panel_bytes));
  int first_to_drop = begin;
  for (int n = 0, at = begin; at < end; at += n) {
    n = std::min(end - at, job.late->n_at_once());
    if (job.keeps) {
      job.late->keep(at, at + n);
      job.activations->run(context, cpu_weight(target).panels(), job.choice, at, at + n,
                           output_of(target, 0), buffers.tiles);
      if (at + n < end && at + n - first_to_drop < n_to_drop) continue;
      job.late->kept(first_to_drop, at + n);
      first_to_drop = at + n;
    } else {
      const PanelMatrix copy = job.late->copy(at, n, buffers.late);
      job.activations->run(context, copy, job.choice, 0, n, output_of(target, at), buffers.tiles);
    }
  }
}

void make_rows(const LinearContext& context, const RowProducts& products) {
  if (products.n_rows() <= kFewRows) return products.make(context, 0, products.n_rows());
  context.pool.for_ranges(products.n_rows(), products.make_grain(),
                          [&](int64_t begin, int64_t end, int) {
                            products.make(context, static_cast<int>(begin), static_cast<int>(end));
                          });
}

}  // namespace penstock
