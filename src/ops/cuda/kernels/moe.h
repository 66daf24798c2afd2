// Mixture of experts: routing of tokens, as data in device memory; tokens sorted by expert; and
// combination of the results. The products between are ExpertStream (expert_stream.h), ExpertProduct
// (products.h) of types without a stream, or WideExpertProduct (wide_product.h) for many rows.
#pragma once
#include "ops/cuda/kernels/batch.h"
#include "ops/cuda/kernels/rows.h"

namespace penstock::cuda {

// ExpertRouting for kernels.
struct Routing {
  enum class Score : uint8_t { kSoftmax, kSigmoid, kSparseMixer, kSqrtSoftplus };
  int n_active;
  Score score;
  int n_groups, n_active_groups, group_top;
  bool normalize, by_logit;
  float sum_eps, sum_min, jitter, scale;
  int per_matrix;
};

// [rows, n_active] experts of each row (kNone for padding), their weights, and the positions of the
// choices in the sorted order (null: choices stay in their order).
struct Choices {
  static constexpr int kNone = -1;
  int32_t* experts;
  float* weights;
  int32_t* places;
};

// Routes tokens. Grid::x = rows.
struct ChooseExperts {
  static constexpr int kThreads = 32, kMaxGroups = 64;
  Rows logits;
  Routing routing;
  const float *selection_bias, *expert_scale;  // [n_experts] or null
  const float* token_experts;                  // [n_known_tokens][n_active] or null
  int n_known_tokens;
  Choices choices;
  const BatchOnDevice* batch;  // null: no row is padding
  int shared_bytes() const { return 4 * (2 * logits.cols + kMaxGroups); }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Shows choices to the host, then leaves those of experts that are not on the device to it. One
// thread per choice.
struct ShareChoices {
  static constexpr int kThreads = 256;
  Choices choices;
  int n_choices, n_experts;
  const int32_t* on_device;  // [n_experts] whether an expert is there; null: all choices stay
  int32_t* experts;          // [n_choices] in pinned memory, as are the weights
  float* weights;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Sorts choices of the first n_experts by expert and then by token; each expert's rows begin at a
// multiple of `align`, which is a multiple of tile_rows. Grid::x = n_experts.
struct SortByExpert {
  static constexpr int kThreads = 256;
  Choices choices;
  int n_choices, n_experts;
  int32_t *sources,
      // [n_rows] choice, [n_rows / tile_rows] expert; kNone: padding
      *tile_experts;
  int32_t* n_tiles;  // number of tiles with an expert, which come first
  int n_rows, align, tile_rows;
  int shared_bytes() const { return 4 * (n_experts + kThreads / 32); }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// out[i] = x of the token of source i, times the choice's weight if `weigh`; zeros for padding. One
// thread per element.
struct GatherByExpert {
  static constexpr int kThreads = 256;
  Rows x, out;
  const int32_t* sources;  // null: i
  Choices choices;
  int n_active;
  bool weigh;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// out[t] = the sum of its experts' rows, weighted if `weigh`, and of weight * x for experts from
// n_experts on. One thread per element.
struct CombineExperts {
  static constexpr int kThreads = 256;
  Rows results, x, out;
  int n_experts;
  Choices choices;
  int n_active;
  bool weigh;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// out[t] += delta[t] if the sequence of row t has the adapter. One thread per element. With
// sources, rows are those of GatherByExpert.
struct AddOfAdapter {
  static constexpr int kThreads = 256;
  Rows delta, out;
  int slot;
  const BatchOnDevice* batch;
  const int32_t* sources = nullptr;
  int n_active = 1;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
