// Weights of a tower in a backend's layout.
#pragma once
#include <memory>
#include <vector>

#include "model/tensors/weights.h"
#include "model/towers/conformer.h"
#include "model/towers/projector.h"
#include "model/towers/q_former.h"

namespace penstock {

inline constexpr int kNeighbours = 3;  // that a convolution reads

// Places of one axis behind a convolution of every second place.
inline int halved(int n) { return (n - 1) / 2 + 1; }

struct TowerWeights {
  ModelWeights blocks;
  LinearWeights patches;
  std::vector<LinearWeights> convolutions;
  LinearWeights planes;  // behind them
  NormWeights patch_norm, pre_norm;
  std::vector<float> positions;  // table
  std::vector<float> class_row, newline;
  Projector projector;
  std::vector<Projector> deep;
  std::unique_ptr<Conformer> conformer;  // instead of blocks
  std::unique_ptr<QFormer> queries;      // instead of the projector
};

}  // namespace penstock
