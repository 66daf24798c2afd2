#include "ops/cpu/linear.h"

#include <algorithm>
#include <new>
#include <optional>

#include "base/check.h"
#include "kernels/gemm_kernels.h"
#include "kernels/vector_kernels.h"
#include "ops/cpu/adapters.h"
#include "ops/cpu/host_tensor.h"
#include "ops/cpu/weight.h"

namespace penstock {
namespace {

// Which kernel computes a product.
enum class Path : uint8_t { kF32, kInt8, kInt8Tiles, kInt8RowTiles, kBf16Tiles };

// Panels of floats go to the matrix units from here on: without these they are computed with in F32, where
// every few rows cost as much as reading the weights.
constexpr int kMinFloatTileRows = 3;

int index_of(const PanelMatrix& w) { return static_cast<int>(w.type); }

const CpuWeight& cpu_weight(const LinearTarget& target) {
  return static_cast<const CpuWeight&>(*target.weight);
}

Path choose_path(const LinearContext& context, const CpuWeight& weight, int n_rows) {
  const TileKernels* tiles = context.kernels.tiles;
  const int type = index_of(weight.panels());
  if (tiles != nullptr) {
    const bool whole = weight.rounding().one_scale() && tiles->int8_rows[type] != nullptr;
    if (whole && n_rows >= TileKernels::kMinRowTileRows) return Path::kInt8RowTiles;
    const bool floats = context.kernels.gemm->int8[type] == nullptr;
    if (!whole && !context.batch_invariant && tiles->bf16[type] != nullptr &&
        n_rows >= (floats ? kMinFloatTileRows : TileKernels::kMinBf16Rows)) {
      return Path::kBf16Tiles;
    }
    if (n_rows >= TileKernels::kMinInt8Rows && tiles->int8[type] != nullptr) return Path::kInt8Tiles;
  }
  return context.kernels.gemm->int8[type] != nullptr ? Path::kInt8 : Path::kF32;
}

// The activations as one kind of kernel wants them, for all targets that want the same.
struct Form {
  enum class Kind : uint8_t { kFloats, kInt8, kInt8Tiles, kBf16Tiles };
  Kind kind = Kind::kFloats;
  const InputOrder* order = nullptr;  // null: as they are
  ActivationRounding rounding;        // of the int8 kinds

  bool operator==(const Form&) const = default;
};

Form wanted_form(const CpuWeight& weight, Path path) {
  Form form{Form::Kind::kFloats, weight.input_order(), {}};
  if (path == Path::kBf16Tiles) form.kind = Form::Kind::kBf16Tiles;
  if (path == Path::kInt8RowTiles) form.kind = Form::Kind::kInt8Tiles;
  if (path == Path::kInt8 || path == Path::kInt8Tiles) form.kind = Form::Kind::kInt8;
  if (form.kind == Form::Kind::kInt8 || form.kind == Form::Kind::kInt8Tiles)
    form.rounding = weight.rounding();
  return form;
}

struct Activations {
  Form form;
  FloatRows floats{};
  Int8Rows int8{};
  const uint8_t* tiles = nullptr;
};

constexpr int kPaddedUnit = 256;  // a multiple of every layout's unit

int padded_cols(Tensor x) { return (x.cols + kPaddedUnit - 1) / kPaddedUnit * kPaddedUnit; }

// Rows of whole numbers that are still to be made of x.
class RoundedRows {
 public:
  RoundedRows() = default;
  RoundedRows(const LinearContext& context, Tensor x, const ActivationRounding& rounding)
      : x_(x),
        rounding_(rounding),
        padded_(padded_cols(x)),
        n_steps_(padded_ / 32),
        block_(int8_block_rows(x.rows)) {
    const auto n = static_cast<size_t>(n_rows());
    values_ = context.scratch.linear.allocate_array<int8_t>(n * static_cast<size_t>(padded_));
    groups_ = context.scratch.linear.allocate_array<ActivationGroup>(n * static_cast<size_t>(n_steps_));
  }
  // Whole blocks.
  int n_rows() const { return (x_.rows + block_ - 1) / block_ * block_; }
  void make(const GemmKernels& kernels, int begin, int end) const {
    for (int m = begin; m < end; ++m) {
      const ptrdiff_t first = static_cast<ptrdiff_t>(m / block_) * n_steps_ * block_ + m % block_;
      kernels.quantize_row(m < x_.rows ? f32(x_, m) : nullptr, m < x_.rows ? x_.cols : 0, padded_, rounding_,
                           block_, values_ + first * 32, groups_ + first);
    }
  }
  Int8Rows rows() const { return {values_, groups_, block_, n_steps_, rounding_.one_scale()}; }

