// Features of tiles laid side by side to one picture (LLaVA-NeXT, OneVision).
#pragma once
#include <span>

#include "frontend/pictures/picture.h"

namespace penstock {

// Returns the rows of the first view, then those of the tiles, row by row of the whole picture: what is
// padding is cut away, the rest shrunk if the plan says so, and `newline` ends each row. Without tiles
// one newline ends all. views: rows of all views of `plan`, of one level.
EmbeddingRows stitched(const EmbeddingRows& views, const ImagePlan& plan,
                       std::span<const float> newline);

// Returns the rows of a frame [grid.rows, grid.cols], shrunk as the grid says. frame: of one level.
EmbeddingRows shrunk(const EmbeddingRows& frame, const StitchedGrid& grid);

}  // namespace penstock
