// Configuration of a tower and its projector, independent of the file that it was read from.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/blocks/config.h"
#include "model/tensors/name_table.h"

namespace penstock {

// What a tower is for.
enum class TowerSense : uint8_t { kSight, kHearing };

// Number of frames (or tiles) of equal size, and patches of each. A sound is one row; its patches are
// the positions of the tower's layers.
struct PictureGrid {
  int n_frames = 1;
  int rows = 0, cols = 0;

  int64_t n_patches() const { return int64_t{n_frames} * rows * cols; }
};

// Position rows that are added to patches.
struct TowerPositions {
  enum class Kind : uint8_t {
    kNone,
    kFixed,        // row i of the table for patch i; the grid is the table's
    kFirst,        // row i of the table for patch i; the grid is one row, at most as long
    kFractions,    // a patch's row and column are the nearest ones of equal fraction (Idefics)
    kBilinear,     // interpolated, corners on corners (Qwen3-VL)
    kAntialiased,  // bilinear, centres of cells, antialiased when shrinking (SigLIP 2)
    kBicubic,      // a = -0.75, centres of cells, edges continued (GLM-4V, Kimi)
    kSums,         // table of columns + table of rows (Gemma 4)
    kSines,  // sines and cosines of i modulo cols for patch i of one row; no table is in the file
  };
  Kind kind = Kind::kNone;
  std::string name;         // whole name of the table
  int rows = 0, cols = 0;   // of its grid; kSums: `cols` positions of each of two tables
  bool has_class = false;   // a row for the class token is in the table too: first_class
  bool class_first = true;  // it is the first row; false: the last
};

// Rotation by the rows and columns of patches.
struct TowerRope {
  std::vector<float> frequencies;  // radians per position, of each pair
  std::vector<uint8_t> axes;       // of each pair: 1 row, 2 column (Batch::axis_positions)
  bool interleaved = false;        // RopeParams::interleaved
  int first_position = 0;          // of the first row and column
  int first_feature = 0;           // RopeParams::first
};

// A convolution along a row that makes the input of a tower that hears: three neighbours become one,
// with zeros around the row, and gelu of that.
struct TowerConvolution {
  std::string name;  // stem
  int stride = 1;
};

// Convolutions over the plane of a chunk of frames and their bands that make the input of a tower that
// hears: 3 x 3 neighbours become one at every second place of both axes, with zeros around the plane,
// and gelu of that; then a linear layer over [channel, band].
struct TowerPlanes {
  std::vector<std::string> convolutions;  // stems; none: there are no planes
  std::string linear;                     // stem
  int channels = 0;
  int n_frames = 0;     // of a chunk
  int n_positions = 0;  // that a chunk becomes
};

// Conformer layers (Granite Speech), in windows of TowerConfig::window positions.
struct TowerConformer {
  int taps = 0;           // of the convolution over time; 0: layers are a decoder's
  int conv_dim = 0;       // its features
  int most_distance = 0;  // of the file's embeddings
  int middle = -1;        // behind this layer, what is heard so far is added; -1: nowhere
  int n_classes = 0;
  std::string classes, of_classes;  // stems
};

// Rows of an embedder that stand in the places of a sound behind its features: id `fill` up to `count`
// tokens, then `last`.
struct TowerTail {
  int count = 0;  // tokens, without the last one; 0: there are none
  std::string prefix;
  int rows = 0;  // of the embedder
  int fill = 0, last = 0;
};

// Names in a Universal Speech Model; those of layers stand behind the layer's own.
struct TowerUsmNames {
  std::string plane = "layer{}.", first = "feed_forward1.", last = "feed_forward2.";
  std::string attention_before = "norm_pre_attn", attention_behind = "norm_post_attn";
  std::string attention = "self_attn.", output = "self_attn.post",
              distances = "self_attn.relative_k_proj";
  std::string norm = "norm_out";
};

// How a file names the matrix of a product NAME.
enum class TowerLinears : uint8_t {
  kPlain,    // NAME.weight
  kInside,   // NAME.linear.weight
  kBounded,  // NAME.linear.weight, with bounds of inputs and outputs beside it: NAME.input_min, ...
};

// Layers of a Universal Speech Model (Gemma 3n and 4), behind convolutions over TowerPlanes.
struct TowerUsm {
  TowerUsmNames names;
  int taps = 0;               // of the convolution over time; 0: layers are others
  std::vector<int> channels;  // of the convolutions over planes
  int seen = 0;               // positions that attention sees, its own included
  int n_distances = 0;        // from 0 on, that have keys
  float query_scale = 1.0f, key_scale = 1.0f;
  float softcap = 0.0f;
  float residual_weight = 0.5f;  // of feed-forwards
  float bound = 0.0f;            // of what norms read
  float eps = 1e-6f;             // of norms in convolutions
  float plane_eps = 1e-6f;       // of norms behind convolutions over planes
  // These are over all that the sound has had so far, and a convolution reads two later times instead of
  // one on either side (Gemma 3n).
  bool cumulative = false;
  TowerLinears linears = TowerLinears::kPlain;
};

// Learned queries for each window of a sound's positions, which become its tokens (Q-Former).
struct TowerQueries {
  int window = 0;  // positions; 0: there are none
  int count = 0;   // tokens of a window
  std::string prefix;
  int dim = 0, n_layers = 0, n_heads = 0, ffn_dim = 0;
  int crosses_every = 1;  // layers 0, crosses_every, ... see the window
  float eps = 1e-12f;
  ActivationFunction activation = Activation::kGelu;
  float factor = 1.0f;  // of the tokens
};

// A step of a projector. Rows are patches in units (TowerConfig::unit), then tokens.
struct ProjectorStage {
  enum class Kind : uint8_t {
    kNorm,
    kLinear,
    kActivation,
    kJoin,         // the rows of a unit, concatenated; zeros are behind the rows of the last one
    kMean,         // the mean of a unit's rows
    kFirst,        // the first row of a unit
    kScale,        // x * factor
    kGated,        // activation(x gate^T) * (x up^T)
    kStandardize,  // (x - bias) * scale, element by element
    kHalves,       // first half * activation(second half)
  };
  Kind kind = Kind::kLinear;
  // Stem of the tensor's name; of the gate in kGated; kStandardize: whole name of the bias.
  std::string name;
  // kGated: stem of the up projection; kStandardize: whole name of the scale.
  std::string other;
  int outputs = 0;  // kLinear, kGated
  ActivationFunction activation;
  NormConfig norm;
  // kLinear: the file stores [inputs, outputs].
  bool transposed = false;
  // kLinear after kJoin: inputs in the file are [channel, row in the unit, column], not [row, column,
  // channel]; also as a convolution.
  bool by_channel = false;
  float factor = 1.0f;
};

// What makes the tower's input, its layers, and what follows them.
struct TowerConfig {
  std::string family;  // TowerFamily::name
  // Layers: sizes, norms, attention, feed-forwards.
  ModelConfig layers;
  NameTable names;
  std::string prefix;  // of names of layers