 private:
  Tensor x_;
  ActivationRounding rounding_;
  int padded_ = 0, n_steps_ = 0, block_ = 1;
  int8_t* values_ = nullptr;
  ActivationGroup* groups_ = nullptr;
};

Int8Rows quantize(const LinearContext& context, Tensor x, const ActivationRounding& rounding) {
  const RoundedRows rounded(context, x, rounding);
  const int n = rounded.n_rows();
  if (n <= 4) {
    rounded.make(*context.kernels.gemm, 0, n);  // less work than starting the workers
  } else {
    context.pool.for_ranges(n, 1, [&](int64_t begin, int64_t end, int) {
      rounded.make(*context.kernels.gemm, static_cast<int>(begin), static_cast<int>(end));
    });
  }
  return rounded.rows();
}

const uint8_t* pack_tiles(const LinearContext& context, Tensor x, const Form& form) {
  const TileKernels& tiles = *context.kernels.tiles;
  const int padded = padded_cols(x);
  const bool int8 = form.kind == Form::Kind::kInt8Tiles;
  const size_t bytes = (int8 ? tiles.int8_tile_bytes : tiles.bf16_tile_bytes)(x.rows, padded);
  auto* buffer = static_cast<uint8_t*>(context.scratch.linear.allocate(bytes));
  context.pool.for_ranges(x.rows, x.rows <= 32 ? 1 : 16, [&](int64_t begin, int64_t end, int) {
    const int first = static_cast<int>(begin), n = static_cast<int>(end - begin);
    if (int8) {
      tiles.pack_int8({f32(x), x.row_stride}, x.rows, first, n, x.cols, padded, form.rounding, buffer);
    } else {
      tiles.pack_bf16({f32(x), x.row_stride}, x.rows, first, n, x.cols, padded, buffer);
    }
  });
  return buffer;
}

Tensor permute(const LinearContext& context, Tensor x, const InputOrder& order) {
  Tensor out = x;
  out.data = context.scratch.linear.allocate_array<float>(static_cast<size_t>(x.rows) * x.cols);
  out.row_stride = x.cols;
  const auto permute_rows = [&](int64_t begin, int64_t end, int) {
    for (int m = static_cast<int>(begin); m < end; ++m) {
      const float* from = f32(x, m);
      float* to = f32(out, m);
      for (int j = 0; j < x.cols; ++j) to[j] = from[order[static_cast<size_t>(j)]];
    }
  };
  if (x.rows <= 4) {
    permute_rows(0, x.rows, 0);
  } else {
    context.pool.for_ranges(x.rows, 1, permute_rows);
  }
  return out;
}

// The forms of one call; few, for its targets mostly want the same.
class FormList {
 public:
  static constexpr int kMost = 8;

  FormList(const LinearContext& context, Tensor x) : context_(context), x_(x) {}

  const Activations& get(const Form& form) {
    for (int i = 0; i < n_; ++i) {
      if (forms_[i].form == form) return forms_[i];
    }
    PENSTOCK_CHECK(n_ < kMost);
    const Tensor x = form.order != nullptr ? ordered(*form.order) : x_;
    Activations& a = forms_[n_];
    a = {form, {f32(x), x.row_stride}};
    if (form.kind == Form::Kind::kInt8) {
      a.int8 = quantize(context_, x, form.rounding);
    } else if (form.kind != Form::Kind::kFloats) {
      a.tiles = pack_tiles(context_, x, form);
      has_tiles_ = true;
    }
    return forms_[n_++];
  }
  bool has_tiles() const { return has_tiles_; }

 private:
  Tensor ordered(const InputOrder& order) {
    for (int i = 0; i < n_; ++i) {
      if (forms_[i].form.order != &order) continue;
      Tensor x = x_;
      x.data = const_cast<float*>(forms_[i].floats.values);
      x.row_stride = forms_[i].floats.stride;
      return x;
    }
    return permute(context_, x_, order);
  }

