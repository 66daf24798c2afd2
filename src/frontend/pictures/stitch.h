// Features of tiles laid side by side to one picture (LLaVA-NeXT).
#pragma once
#include <span>

#include "frontend/pictures/picture.h"

namespace penstock {

// Returns the rows of the first view, then those of the tiles, row by row of the whole picture: what is
// padding is cut away, and `newline` ends each row. views: rows of all views of `plan`, of one level.
// REQUIRES: plan.stitched has rows, and its features are not shrunk.
EmbeddingRows stitched(const EmbeddingRows& views, const ImagePlan& plan,
                       std::span<const float> newline);

}  // namespace penstock
