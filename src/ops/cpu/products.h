// Products of rows of activations with packed weights, made ready for the workers: which kernel
// computes each (gemm_choice.h), and the activations in the form that the kernel wants. What runs
// them together is in linear.h.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/gemm_kernels.h"
#include "ops/cpu/gemm_choice.h"
#include "ops/cpu/linear.h"
#include "ops/cpu/weight.h"

namespace penstock {

GemmChoice choose_gemm(const LinearContext& context, const CpuWeight& weight, int n_rows);

// Rows of whole numbers that are still to be made of x.
class RoundedRows {
 public:
  RoundedRows() = default;
  RoundedRows(Arena& arena, Tensor x, const ActivationRounding& rounding, int block_rows);
  // Row m is row rows[m] of x, of which `from` has been made: it is copied, and x is not read.
  void copy_from(const RoundedRows& from, const int* rows) { from_ = &from, from_rows_ = rows; }

  const ActivationRounding& rounding() const { return rounding_; }
  // Whole blocks: the rows beyond those of x are zeros.
  int n_rows() const { return (x_.rows + block_ - 1) / block_ * block_; }
  void make(const GemmKernels& kernels, int begin, int end) const;
  Int8Rows rows() const {
    return {values_, groups_, halves_, block_, n_steps_, rounding_.one_scale()};
  }

 private:
  // Where step 0 of row m lies; the next step is block_ further.
  ptrdiff_t first_of(int m) const {
    return static_cast<ptrdiff_t>(m / block_) * n_steps_ * block_ + m % block_;
  }
  void copy_row(int m) const;

  Tensor x_;
  ActivationRounding rounding_;
  int padded_ = 0, n_steps_ = 0, block_ = 1;
  int8_t* values_ = nullptr;
  ActivationGroup* groups_ = nullptr;
  ActivationHalves* halves_ = nullptr;
  const RoundedRows* from_ = nullptr;
  const int* from_rows_ = nullptr;
};

// Rows of a tensor that has been rounded: what is computed with are rows[0], rows[1], ... of it.
struct PickedRows {
  const RoundedRows* of = nullptr;  // null: nothing is rounded yet
  const int* rows = nullptr;
};

// The activations as one kind of kernel wants them, for all weights that want the same.
class Activations {
 public:
  enum class Kind : uint8_t { kFloats, kInt8, kInt8Tiles, kBf16Tiles };
  struct Form {
    Kind kind = Kind::kFloats;
    const InputOrder* order = nullptr;  // null: as they are
    ActivationRounding rounding;        // of the int8 kinds
    int block_rows = 0;                 // of kInt8
    bool operator==(const Form&) const = default;
  };
  static Form wanted(const CpuWeight& weight, const GemmChoice& choice);

  // Takes memory of the context's scratch; make() fills it. picked: x's rows, if the form is
  // theirs; x has no values then.
  Activations(const LinearContext& context, Tensor x, const Form& form, const PickedRows& picked);

  const Form& form() const { return form_; }
  // Rows [begin, end) of x. Every row once before run(), by any thread; few and many rows of tiles
  // have another grain.
  void make(const LinearContext& context, int begin, int end) const;
  // Panels [begin, end) of w. tiles: the worker's, of TileKernels::scratch_bytes.
  void run(const LinearContext& context, const PanelMatrix& w, const GemmChoice& choice, int begin,
           int end, const GemmOutput& out, uint8_t* tiles) const;

 private:
  Tensor x_, ordered_;  // as they come, and in the form's order
  Form form_;
  RoundedRows int8_;
  uint8_t* tiles_ = nullptr;
};

// What a product needs of every worker's memory.
struct ScratchNeeds {
  bool tiles = false;     // the buffer of the matrix units
  size_t late_bytes = 0;  // of LatePanels
  void add(const ScratchNeeds& other) {
    tiles = tiles || other.tiles;
    late_bytes = std::max(late_bytes, other.late_bytes);
  }
};
struct WorkerBuffers {
  uint8_t *tiles, *late;
};

// Products of the rows of one tensor with a few weights.
class RowProducts {
 public:
  // Takes memory of the context's scratch, which is valid until that is reset; computes nothing.
  RowProducts(const LinearContext& context, Tensor x, std::span<const LinearTarget> targets,
              const PickedRows& picked = {});

  std::span<const LinearTarget> targets() const { return targets_; }
  int n_rows() const { return n_rows_; }
  int n_panels(size_t i) const {
    return static_cast<const CpuWeight&>(*targets_[i].weight).panels().n_panels();
  }
  // Rows that a worker makes at once, and panels that it takes at once, at least.
  int make_grain() const { return has_tiles() && n_rows_ > 32 ? 16 : 1; }
  int64_t run_grain() const;
  bool has_tiles() const { return needs_.tiles; }
  const ScratchNeeds& scratch_needs() const { return needs_; }

  void make(const LinearContext& context, int begin, int end) const;
  // Panels [begin, end) of target i, without what adapters add.
  void run(const LinearContext& context, size_t i, int64_t begin, int64_t end,
           const WorkerBuffers& buffers) const;

 private:
  struct Job {
    GemmChoice choice;
    const Activations* activations;
    LatePanels* late;  // null: the panels are there
    bool keeps;        // this product packs them into their place
  };
  void run_late(const LinearContext& context, size_t i, int begin, int end,
                const WorkerBuffers& buffers) const;
  std::span<const LinearTarget> targets_;
  int n_rows_;
  Activations* forms_;
  int n_forms_ = 0;
  Job* jobs_;
  ScratchNeeds needs_;
};

// What the products need, for all workers, each of them at a place of its own.
class WorkerScratch {
 public:
  WorkerScratch(const LinearContext& context, const ScratchNeeds& needs)
      : tile_bytes_(needs.tiles ? context.kernels.tiles->scratch_bytes : 0),
        late_bytes_((needs.late_bytes + 63) / 64 * 64) {
    const auto n_workers = static_cast<size_t>(context.pool.size());
    if (tile_bytes_ > 0)
      tiles_ = static_cast<uint8_t*>(context.scratch.linear.allocate(tile_bytes_ * n_workers));
    if (late_bytes_ > 0)
      late_ = static_cast<uint8_t*>(context.scratch.linear.allocate(late_bytes_ * n_workers));
  }
  WorkerBuffers of(int worker) const {
    const auto i = static_cast<size_t>(worker);
    return {tiles_ + i * tile_bytes_, late_ + i * late_bytes_};
  }

 private:
  size_t tile_bytes_, late_bytes_;
  uint8_t *tiles_ = nullptr, *late_ = nullptr;
};

// Splits parts of [firsts[i], firsts[i + 1]) items, laid end to end, among the workers in one
// region: f(i, begin, end, worker), of part i's own items. firsts: [n_parts + 1], the first is 0.
template <class F>
void for_parts(ThreadPool& pool, std::span<const int64_t> firsts, int64_t grain, F&& f) {
  pool.for_pieces(firsts.back(), grain, [&](int64_t begin, int64_t end, int worker) {
    auto part = static_cast<size_t>(std::upper_bound(firsts.begin(), firsts.end(), begin) -
                                    firsts.begin()) -
                1;
    for (; begin < end; ++part) {
      const int64_t part_end = std::min(end, firsts[part + 1]);
      if (begin < part_end) f(part, begin - firsts[part], part_end - firsts[part], worker);
      begin = part_end;
    }
  });
}

// Makes the activations of one product: few rows on this thread, which takes less than starting the
// workers.
void make_rows(const LinearContext& context, const RowProducts& products);

}  // namespace penstock