  const LinearContext& context_;
  Tensor x_;
  Activations forms_[kMost];
  int n_ = 0;
  bool has_tiles_ = false;
};

void run_panels(const LinearContext& context, const LinearTarget& target, Path path, const Activations& x,
                int n_rows, int begin, int end, uint8_t* scratch) {
  const PanelMatrix& w = cpu_weight(target).panels();
  const GemmOutput out{f32(target.out), target.out.row_stride, data_of(target.bias)};
  const int type = index_of(w);
  switch (path) {
    case Path::kF32: return context.kernels.gemm->f32[type](w, x.floats, n_rows, begin, end, out);
    case Path::kInt8: return context.kernels.gemm->int8[type](w, x.int8, n_rows, begin, end, out);
    case Path::kInt8Tiles: return context.kernels.tiles->int8[type](w, x.int8, n_rows, begin, end, out);
    case Path::kInt8RowTiles:
      return context.kernels.tiles->int8_rows[type](w, x.tiles, n_rows, begin, end, out, scratch);
    case Path::kBf16Tiles:
      return context.kernels.tiles->bf16[type](w, x.tiles, n_rows, begin, end, out, scratch);
  }
}

// Panels that a worker takes at once, at least: what streams of memory need to get going, or a block of
// tiles.
int64_t piece_panels(const FormList& forms, int n_rows) {
  if (n_rows > 32) return forms.has_tiles() ? 16 : 4;
  return 8;
}

// Products of one tensor with a few weights, made ready for the workers.
class Products {
 public:
  Products(const LinearContext& context, Tensor x, std::span<const LinearTarget> targets)
      : context_(context), targets_(targets), n_rows_(x.rows), forms_(ready(context), x) {
    for (size_t i = 0; i < targets.size(); ++i) {
      const CpuWeight& weight = cpu_weight(targets[i]);
      const PanelMatrix& w = weight.panels();
      PENSTOCK_CHECK(w.cols == x.cols && w.rows == targets[i].out.cols && targets[i].out.rows == x.rows);
      const Path path = choose_path(context, weight, x.rows);
      jobs_[i] = {path, &forms_.get(wanted_form(weight, path))};
    }
    scratch_bytes_ = forms_.has_tiles() ? context.kernels.tiles->scratch_bytes : 0;
    if (scratch_bytes_ > 0)
      scratch_ = static_cast<uint8_t*>(context.scratch.linear.allocate(scratch_bytes_ * context.pool.size()));
    adapters_.emplace(context, x, targets);
  }

  int n_panels(size_t i) const { return cpu_weight(targets_[i]).panels().n_panels(); }
  int64_t grain() const { return piece_panels(forms_, n_rows_); }
  // Panels [begin, end) of target i.
  void run(size_t i, int64_t begin, int64_t end, int worker) const {
    run_panels(context_, targets_[i], jobs_[i].path, *jobs_[i].activations, n_rows_, static_cast<int>(begin),
               static_cast<int>(end), scratch_ + worker * scratch_bytes_);
    adapters_->add(i, static_cast<int>(begin), static_cast<int>(end), worker);
  }

 private:
  struct Job {
    Path path;
    const Activations* activations;
  };
  static const LinearContext& ready(const LinearContext& context) {
    context.scratch.linear.reset();
    return context;
  }

  const LinearContext& context_;
  const std::span<const LinearTarget> targets_;
  const int n_rows_;
  FormList forms_;
  Job jobs_[FormList::kMost];
  uint8_t* scratch_ = nullptr;
  size_t scratch_bytes_ = 0;
  std::optional<AdapterProducts> adapters_;
};

// One parallel region for all targets: each worker takes pieces of their panels laid end to end.
void run_targets(const LinearContext& context, Tensor x, std::span<const LinearTarget> targets) {
  const Products products(context, x, targets);
  int64_t n_panels = 0;
  for (size_t i = 0; i < targets.size(); ++i) n_panels += products.n_panels(i);
  context.pool.for_pieces(n_panels, products.grain(), [&](int64_t begin, int64_t end, int worker) {
    int64_t first = 0;  // of the target, in the concatenation
    for (size_t i = 0; i < targets.size(); ++i) {
      const int64_t b = std::max(begin - first, int64_t{0});
      const int64_t e = std::min<int64_t>(end - first, products.n_panels(i));
      if (b < e) products.run(i, b, e, worker);
      first += products.n_panels(i);
    }
  });
}

// Rows that are multiplied with a head's weight from which on all threads share the product.
constexpr int kManyHeadRows = 64;

// What needs matrix units, or another order of the columns, is made for a whole product at a time.
bool alone(const LinearContext& context, const CpuWeight& weight, int n_rows) {
  const Path path = choose_path(context, weight, n_rows);
  return n_rows >= kManyHeadRows || weight.input_order() != nullptr ||
         (path != Path::kF32 && path != Path::kInt8);
}

// One head's product, by one thread.
struct HeadProduct {
  LinearTarget target;
  Tensor x;
  Path path = Path::kF32;
  RoundedRows rounded;

