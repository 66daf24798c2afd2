// A tower of a model on a backend of its own, beside the engine's: pixels of a picture, or the
// spectrum of a sound, to the rows that a request gives in place of embeddings (Request::embeddings).
//
// A picture is computed in pieces of a few layers, between which engines of this process have their
// turn. One thread at a time.
#pragma once
#include <functional>
#include <memory>
#include <span>

#include "formats/weight_source.h"
#include "penstock/engine.h"
#include "penstock/engine_config.h"

namespace penstock {

class Ops;
class Tower;

// One view of a picture: the whole, or a tile of it. Of a sound: frames, as TowerConfig::n_inputs()
// says, and one row of positions.
struct PicturePixels {
  // Patches [rows * cols, patch_dim] in the order of the model's image processor; or, if height is
  // not 0, planes [3, height, width], of which what is no whole patch at the right and at the bottom is
  // left out (384 pixels are 27 patches of 14).
  std::span<const float> values;
  int rows = 0, cols = 0;     // patches
  int height = 0, width = 0;  // pixels
};

class PictureEncoder {
 public:
  enum class Sense { kSight, kHearing };
  // Returns null if the file has no tower for the sense. Reads these fields of `config`: backend, threads,
  // batch_invariant, enforce_eager. Errors: kUnsupported (a tower or a field of it that is not known,
  // by name), kCorruptFile, kResourceExhausted.
  static Result<std::unique_ptr<PictureEncoder>> open(const WeightSource& source,
                                                      const EngineConfig& config,
                                                      Sense sense = Sense::kSight);
  // Whether a file has a tower for the sense, known or not.
  static bool has_tower(const WeightSource& source, Sense sense = Sense::kSight);
  ~PictureEncoder();

  int64_t weight_bytes() const;
  int patch_size() const;       // side in pixels
  int unit() const;             // patches on a side of a token
  int row_size() const;         // numbers of a row
  int levels() const;           // EmbeddingRows::levels
  bool grid_positions() const;  // its tokens are counted by rows and columns (M-RoPE)
  // Row that ends each row of a stitched picture (LLaVA-NeXT), or empty.
  std::span<const float> newline() const;
  // Checks that it can encode a view. Error: kInvalidArgument. Any thread.
  Status check(const PicturePixels& view) const;
  // Returns the number of rows that it makes of a view. REQUIRES: check() passed. Any thread.
  int n_rows(const PicturePixels& view) const;
  // A view on its way through the tower.
  class Pass;
  // Begins a view; views that were begun do not touch each other. REQUIRES: the view's values and the
  // encoder outlive the pass. Errors: those of check(), kInvalidArgument.
  Result<std::unique_ptr<Pass>> begin(const PicturePixels& view);
  // Returns the rows of all views, one after the other; EmbeddingRows::identity is the caller's.
  // goes_on: asked between pieces; its error ends the work. Errors: those of begin() and goes_on(),
  // kResourceExhausted.
  Result<EmbeddingRows> encode(std::span<const PicturePixels> views,
                               const std::function<Status()>& goes_on);

 private:
  PictureEncoder(std::unique_ptr<Ops> ops, std::unique_ptr<Tower> tower);

  const std::unique_ptr<Ops> ops_;
  const std::unique_ptr<Tower> tower_;
};

class PictureEncoder::Pass {
 public:
  ~Pass();

  size_t n_pieces() const;  // from beginning to end
  bool done() const;
  size_t bytes() const;  // that it holds between pieces, about
  // Computes so many pieces, or the rest. goes_on: asked ahead of each; its error ends the work. Errors: those
  // of goes_on(), kResourceExhausted.
  Status advance(size_t n_pieces, const std::function<Status()>& goes_on);
  // Returns the view's rows. REQUIRES: done.
  EmbeddingRows take();

 private:
  friend class PictureEncoder;
  struct State;
  explicit Pass(std::unique_ptr<State> state);

  const std::unique_ptr<State> state_;
};

// Returns all rows, one after the other in each level. REQUIRES: they have equally many levels.
EmbeddingRows joined_rows(std::span<const EmbeddingRows> parts);

}  // namespace penstock
