// Mixture of experts on the device alone: kernels choose, sort and multiply (kernels/moe.h). Steps
// of many tokens are computed and rounded like dense products of many rows (wide_products.h),
// except in batch-invariant runs.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "ops/cuda/device.h"
#include "ops/cuda/kernels/moe.h"
#include "ops/cuda/kernels/products.h"
#include "ops/cuda/packed_weight.h"
#include "ops/cuda/step_memory.h"
#include "ops/cuda/wide_products.h"
#include "ops/ops.h"

namespace penstock::cuda {

// Weights of experts that come to the device in turns: those of one turn are on it together.
class ExpertTurns {
 public:
  virtual ~ExpertTurns() = default;
  // Brings the experts of the next turn. Returns false after the last one.
  virtual bool next() = 0;
  virtual bool has(int expert) const = 0;  // in this turn
};

class Experts {
 public:
  // The weights of a layer's experts for one of their products.
  struct Matrices {
    std::vector<ExpertWeight> table;          // by expert; empty: there is no such product
    const ExpertWeight* on_device = nullptr;  // null: the table is copied there under its key
    const void* key = nullptr;
    InputRounding rounding;
    std::span<const AdapterTerms> adapters;
  };
  struct Layer {
    Matrices gates, ups, downs;
  };
  // Vectors of a router on the device, or null (MoeParams).
  struct RouterVectors {
    const float *selection_bias, *expert_scale, *token_experts;
    int n_known_tokens;
  };
  // The products of a mixture whose experts were chosen.
  struct Work {
    Tensor x;
    Choices choices;
    const MoeParams& params;
    Layer layer;
    const BatchOnDevice* batch;
    std::span<const int32_t> adapters;  // as of run()
    ExpertTurns* turns;                 // null: all weights are there
    Tensor out;
  };

  // REQUIRES: all arguments outlive this object. ops: for operations on rows.
  Experts(Ops& ops, Device& device, StepMemory& memory, WideProducts& wide)
      : ops_(ops), device_(device), memory_(memory), wide_(wide) {}

  // See Ops::moe(). batch: null in steps over tensors alone. adapters: those of the batch, by
  // sequence.
  void run(Tensor x, Tensor router_logits, const MoeParams& params, const BatchOnDevice* batch,
           std::span<const int32_t> adapters, Tensor out);
  // Its two parts: chooses the experts of the first n_rows rows, and computes with them.
  Choices choose(Tensor router_logits, int n_rows, const ExpertRouting& routing,
                 const RouterVectors& vectors, const BatchOnDevice* batch);
  void compute(const Work& work);

 private:
  struct Table {
    std::vector<ExpertWeight> host;
    Memory memory;
  };
  // Rows sorted by expert: their tokens, and the expert of every tile.
  struct Sorted {
    const int32_t *sources, *tile_experts;
    int n_rows, rows_of_expert;  // rows_of_expert: see WideProducts
    Choices choices;
    int n_active;
    const BatchOnDevice* batch;
    std::vector<int32_t> slots;  // slots of the adapters of some rows
    const ExpertTurns* turns = nullptr;
  };
  // Key of a table: the layer's weights on the host, or those that an adapter (slot) has for them,
  // A or B.
  struct TableKey {
    const void* of;
    int slot = -1;
    bool is_b = false;
    auto operator<=>(const TableKey&) const = default;
  };
  // Returns the table of a layer's expert weights on the device, indexed by expert; copied on first
  // use. Null after a failure of the device.
  const ExpertWeight* on_device(const TableKey& key, std::vector<ExpertWeight> table);
  template <class T>
  T* scratch(size_t n);
  static Matrices matrices_of(std::span<const std::unique_ptr<Weight>> weights,
                              std::span<const std::unique_ptr<Vector>> biases,
                              std::span<const AdapterTerms> adapters);
  // Returns the multiple of rows to which experts are padded; 0: they are multiplied by tiles of
  // ExpertProduct.
  int rows_of_expert(std::span<const Matrices* const> all, int n_tokens, int n_choices) const;
  Sorted sort(const Choices& choices, int n_choices, int n_experts, int rows_of_expert);
  // wide: x in the form of WideProducts, if rows are padded for it. x, out: rows sorted by expert;
  // x is used only if it is not rounded.
  void multiply(Tensor x, const WideProducts::RowsByExpert& wide, const Matrices& matrices,
                const Sorted& sorted, Tensor out);
  void add_adapter(Tensor x, std::span<const AdapterTerms> adapters, int slot, const Sorted& sorted,
                   Tensor out);

  Ops& ops_;
  Device& device_;
  StepMemory& memory_;
  WideProducts& wide_;
  std::map<TableKey, Table> tables_;
};

}  // namespace penstock::cuda