  // Side of a patch in pixels, and numbers of a patch as the tower reads it.
  int patch_size = 0, patch_dim = 0;
  // Colours of a patch: numbers are [colour, frame, y, x].
  int patch_frames = 1;
  std::string patch_name;  // stem
  // The tower reads patches times patch_scale, plus patch_shift.
  float patch_scale = 1.0f, patch_shift = 0.0f;
  // Stem of a norm of patches, before positions are added, as config().layers.norm says; "": none.
  std::string patch_norm;
  // Instead of the product of patches: convolutions, the first of which reads frames of patch_dim
  // numbers. Frames are given as n_inputs() says.
  std::vector<TowerConvolution> convolutions;
  TowerPlanes planes;  // or these
  // Zeros stand around what each convolution reads, not around the first one's frames alone; a sound's
  // last frames may be missing, as many as change no number of positions.
  bool ends_apart = false;
  // Side of the square of patches that becomes one token.
  int unit = 1;
  // Instead of a square: so many neighbours of a row. What is left at its end becomes no token, or, with
  // fills_unit, one whose other rows are zeros where the projector joins them.
  bool unit_in_row = false, fills_unit = false;
  // Order of patches that the tower is given: unit after unit; false: row after row.
  bool patches_by_unit = false;
  // Tokens have rows and columns as positions in the text model (M-RoPE).
  bool grid_positions = false;
  TowerPositions positions;
  bool clipped = false;  // products of layers have bounds (ClippedLayers)
  TowerConformer conformer;
  TowerUsm usm;
  TowerTail tail;
  TowerQueries queries;  // instead of the projector
  // None, one, or two for different features of a head.
  std::vector<TowerRope> ropes;
  std::string class_name;  // whole name of the class token's row; "": there is none
  std::string pre_norm;    // stem of a norm before the layers; "": there is none
  NormConfig pre_norm_config;
  // Side of a window in units, in layers that are not in `whole`; 0: all layers see the picture.
  int window = 0;
  std::vector<uint8_t> whole;  // [n_layers], with windows

  std::vector<ProjectorStage> projector;
  // Features beside the projector's: stages that read the states after layer `layer` (DeepStack).
  struct Deep {
    int layer;
    std::vector<ProjectorStage> stages;
  };
  std::vector<Deep> deep;  // ascending layers
  int text_dim = 0;        // features of a token
  // Whole name of the row that ends each row of tiles' features (LLaVA-NeXT); "": there is none.
  std::string newline_name;

  // Tensors with these beginnings belong to the tower.
  std::vector<std::string> roots;
  // Of these, tensors that change nothing: heads, layers that are not computed.
  std::vector<std::string> unused;

  int model_dim() const { return layers.model_dim; }
  int unit_rows() const { return unit_in_row ? 1 : unit; }
  int unit_places() const { return unit * unit_rows(); }
  int units_in(int cols) const { return (cols + (fills_unit ? unit - 1 : 0)) / unit; }
  int n_tokens(const PictureGrid& grid) const {
    if (tail.count > 0) return tail.count + 1;
    if (queries.window > 0)
      return grid.n_frames * ((grid.cols + queries.window - 1) / queries.window) * queries.count;
    return grid.n_frames * (grid.rows / unit_rows()) * units_in(grid.cols);
  }
  // Numbers of patches, or of frames before convolutions, that each frame of a grid is given as; at most,
  // with ends_apart.
  int n_inputs(const PictureGrid& grid) const {
    if (usm.taps > 0) return grid.cols * (planes.n_frames / planes.n_positions);
    if (!planes.convolutions.empty())
      return (grid.cols + planes.n_positions - 1) / planes.n_positions * planes.n_frames;
    if (convolutions.empty()) return grid.rows * grid.cols;
    int n = grid.cols;
    for (size_t i = convolutions.size(); i-- > 0;)
      n = convolutions[i].stride * (ends_apart ? n : n - 1) + (ends_apart ? 0 : 2);
    return n;
  }
};

}  // namespace penstock
