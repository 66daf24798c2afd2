// Vectors and matrices in the layout of one backend, of which the weights of blocks consist.
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
  // null: the model has no such norm, or no bias
  std::unique_ptr<Vector> weight, bias;
  // The weight multiplies and nothing is normed (ResidualConfig::column_scales).
  bool scales = false;
  explicit operator bool() const { return weight != nullptr; }
};

struct LinearWeights {
  std::unique_ptr<Weight> weight;          // [out, in]
  std::unique_ptr<Vector> bias;            // [out] or null
  const AdapterTerms* adapters = nullptr;  // of its LinearSite
  // Whether the weight has only one rank's share of the inputs (ModelCuts), so that the product is
  // a partial sum. Encoding blocks may straddle the cut: the weight then has `lead` inputs before
  // the rank's own, and perhaps some after them. These inputs must be zero.
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
  // the experts are in a mapped file (PackedWeights::maps_experts)
  bool mapped = false;
  bool on_host = false;  // weights and biases are of Ops::host()
};

// Matrix of an expert that a LinearSite describes.
enum class ExpertProjection : uint8_t { kNone, kGate, kUp, kDown };

// Rows of a matrix in a file that form a linear layer to which adapters may add. For experts one
// LinearSite describes the same matrix of every expert of a layer.
struct LinearSite {
  // name of the matrix, with ".weight"; for experts the prefix of the layer
  std::string name;
  ExpertProjection projection = ExpertProjection::kNone;
  int n_experts = 0;
  int matrix_rows = 0;  // of the whole matrix
  // row r of the layer is the matrix' row rows[r]; empty: first_row + r
  std::vector<int> rows;
  int first_row = 0, n_rows = 0, cols = 0;
  int first_col = 0,
      // Columns of the file's matrix that the layer's weight has: all, or those of one rank.
      n_cols = 0;
  bool wide = false;                      // the weights are F32
  bool on_host = false;                   // the terms are of Ops::host()
  std::unique_ptr<AdapterTerms[]> terms;  // [1], or [n_experts]
  std::span<AdapterTerms> all_terms() const {
    return {terms.get(), static_cast<size_t>(std::max(n_experts, 1))};
  }
};

}  // namespace penstock
