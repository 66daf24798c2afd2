// Mixture of experts without a word to the host: kernels choose, sort and multiply (kernels/moe.h). Steps of many tokens multiply as dense
// products of many rows do (wide_products.h), so rounded as these are; what batch_invariant leaves out.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "ops/cuda/device.h"
#include "ops/cuda/kernels/moe.h"
#include "ops/cuda/kernels/products.h"
#include "ops/cuda/step_memory.h"
#include "ops/cuda/wide_products.h"
#include "ops/ops.h"

namespace penstock::cuda {

class Experts {
 public:
  // All outlive this. ops: for operations on rows.
  Experts(Ops& ops, Device& device, StepMemory& memory, WideProducts& wide)
      : ops_(ops), device_(device), memory_(memory), wide_(wide) {}

  // As Ops::moe(). batch: null where a step is over tensors alone; adapters: its own, by sequence.
  void run(Tensor x, Tensor router_logits, const MoeParams& params, const BatchOnDevice* batch,
           std::span<const int32_t> adapters, Tensor out);

 private:
  struct Table {
    std::vector<ExpertWeight> host;
    Memory memory;
  };
  // The weights of a layer's experts for one of their products.
  struct Matrices {
    std::span<const std::unique_ptr<Weight>> weights;
    std::span<const AdapterTerms> adapters;
    std::vector<ExpertWeight> table;
  };
  // Rows by expert: whose they are, and which expert a tile has.
  struct Sorted {
    const int32_t *sources, *tile_experts;
    int n_rows, rows_of_expert;  // rows_of_expert: as WideProducts has it
    Choices choices;
    int n_active;
    const BatchOnDevice* batch;
    std::vector<int32_t> slots;  // adapters that some of them have
  };
  // Tables are known by the layer's weights on the host, or by what an adapter (slot) has for them, A or B.
  struct TableKey {
    const void* of;
    int slot = -1;
    bool is_b = false;
    auto operator<=>(const TableKey&) const = default;
  };
  // Where the weights of a layer's experts are, as kernels find them by an expert's number; copied when first asked for. Null after
  // a failure of the device.
  const ExpertWeight* on_device(const TableKey& key, std::vector<ExpertWeight> table);
  template <class T>
  T* scratch(size_t n);
  static Matrices matrices_of(std::span<const std::unique_ptr<Weight>> weights,
                              std::span<const std::unique_ptr<Vector>> biases,
                              std::span<const AdapterTerms> adapters);
  // 0: by tiles of ExpertProduct.
  int rows_of_expert(std::span<const Matrices* const> all, int n_tokens, int n_choices) const;
  Sorted sort(const Choices& choices, int n_choices, int n_experts, int rows_of_expert);
  // wide: as WideProducts takes x, if rows lie for it. x and out: rows by expert; x only if it is read as it is.
  void multiply(Tensor x, const WideProducts::RowsByExpert& wide, Matrices matrices, const Sorted& sorted,
                Tensor out);
  void add_adapter(Tensor x, std::span<const AdapterTerms> adapters, int slot, const Sorted& sorted,
                   Tensor out);

  Ops& ops_;
  Device& device_;
  StepMemory& memory_;
  WideProducts& wide_;
  std::map<TableKey, Table> tables_;
};

}  // namespace penstock::cuda
