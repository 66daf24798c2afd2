#include "ops/cpu/linear.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/gemm_kernels.h"
#include "ops/cpu/weight.h"

namespace penstock {
namespace {

// Which kernel computes a product.
enum class Path : uint8_t { kF32, kInt8, kInt8Tiles, kBf16Tiles };

constexpr int kMinBf16Rows = 32;  // from here on unpacking panels to BF16 pays

int index_of(const PanelMatrix& w) { return static_cast<int>(w.type); }

Path choose_path(const LinearContext& context, const PanelMatrix& w, int n_rows) {
  const TileKernels* tiles = context.kernels.tiles;
  if (tiles != nullptr) {
    if (!context.batch_invariant && n_rows >= kMinBf16Rows && tiles->bf16[index_of(w)] != nullptr) {
      return Path::kBf16Tiles;
    }
    if (n_rows >= TileKernels::kMinInt8Rows && tiles->int8[index_of(w)] != nullptr) return Path::kInt8Tiles;
  }
  return context.kernels.gemm->int8[index_of(w)] != nullptr ? Path::kInt8 : Path::kF32;
}

// Ternary weights belong to models trained with one activation scale per token.
bool wants_one_scale(const PanelMatrix& w) {
  return w.type == QuantType::kTQ1_0 || w.type == QuantType::kTQ2_0;
}

// The activations of a call in every form its targets need.
struct Activations {
  FloatRows floats{};
  Int8Rows grouped{}, one_scale{};
  const uint8_t* bf16 = nullptr;
};

constexpr int kInt8Unit = 256;  // a multiple of every layout's unit

Int8Rows quantize(const LinearContext& context, Tensor x, bool one_scale) {
  const int padded = (x.cols + kInt8Unit - 1) / kInt8Unit * kInt8Unit, n_steps = padded / 32;
  const int block = int8_block_rows(x.rows), n_padded = (x.rows + block - 1) / block * block;
  auto* values = context.scratch.linear.allocate_array<int8_t>(static_cast<size_t>(n_padded) * padded);
  auto* groups =
      context.scratch.linear.allocate_array<ActivationGroup>(static_cast<size_t>(n_padded) * n_steps);
  const auto quantize_rows = [&](int64_t begin, int64_t end, int) {
    for (int m = static_cast<int>(begin); m < end; ++m) {
      const ptrdiff_t first = static_cast<ptrdiff_t>(m / block) * n_steps * block + m % block;
      context.kernels.gemm->quantize_row(m < x.rows ? x.f32(m) : nullptr, m < x.rows ? x.cols : 0, padded,
                                         one_scale, block, values + first * 32, groups + first);
    }
  };
  if (n_padded <= 4) {
    quantize_rows(0, n_padded, 0);  // less work than starting the workers
  } else {
    context.pool.for_ranges(n_padded, 1, quantize_rows);
  }
  return {values, groups, block, n_steps};
}

const uint8_t* pack_bf16(const LinearContext& context, Tensor x) {
  const TileKernels& tiles = *context.kernels.tiles;
  const int padded = (x.cols + kInt8Unit - 1) / kInt8Unit * kInt8Unit;
  auto* buffer =
      static_cast<uint8_t*>(context.scratch.linear.allocate(tiles.bf16_tile_bytes(x.rows, padded)));
  context.pool.for_ranges(x.rows, 16, [&](int64_t begin, int64_t end, int) {
    tiles.pack_bf16({x.f32(), x.row_stride}, x.rows, static_cast<int>(begin), static_cast<int>(end - begin),
                    x.cols, padded, buffer);
  });
  return buffer;
}

void run_panels(const LinearContext& context, const LinearTarget& target, Path path, const Activations& x,
                int n_rows, int begin, int end, uint8_t* scratch) {
  const PanelMatrix& w = static_cast<const CpuWeight&>(*target.weight).panels();
  const GemmOutput out{target.out.f32(), target.out.row_stride, target.bias};
  const Int8Rows& int8 = wants_one_scale(w) ? x.one_scale : x.grouped;
  const int type = index_of(w);
  switch (path) {
    case Path::kF32:
      return context.kernels.gemm->f32[type](w, x.floats, n_rows, begin, end, out);
    case Path::kInt8:
      return context.kernels.gemm->int8[type](w, int8, n_rows, begin, end, out);
    case Path::kInt8Tiles:
      return context.kernels.tiles->int8[type](w, int8, n_rows, begin, end, out);
    case Path::kBf16Tiles:
      return context.kernels.tiles->bf16[type](w, x.bf16, n_rows, begin, end, out, scratch);
  }
}

}  // namespace

void cpu_linear(const LinearContext& context, Tensor x, std::span<const LinearTarget> targets) {
  if (x.rows == 0) return;
  context.scratch.linear.reset();
  Activations activations{{x.f32(), x.row_stride}};
  int n_panels = 0;
  for (const LinearTarget& target : targets) {
    const PanelMatrix& w = static_cast<const CpuWeight&>(*target.weight).panels();
    PENSTOCK_CHECK(w.cols == x.cols && w.rows == target.out.cols && target.out.rows == x.rows);
    n_panels += w.n_panels();
    const Path path = choose_path(context, w, x.rows);
    if (path == Path::kInt8 || path == Path::kInt8Tiles) {
      Int8Rows& int8 = wants_one_scale(w) ? activations.one_scale : activations.grouped;
      if (int8.values == nullptr) int8 = quantize(context, x, wants_one_scale(w));
    } else if (path == Path::kBf16Tiles && activations.bf16 == nullptr) {
      activations.bf16 = pack_bf16(context, x);
    }
  }
  uint8_t* scratch = nullptr;
  const size_t scratch_bytes = activations.bf16 != nullptr ? context.kernels.tiles->scratch_bytes : 0;
  if (scratch_bytes > 0) {
    scratch = static_cast<uint8_t*>(context.scratch.linear.allocate(scratch_bytes * context.pool.size()));
  }
  // One parallel region for all targets: each worker takes a range of their panels laid end to end.
  const int64_t grain = activations.bf16 != nullptr ? 2 : 1;
  context.pool.for_ranges(n_panels, grain, [&](int64_t begin, int64_t end, int worker) {
    int64_t first = 0;  // of the target, in the concatenation
    for (const LinearTarget& target : targets) {
      const PanelMatrix& w = static_cast<const CpuWeight&>(*target.weight).panels();
      const int64_t b = std::max(begin - first, int64_t{0});
      const int64_t e = std::min<int64_t>(end - first, w.n_panels());
      if (b < e) {
        run_panels(context, target, choose_path(context, w, x.rows), activations, x.rows, static_cast<int>(b),
                   static_cast<int>(e), scratch + worker * scratch_bytes);
      }
      first += w.n_panels();
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
      weight.decode_row(ids[t], row);
      float* to = out.f32(static_cast<int>(t));
      for (int i = 0; i < out.cols; ++i) to[i] = (add ? to[i] : 0.0f) + row[i] * scale;
    }
  });
}

}  // namespace penstock
