// Weights of a tower in a backend's layout.
#pragma once
#include <memory>
#include <vector>

#include "model/tensors/weights.h"
#include "model/towers/clipped_layers.h"
#include "model/towers/conformer.h"
#include "model/towers/projector.h"
#include "model/towers/q_former.h"
#include "model/towers/usm_conformer.h"

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
  std::unique_ptr<ClippedLayers> clipped;  // instead of blocks
  std::unique_ptr<Conformer> conformer;    // instead of blocks
  std::unique_ptr<UsmConformer> usm;       // instead of blocks and convolutions
  std::unique_ptr<QFormer> queries;        // instead of the projector
};

}  // namespace penstock
