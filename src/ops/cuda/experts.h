// Mixture of experts on the device alone: kernels choose, sort and multiply (kernels/moe.h). Experts
// with few rows stream their weights (expert_streams.h). Steps of many tokens are computed and
// rounded like dense products of many rows (wide_products.h), except in batch-invariant runs.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "ops/cuda/device.h"
#include "ops/cuda/expert_streams.h"
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
      : ops_(ops), device_(device), memory_(memory), wide_(wide), streams_(device) {}

  // Enables streams, which change the order of sums.
  void stream(bool on) { streams_.enable(on); }
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
  // How a mixture's rows are laid out for its products.
  struct Layout {
    int rows_of_expert = 0;                     // see WideProducts; 0: other kernels
    int rows_of_tile = ExpertProduct::kTokens;  // of one expert
    int rows_of_group = 0;                      // see ExpertStreams; 0: other kernels
    bool sorts = true;                          // false: the rows are the choices in their order
  };
  // Rows sorted by expert: their tokens, and the expert of every tile.
  struct Sorted {
    const int32_t *sources = nullptr,
                  *tile_experts = nullptr;  // sources: null if they are not sorted
    const int32_t* n_tiles = nullptr;       // with an expert; null: all
    int n_rows = 0;
    Layout layout;
    Choices choices = {};
    int n_active = 0, n_experts = 0;
    const BatchOnDevice* batch = nullptr;
    std::vector<int32_t> slots = {};  // slots of the adapters of some rows
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
  Layout lay_out(std::span<const Matrices* const> all, Tensor x, int n_active, bool adapts) const;
  Sorted sort(const Choices& choices, int n_choices, int n_experts, const Layout& layout);
  const ExpertWeight* table_of(const Matrices& matrices);
  // Inputs of a product: rows sorted by expert, or, of streams, a row for each token; and the same in
  // the form of WideProducts, which is used if rows are padded for it.
  struct Input {
    Tensor rows;
    WideProducts::RowsByExpert wide;
    bool by_token;
  };
  // ups: null, or a second product: out = f(the first) * the second.
  void stream(const Input& x, const Matrices& matrices, const Matrices* ups, const Sorted& sorted,
              const ActivationFunction& f, Tensor out);
  // out: rows sorted by expert.
  void multiply(const Input& x, const Matrices& matrices, const Sorted& sorted, Tensor out);
  void add_adapter(Tensor x, std::span<const AdapterTerms> adapters, int slot, const Sorted& sorted,
                   Tensor out);

  Ops& ops_;
  Device& device_;
  StepMemory& memory_;
  WideProducts& wide_;
  ExpertStreams streams_;
  std::map<TableKey, Table> tables_;
};

}  // namespace penstock::cuda
