// What weights of blocks are made of: vectors and matrices in one backend's layout.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/ops.h"
#include "ops/tensor.h"

namespace penstock {

struct NormWeights {
  std::unique_ptr<Vector> weight, bias;  // null = this model has no such norm / no bias
  explicit operator bool() const { return weight != nullptr; }
};

struct LinearWeights {
  std::unique_ptr<Weight> weight;          // [out, in]
  std::unique_ptr<Vector> bias;            // [out] or null
  const AdapterTerms* adapters = nullptr;  // of its LinearSite
  // A rank's share of the inputs (ModelCuts): the product is a share of the sum, and where blocks reach over the cut, the weight
  // has `lead` inputs before the rank's own, and perhaps some behind, which must be zeros.
  bool partial = false;
  int lead = 0;

  LinearTarget into(Tensor out) const { return {weight.get(), bias.get(), out, adapters, partial}; }
};

struct ExpertWeights {
  std::vector<std::unique_ptr<Weight>> weights;  // [n_experts]
  std::vector<std::unique_ptr<Vector>> biases;   // [n_experts] or empty
  bool partial = false;                          // as LinearWeights
  int lead = 0;
  std::span<const AdapterTerms> adapters;  // [n_experts], of their LinearSite, or empty
  bool mapped = false;                     // they lie in a mapped file (PackedWeights::maps_experts)
};

// Which matrix of every expert a LinearSite is.
enum class ExpertProjection : uint8_t { kNone, kGate, kUp, kDown };

// Rows of a file's matrix that make a linear layer, to which adapters may add; or one matrix of every expert of a layer, each by
// itself.
struct LinearSite {
  std::string name;  // of the matrix, with ".weight"; of experts what the layer's names begin with
  ExpertProjection projection = ExpertProjection::kNone;
  int n_experts = 0;
  int matrix_rows = 0;    // of the whole matrix
  std::vector<int> rows;  // row r of the layer is the matrix' row rows[r]; empty: first_row + r
  int first_row = 0, n_rows = 0, cols = 0;
  int first_col = 0,
      n_cols = 0;     // of the matrix' columns, those that the layer's weight has; all of them, or a rank's
  bool wide = false;  // its weights have 32 bits
  std::unique_ptr<AdapterTerms[]> terms;  // one, or [n_experts]
  std::span<AdapterTerms> all_terms() const {
    return {terms.get(), static_cast<size_t>(std::max(n_experts, 1))};
  }
};

}  // namespace penstock
