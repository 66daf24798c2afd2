// Mixture of experts: which a token takes, as data in the device's memory; tokens sorted by expert;
// what the experts give, added up. The products between are ExpertProduct (products.h), or of many
// rows WideExpertProduct (wide_product.h).
#pragma once
#include "ops/cuda/kernels/batch.h"
#include "ops/cuda/kernels/rows.h"

namespace penstock::cuda {

// ExpertRouting as kernels take it.
struct Routing {
  enum class Score : uint8_t { kSoftmax, kSigmoid, kSparseMixer };
  int n_active;
  Score score;
  int n_groups, n_active_groups, group_top;
  bool normalize;
  float sum_eps, sum_min, jitter, scale;
};

// [rows, n_active] the experts of a row, kNone for rows that stand for nothing; what they weigh;
// and the row of each in the sorted order.
struct Choices {
  static constexpr int kNone = -1;
  int32_t* experts;
  float* weights;
  int32_t* places;
};

// Grid::x = rows.
struct ChooseExperts {
  static constexpr int kThreads = 32, kMaxGroups = 64;
  Rows logits;
  Routing routing;
  const float *selection_bias, *expert_scale;  // [n_experts] or null
  Choices choices;
  const BatchOnDevice* batch;  // null: all rows are tokens
  int shared_bytes() const { return 4 * (2 * logits.cols + kMaxGroups); }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Rows by expert, each one's in the order of the tokens and from a multiple of `align` rows on,
// which are whole tiles. Grid::x = n_experts.
struct SortByExpert {
  static constexpr int kThreads = 256, kTileRows = 8;
  Choices choices;
  int n_choices, n_experts;
  int32_t *sources,
      // [n_rows] the choice, [n_rows / kTileRows] the expert; kNone where there is none
      *tile_experts;
  int n_rows, align;
  int shared_bytes() const { return 4 * (n_experts + kThreads / 32); }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// out[i] = x of the token of source i, by the choice's weight if `weigh`; zeros where there is
// none. A thread per element.
struct GatherByExpert {
  static constexpr int kThreads = 256;
  Rows x, out;
  const int32_t* sources;
  Choices choices;
  int n_active;
  bool weigh;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// out[t] = the sum of its experts' rows, by their weights if `weigh`. A thread per element.
struct CombineExperts {
  static constexpr int kThreads = 256;
  Rows results, out;
  Choices choices;
  int n_active;
  bool weigh;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// out[t] += delta[t] where the sequence has the adapter. A thread per element. With sources, rows
// are those of GatherByExpert.
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