  void run(const LinearContext& context) const {
    Activations activations;
    activations.floats = {f32(x), x.row_stride};
    if (path == Path::kInt8) {
      rounded.make(*context.kernels.gemm, 0, rounded.n_rows());
      activations.int8 = rounded.rows();
    }
    run_panels(context, target, path, activations, x.rows, 0, cpu_weight(target).panels().n_panels(),
               nullptr);
  }
};

HeadProduct head_product(const LinearContext& context, Tensor x, const Weight& weight, Tensor out) {
  HeadProduct product{{&weight, nullptr, out}, x, Path::kF32, {}};
  const CpuWeight& w = cpu_weight(product.target);
  PENSTOCK_CHECK(w.panels().cols == x.cols && w.panels().rows == out.cols && out.rows == x.rows);
  product.path = choose_path(context, w, x.rows);
  if (product.path == Path::kInt8) product.rounded = RoundedRows(context, x, w.rounding());
  return product;
}

}  // namespace

void cpu_linear_by_head(const LinearContext& context, Tensor x,
                        std::span<const std::unique_ptr<Weight>> weights, Tensor out) {
  const auto n = static_cast<int>(weights.size());
  if (x.rows == 0 || n == 0) return;
  const auto is_alone = [&](const std::unique_ptr<Weight>& weight) {
    return alone(context, static_cast<const CpuWeight&>(*weight), x.rows / n);
  };
  if (std::ranges::any_of(weights, is_alone)) {
    for (int h = 0; h < n; ++h) {
      const LinearTarget target{weights[static_cast<size_t>(h)].get(), nullptr, out.every(h, n)};
      run_targets(context, x.every(h, n), {&target, 1});
    }
    return;
  }
  context.scratch.linear.reset();
  auto* products = context.scratch.linear.allocate_array<HeadProduct>(weights.size());
  for (int h = 0; h < n; ++h) {
    new (&products[h])
        HeadProduct(head_product(context, x.every(h, n), *weights[static_cast<size_t>(h)], out.every(h, n)));
  }
  context.pool.for_pieces(n, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t h = begin; h < end; ++h) products[h].run(context);
  });
}

void cpu_linear(const LinearContext& context, Tensor x, std::span<const LinearTarget> targets) {
  if (x.rows == 0) return;
  for (size_t first = 0; first < targets.size(); first += FormList::kMost) {
    run_targets(context, x,
                targets.subspan(first, std::min<size_t>(FormList::kMost, targets.size() - first)));
  }
}

void cpu_gated_linear(const LinearContext& context, Tensor x, const LinearTarget& gate,
                      const LinearTarget& up, const ActivationFunction& f, Tensor out) {
  if (x.rows == 0) return;
  const LinearTarget both[] = {gate, up};
  const Products products(context, x, both);
  PENSTOCK_CHECK(gate.out.cols == up.out.cols && out.cols == up.out.cols && out.rows == x.rows);
  context.pool.for_pieces(
      products.n_panels(0), products.grain(), [&](int64_t begin, int64_t end, int worker) {
        products.run(0, begin, end, worker);
        products.run(1, begin, end, worker);
        const auto first = static_cast<int>(begin) * kPanelRows;
        const int n = std::min(static_cast<int>(end) * kPanelRows, out.cols) - first;
        for (int row = 0; row < x.rows; ++row) {
          context.kernels.vector->activate_mul(f32(gate.out, row) + first, f32(up.out, row) + first, f, n,
                                               f32(out, row) + first);
        }
      });
}

void cpu_embed(const LinearContext& context, const Weight& table, std::span<const int32_t> ids, float scale,
               Tensor out, bool add) {
  const auto& weight = static_cast<const CpuWeight&>(table);
  PENSTOCK_CHECK(weight.cols() == out.cols);
  context.scratch.linear.reset();
  const size_t cols = static_cast<size_t>(out.cols);
  float* scratch = context.scratch.linear.allocate_array<float>(cols * context.pool.size());
  context.pool.for_ranges(static_cast<int64_t>(ids.size()), 4, [&](int64_t begin, int64_t end, int worker) {
    float* row = scratch + cols * worker;
    for (int64_t t = begin; t < end; ++t) {
      weight.decode_row(ids[t] < weight.rows() ? ids[t] : 0, row);
      float* to = f32(out, static_cast<int>(t));
      for (int i = 0; i < out.cols; ++i) to[i] = (add ? to[i] : 0.0f) + row[i] * scale;
    }
  });
}

}  // namespace penstock
