// Towers that see and hear: from the patches of a picture, or the spectrum of a sound, to features in
// the space of a text model's embeddings. A tower's layers are blocks like those of decoders, computed by the same operations.
//
// A picture is computed in pieces of a few layers, between which other steps may run
// (TowerPass). Frames and tiles of a picture do not see each other.
#pragma once
#include <array>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "formats/weight_source.h"
#include "model/towers/tower_config.h"
#include "ops/ops.h"

namespace penstock {

// One picture, tiles of equal size, or a sound.
struct PicturePatches {
  // [n_frames * rows * cols, patch_dim], in the order of TowerConfig::patches_by_unit; a patch is
  // [colour, frame, y, x]. Normalised as the model's image processor does. Of a sound: frames
  // [n_frames * TowerConfig::n_inputs(), patch_dim], or fewer (TowerConfig::ends_apart).
  std::span<const float> values;
  PictureGrid grid;
};

// Cuts planes [n_tiles, 3, height, width] into patches [n_tiles * rows * cols, 3 * patch_size *
// patch_size], row after row. Columns and rows behind the last whole patch are left out.
std::vector<float> cut_patches(std::span<const float> planes, int n_tiles, int height, int width,
                               int patch_size);

struct PictureFeatures {
  int n_tokens = 0, dim = 0;
  std::vector<float> rows;               // [n_tokens, dim], frame by frame, row by row
  std::vector<std::vector<float>> deep;  // for each of TowerConfig::deep the same shape
};

struct TowerWeights;
struct PreparedGrid;
struct UsmPast;

class Tower {
 public:
  // Loads the tower of a multimodal file; null if the file has none. Errors: kUnsupported (a family,
  // a field or a tensor that is not known, by name), kCorruptFile, kResourceExhausted.
  static Result<std::unique_ptr<Tower>> load(const WeightSource& source, Ops& ops,
                                             TowerSense sense = TowerSense::kSight);
  // Reads and checks the configuration alone; nothing if the file has no tower.
  static Result<std::optional<TowerConfig>> read_config(const WeightSource& source,
                                                        TowerSense sense = TowerSense::kSight);
  ~Tower();

  const TowerConfig& config() const { return config_; }
  // [text_dim] TowerConfig::newline_name, or empty.
  std::span<const float> newline() const;
  int64_t weight_bytes() const { return weight_bytes_; }
  // Bytes that encoding a frame of this grid takes beside the weights: keys, values and the step's
  // tensors, estimated from above.
  int64_t working_bytes(const PictureGrid& grid) const;
  // Checks a grid. Error: kInvalidArgument.
  Status check(const PictureGrid& grid) const;
  // Checks the grid, and that there are as many numbers as it takes. Error: kInvalidArgument.
  Status check(const PicturePatches& patches) const;
  // Computes all pieces of a picture. REQUIRES: no step is under way.
  Result<PictureFeatures> encode(const PicturePatches& patches, Ops& ops) const;

 private:
  friend class TowerPass;
  explicit Tower(TowerConfig config);
  std::shared_ptr<const PreparedGrid> prepared(const PictureGrid& grid) const;

  const TowerConfig config_;
  std::unique_ptr<TowerWeights> weights_;
  int64_t weight_bytes_ = 0;
  // The last few grids, the latest first.
  mutable std::list<std::shared_ptr<const PreparedGrid>> grids_;
};

// The way of one picture through a tower. Every piece is a step of its own, after which the states
// lie in host memory.
class TowerPass {
 public:
  // layers_per_piece: at most as many layers in a step; 0: no bound. REQUIRES: tower and patches
  // outlive the pass, and check() accepts the patches.
  TowerPass(const Tower& tower, const PicturePatches& patches, int layers_per_piece = 0);
  ~TowerPass();

  bool done() const;
  // Number of pieces from beginning to end.
  size_t n_pieces() const { return pieces_.size() * static_cast<size_t>(patches_.grid.n_frames); }
  // About the bytes that it holds between pieces: the stream, keys and values.
  size_t bytes() const;
  // Computes the next piece. REQUIRES: not done; no step is under way.
  Status advance(Ops& ops);
  // REQUIRES: done.
  PictureFeatures take() { return std::move(features_); }

 private:
  // Layers [first, end) of one frame, with windows or without; first == 0: the input is made first.
  struct Piece {
    int first = 0, end = 0;
    bool windowed = false;
    int deep = -1;  // index of the features that are taken after it, or -1
    bool last = false;
    int chunk = -1;        // instead of layers: convolutions of this chunk (TowerPlanes)
    bool queries = false;  // instead of layers: TowerQueries
  };
  Status begin(Ops& ops);
  size_t n_given() const;
  void read_patches(Tensor x, Ops& ops) const;
  Tensor patch_products(Ops& ops) const;
  Tensor convolved(Ops& ops) const;
  Tensor input_products(Ops& ops) const;
  void convolve_chunk(int chunk, Ops& ops);
  Status end_piece(Ops& ops);
  void add_tail();
  void give(Tensor projected, Ops& ops, std::vector<float>& out) const;

  const Tower& tower_;
  const PicturePatches patches_;
  std::shared_ptr<const PreparedGrid> grid_;
  std::vector<Piece> pieces_;
  std::unique_ptr<KvCache> cache_;
  int frame_ = 0;
  size_t piece_ = 0;
  std::vector<float> stream_;      // [rows of a frame, model_dim]
  std::vector<float> inputs_;      // [positions, model_dim] of the frame's chunks
  std::unique_ptr<UsmPast> past_;  // of the convolutions of a Universal Speech Model
  PictureFeatures features_;
};

}  // namespace penstock
