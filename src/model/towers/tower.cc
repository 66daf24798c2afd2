#include "model/towers/tower.h"

#include <algorithm>

#include "base/check.h"
#include "model/batch_builder.h"
#include "model/blocks/counts.h"
#include "model/forward/decoder.h"
#include "model/load/load_weights.h"
#include "model/load/tensor_loader.h"
#include "model/towers/families.h"
#include "model/towers/grids.h"
#include "model/towers/tower_weights.h"

namespace penstock {

namespace {

constexpr int kBlock = 64;                 // tokens of a block of a tower's cache
constexpr size_t kMostGrids = 4;           // that are kept
constexpr int kMostPatchSide = 1 << 12;    // of a frame
constexpr int kMostPositions = 1 << 14;    // of a sound
constexpr int64_t kMostPatches = 1 << 20;  // of a frame

CacheSpec cache_of(const TowerConfig& config) {
  const ModelConfig& layers = config.layers;
  CacheSpec spec;
  spec.dtype = KvDType::kF32, spec.block_size = kBlock;
  spec.layers.push_back({.n_kv_heads = layers.n_kv_heads,
                         .head_dim = layers.head_dim + config.usm.n_distances,
                         .window = config.usm.seen,
                         .values_in_keys = 0,
                         .both_ways = config.usm.seen == 0,
                         .stored_value_dim = config.usm.seen > 0 ? layers.head_dim : 0});
  return spec;
}

int blocks_of(int n_rows) { return (n_rows + kBlock - 1) / kBlock; }

}  // namespace

std::vector<float> cut_patches(std::span<const float> planes, int n_tiles, int height, int width,
                               int patch_size) {
  std::vector<float> patches;
  patches.reserve(planes.size());
  const auto at = [&](int tile, int colour, int y) {
    return planes.subspan(((static_cast<size_t>(tile) * 3 + static_cast<size_t>(colour)) *
                               static_cast<size_t>(height) +
                           static_cast<size_t>(y)) *
                          static_cast<size_t>(width));
  };
  for (int tile = 0; tile < n_tiles; ++tile) {
    for (int y = 0; y + patch_size <= height; y += patch_size) {
      for (int x = 0; x + patch_size <= width; x += patch_size) {
        for (int line = 0; line < 3 * patch_size; ++line) {
          const auto row = at(tile, line / patch_size, y + line % patch_size)
                               .subspan(static_cast<size_t>(x), static_cast<size_t>(patch_size));
          patches.insert(patches.end(), row.begin(), row.end());
        }
      }
    }
  }
  return patches;
}

namespace {

Status load_rope(const TowerRope& rope, Ops& ops, ModelWeights& weights) {
  ASSIGN_OR_RETURN(auto packed, ops.pack_vector(rope.frequencies));
  RopeParams& params = weights.ropes.emplace_back();
  params.interleaved = rope.interleaved, params.first = rope.first_feature;
  params.inv_freq = weights.rope_frequencies.emplace_back(std::move(packed)).get();
  const std::vector<float> axes(rope.axes.begin(), rope.axes.end());
  ASSIGN_OR_RETURN(auto packed_axes, ops.pack_vector(axes));
  params.axes = weights.rope_frequencies.emplace_back(std::move(packed_axes)).get();
  return {};
}

Status load_planes(TensorLoader& tensors, const TowerConfig& config, TowerWeights& out) {
  const TowerPlanes& planes = config.planes;
  int inputs = 1, bands = config.patch_dim;
  for (const std::string& name : planes.convolutions) {
    RETURN_IF_ERROR(load_flat_linear(tensors, name, planes.channels,
                                     kNeighbours * kNeighbours * inputs,
                                     out.convolutions.emplace_back()));
    inputs = planes.channels, bands = halved(bands);
  }
  return load_flat_linear(tensors, planes.linear, config.model_dim(), inputs * bands, out.planes);
}

Status load_inputs(TensorLoader& tensors, const TowerConfig& config, TowerWeights& out) {
  if (config.usm.taps > 0) return {};
  if (!config.planes.convolutions.empty()) return load_planes(tensors, config, out);
  if (config.convolutions.empty()) {
    return load_flat_linear(tensors, config.patch_name, config.model_dim(), config.patch_dim,
                            out.patches);
  }
  int inputs = config.patch_dim;
  for (const TowerConvolution& one : config.convolutions) {
    RETURN_IF_ERROR(load_flat_linear(tensors, one.name, config.model_dim(), kNeighbours * inputs,
                                     out.convolutions.emplace_back()));
    inputs = config.model_dim();
  }
  return {};
}

// A table or row of any shape with this many numbers.
Result<std::vector<float>> table(TensorLoader& tensors, const std::string& name, int64_t size) {
  const TensorInfo* found = tensors.find(name);
  const bool fits = found != nullptr && found->n_elements() == size;
  return fits ? tensors.vector(name, found->shape) : tensors.vector(name, size);
}

Status check_all_read(const TensorLoader& tensors, const TowerConfig& config) {
  const auto begins = [](std::string_view name, const std::vector<std::string>& with) {
    return std::ranges::any_of(with, [&](const std::string& one) { return name.starts_with(one); });
  };
  for (const TensorInfo& tensor : tensors.source().tensors()) {
    if (tensors.used().contains(tensor.name) || !begins(tensor.name, config.roots) ||
        begins(tensor.name, config.unused) || is_ignorable_tensor(tensor.name))
      continue;
    return errorf(ErrorCode::kUnsupported,
                  "{}: tensor {} {} is not part of the tower of {}: this file holds another kind",
                  tensors.source().path().string(), tensor.name, shown_shape(tensor.shape),
                  config.family);
  }
  return {};
}

// [n, dim]: sines, then cosines, of wavelengths from 2 pi to 20,000 pi.
std::vector<float> sines(int n, int dim) {
  const int half = dim / 2;
  const double step = std::log(10000.0) / std::max(half - 1, 1);
  std::vector<float> table;
  for (int i = 0; i < n; ++i) {
    for (int d = 0; d < 2 * half; ++d) {
      const float angle = static_cast<float>(i) *
                          std::exp(static_cast<float>(-step) * static_cast<float>(d % half));
      table.push_back(d < half ? std::sin(angle) : std::cos(angle));
    }
  }
  return table;
}

Status load_tower(TensorLoader& tensors, const TowerConfig& config, TowerWeights& out) {
  const int dim = config.model_dim();
  for (const TowerRope& rope : config.ropes)
    RETURN_IF_ERROR(load_rope(rope, tensors.ops(), out.blocks));
  RETURN_IF_ERROR(load_inputs(tensors, config, out));
  const TowerPositions& positions = config.positions;
  if (positions.kind == TowerPositions::Kind::kSines) {
    out.positions = sines(positions.cols, dim);
  } else if (positions.kind != TowerPositions::Kind::kNone) {
    const int cells = positions.kind == TowerPositions::Kind::kSums
                          ? 2 * positions.cols
                          : positions.rows * positions.cols;
    ASSIGN_OR_RETURN(out.positions, table(tensors, positions.name,
                                          int64_t{cells + (positions.has_class ? 1 : 0)} * dim));
  }
  if (!config.class_name.empty()) {
    ASSIGN_OR_RETURN(out.class_row, table(tensors, config.class_name, dim));
  }
  if (!config.newline_name.empty()) {
    ASSIGN_OR_RETURN(out.newline, table(tensors, config.newline_name, config.text_dim));
  }
  const NormConfig& norm = config.layers.norm;
  if (!config.patch_norm.empty())
    RETURN_IF_ERROR(
        tensors.norm(config.patch_norm, dim, norm.layer_norm && norm.biases, out.patch_norm));
  if (!config.pre_norm.empty())
    RETURN_IF_ERROR(tensors.norm(config.pre_norm, dim,
                                 config.pre_norm_config.layer_norm && config.pre_norm_config.biases,
                                 out.pre_norm));
  if (config.conformer.taps > 0) {
    ASSIGN_OR_RETURN(out.conformer, Conformer::load(tensors, config));
  }
  if (config.usm.taps > 0) {
    ASSIGN_OR_RETURN(out.usm, UsmConformer::load(tensors, config));
  }
  if (config.queries.window > 0) {
    ASSIGN_OR_RETURN(out.queries, QFormer::load(tensors, config));
  }
  if (config.clipped) {
    ASSIGN_OR_RETURN(out.clipped, ClippedLayers::load(tensors, config));
  }
  const bool blocks = out.conformer == nullptr && out.usm == nullptr && out.clipped == nullptr;
  for (int i = 0; i < config.layers.n_layers && blocks; ++i)
    RETURN_IF_ERROR(load_layer(tensors, i, config.prefix + with_index(config.names.layer, i),
                               out.blocks.layers.emplace_back()));
  RETURN_IF_ERROR(out.projector.load(tensors, config.projector, config.unit_places(), dim));
  for (const TowerConfig::Deep& deep : config.deep)
    RETURN_IF_ERROR(out.deep.emplace_back().load(tensors, deep.stages, config.unit_places(), dim));
  return check_all_read(tensors, config);
}

}  // namespace

Tower::Tower(TowerConfig config)
    : config_(std::move(config)), weights_(std::make_unique<TowerWeights>()) {}
Tower::~Tower() = default;

Result<std::unique_ptr<Tower>> Tower::load(const WeightSource& source, Ops& ops, TowerSense sense) {
  ASSIGN_OR_RETURN(auto config, read_config(source, sense));
  if (!config) return nullptr;
  std::unique_ptr<Tower> tower(new Tower(std::move(*config)));
  const LoadProgress none;
  TensorLoader tensors(source, tower->config_.layers, ops, none);
  RETURN_IF_ERROR(tensors.open());
  tensors.names() = tower->config_.names;
  TowerWeights& w = *tower->weights_;
  RETURN_IF_ERROR(load_tower(tensors, tower->config_, w));
  tower->weight_bytes_ =
      w.projector.bytes() +
      static_cast<int64_t>((w.positions.size() + w.class_row.size()) * sizeof(float));
  if (w.patches.weight != nullptr) tower->weight_bytes_ += w.patches.weight->packed_bytes();
  for (const LinearWeights& one : w.convolutions)
    tower->weight_bytes_ += one.weight->packed_bytes();
  if (w.planes.weight != nullptr) tower->weight_bytes_ += w.planes.weight->packed_bytes();
  for (const Projector& deep : w.deep) tower->weight_bytes_ += deep.bytes();
  if (w.conformer != nullptr) tower->weight_bytes_ += w.conformer->bytes();
  if (w.usm != nullptr) tower->weight_bytes_ += w.usm->bytes();
  if (w.clipped != nullptr) tower->weight_bytes_ += w.clipped->bytes();
  if (w.queries != nullptr) tower->weight_bytes_ += w.queries->bytes();
  for (const LayerWeights& layer : w.blocks.layers) {
    for (const LinearWeights* linear :
         {&layer.attention.q, &layer.attention.k, &layer.attention.v, &layer.attention.o,
          &layer.dense.gate, &layer.dense.up, &layer.dense.down})
      if (linear->weight != nullptr) tower->weight_bytes_ += linear->weight->packed_bytes();
  }
  return tower;
}

std::span<const float> Tower::newline() const { return weights_->newline; }

Status Tower::check(const PictureGrid& grid) const {
  const auto wrong = [&](const std::string& expected) {
    return errorf(ErrorCode::kInvalidArgument, "picture of {} x {} x {} patches: expected {}",
                  grid.n_frames, grid.rows, grid.cols, expected);
  };
  const int most_cols = config_.unit_in_row ? kMostPositions : kMostPatchSide;
  if (grid.n_frames < 1 || grid.rows < 1 || grid.cols < 1 || grid.rows > kMostPatchSide ||
      grid.cols > most_cols || int64_t{grid.rows} * grid.cols > kMostPatches)
    return wrong(
        fmt::format("at least one and at most {} rows and {} columns, and at most {} "
                    "patches",
                    kMostPatchSide, most_cols, kMostPatches));
  if (config_.unit_in_row) {
    const int least = config_.fills_unit ? 1 : config_.unit;
    if (grid.rows != 1 || grid.cols < least)
      return wrong(fmt::format("one row of at least {}", least));
  } else if (grid.rows % config_.unit != 0 || grid.cols % config_.unit != 0)
    return wrong(fmt::format("multiples of {}", config_.unit));
  if (config_.tail.count > 0 && config_.units_in(grid.cols) > config_.tail.count)
    return wrong(fmt::format("no more than become {} rows", config_.tail.count));
  const TowerPositions& positions = config_.positions;
  if (positions.kind == TowerPositions::Kind::kFixed &&
      (grid.rows != positions.rows || grid.cols != positions.cols))
    return wrong(fmt::format("{} x {}", positions.rows, positions.cols));
  if (positions.kind == TowerPositions::Kind::kFirst && grid.cols > positions.cols)
    return wrong(fmt::format("at most {} in a row", positions.cols));
  if (positions.kind == TowerPositions::Kind::kSums &&
      std::max(grid.rows, grid.cols) > positions.cols)
    return wrong(fmt::format("at most {} rows and columns", positions.cols));
  return {};
}

namespace {

// Positions that the last chunk of so many frames becomes, or the whole sound where there are no chunks.
int positions_of(const TowerConfig& config, int n_frames) {
  int n = n_frames;
  for (size_t i = 0; i < config.planes.convolutions.size(); ++i) n = halved(n);
  for (const TowerConvolution& one : config.convolutions) n = (n - 1) / one.stride + 1;
  return n;
}

}  // namespace

Status Tower::check(const PicturePatches& patches) const {
  RETURN_IF_ERROR(check(patches.grid));
  const PictureGrid& grid = patches.grid;
  const auto width = static_cast<size_t>(config_.patch_dim);
  const int most = config_.n_inputs(grid);
  const int64_t n = int64_t{grid.n_frames} * most;
  if (patches.values.size() == static_cast<size_t>(n) * width) return {};
  const auto fewer = [&] {
    const size_t given = patches.values.size() / width;
    if (!config_.ends_apart || grid.n_frames != 1 || patches.values.size() % width != 0 ||
        given >= static_cast<size_t>(most))
      return false;
    const TowerPlanes& planes = config_.planes;
    const int n_before = planes.convolutions.empty() ? 0 : (grid.cols - 1) / planes.n_positions;
    const int rest = static_cast<int>(given) - n_before * planes.n_frames;
    return rest > 0 && positions_of(config_, rest) == grid.cols - n_before * planes.n_positions;
  };
  if (fewer()) return {};
  return errorf(ErrorCode::kInvalidArgument,
                "picture: expected {} patches of {} numbers, got {} numbers", n, config_.patch_dim,
                patches.values.size());
}

int64_t Tower::working_bytes(const PictureGrid& grid) const {
  const ModelConfig& layers = config_.layers;
  const int64_t rows = int64_t{grid.rows} * grid.cols + 1, dim = layers.model_dim;
  // Keys and values; stream, norm, output and scratch of attention and feed-forward; and the
  // projector's rows, of which all are shorter than two streams.
  const int64_t values = 2 * layers.kv_dim() + 4 * dim + 4 * layers.q_dim() +
                         2 * int64_t{layers.widest_ffn()} + config_.patch_dim + 4 * dim +
                         (config_.convolutions.empty() ? 0 : 8 * config_.patch_dim + 6 * dim) +
                         (config_.conformer.taps > 0 ? Conformer::row_values(config_) : 0) +
                         (config_.usm.taps > 0 ? UsmConformer::row_values(config_) : 0);
  // The neighbours that the second convolution of a chunk reads, and as much around.
  const TowerPlanes& planes = config_.planes;
  const int64_t of_planes =
      int64_t{planes.n_frames} * config_.patch_dim / 16 * 20 * planes.channels;
  return (rows * values + of_planes) * static_cast<int64_t>(sizeof(float)) +
         config_.n_tokens({1, grid.rows, grid.cols}) * int64_t{config_.text_dim} * 4;
}

std::shared_ptr<const PreparedGrid> Tower::prepared(const PictureGrid& grid) const {
  const auto found = std::ranges::find_if(grids_, [&](const auto& known) {
    return known->rows == grid.rows && known->cols == grid.cols;
  });
  if (found != grids_.end()) {
    grids_.splice(grids_.begin(), grids_, found);
  } else {
    grids_.push_front(std::make_shared<const PreparedGrid>(
        prepare_grid(config_, weights_->positions, weights_->class_row, grid.rows, grid.cols)));
    if (grids_.size() > kMostGrids) grids_.pop_back();
  }
  return grids_.front();
}

Result<PictureFeatures> Tower::encode(const PicturePatches& patches, Ops& ops) const {
  RETURN_IF_ERROR(check(patches));
  TowerPass pass(*this, patches);
  while (!pass.done()) RETURN_IF_ERROR(pass.advance(ops));
  return pass.take();
}

TowerPass::TowerPass(const Tower& tower, const PicturePatches& patches, int layers_per_piece)
    : tower_(tower), patches_(patches), grid_(tower.prepared(patches.grid)) {
  const TowerConfig& config = tower_.config_;
  const int n_layers = config.layers.n_layers,
            most = layers_per_piece > 0 ? layers_per_piece : n_layers;
  const auto windowed = [&](int layer) {
    return config.window > 0 && config.whole[static_cast<size_t>(layer)] == 0;
  };
  const auto deep_after = [&](int layer) {
    const auto found = std::ranges::find(config.deep, layer, &TowerConfig::Deep::layer);
    return found == config.deep.end() ? -1 : static_cast<int>(found - config.deep.begin());
  };
  if (!config.planes.convolutions.empty()) {
    const int of_chunk = config.planes.n_positions,
              n_chunks = (patches.grid.cols + of_chunk - 1) / of_chunk;
    for (int chunk = 0; chunk < n_chunks; ++chunk)
      pieces_.push_back({0, 0, false, -1, false, chunk});
  }
  for (int first = 0; first < n_layers;) {
    int end = first + 1;
    while (end < n_layers && end - first < most && windowed(end) == windowed(first) &&
           deep_after(end - 1) < 0)
      ++end;
    pieces_.push_back({first, end, windowed(first), deep_after(end - 1),
                       end == n_layers && config.queries.window == 0});
    first = end;
  }
  if (config.queries.window > 0) pieces_.push_back({.queries = true});
  features_.n_tokens = config.n_tokens(patches.grid);
  features_.dim = config.text_dim;
  const size_t size =
      static_cast<size_t>(features_.n_tokens) * static_cast<size_t>(config.text_dim);
  features_.rows.resize(size);
  features_.deep.assign(config.deep.size(), std::vector<float>(size));
}

TowerPass::~TowerPass() = default;

bool TowerPass::done() const { return frame_ == patches_.grid.n_frames; }

size_t TowerPass::bytes() const {
  const ModelConfig& layers = tower_.config_.layers;
  const int64_t values = layers.model_dim + 2 * int64_t{layers.kv_dim()};
  return static_cast<size_t>(grid_->n_rows * values) * sizeof(float);
}

// Fills up the sound's places behind its features.
void TowerPass::add_tail() {
  const std::span<const float> rows = tower_.weights_->usm->tail();
  const auto dim = static_cast<size_t>(features_.dim);
  for (size_t i = grid_->tokens.size(); i < static_cast<size_t>(features_.n_tokens); ++i) {
    const bool last = i + 1 == static_cast<size_t>(features_.n_tokens);
    std::ranges::copy(rows.subspan(last ? dim : 0, dim),
                      features_.rows.begin() + static_cast<ptrdiff_t>(i * dim));
  }
}

// Copies features of the frame's units to the places of its tokens.
void TowerPass::give(Tensor projected, Ops& ops, std::vector<float>& out) const {
  const auto dim = static_cast<size_t>(projected.cols);
  const size_t n = grid_->tokens.size();
  std::vector<float> rows(n * dim);
  ops.read_rows(projected, rows);
  for (size_t i = 0; i < n; ++i) {
    const size_t at = static_cast<size_t>(frame_) * n + static_cast<size_t>(grid_->tokens[i]);
    std::copy_n(rows.begin() + static_cast<ptrdiff_t>(i * dim), dim,
                out.begin() + static_cast<ptrdiff_t>(at * dim));
  }
}

Status TowerPass::advance(Ops& ops) {
  PENSTOCK_CHECK(!done());
  const TowerConfig& config = tower_.config_;
  const TowerWeights& w = *tower_.weights_;
  const Piece& piece = pieces_[piece_];
  if (piece.chunk >= 0) {
    ops.begin_step(nullptr);
    convolve_chunk(piece.chunk, ops);
    return end_piece(ops);
  }
  if (piece.queries) {
    ops.begin_step(nullptr);
    ops.read_rows(w.queries->forward(stream_, ops), features_.rows);
    return end_piece(ops);
  }
  const int n_rows = grid_->n_rows;
  const CacheSpec spec = cache_of(config);
  std::vector<int32_t> sequences = {n_rows};
  if (piece.windowed) sequences = grid_->windows;
  if (cache_ == nullptr) {
    int n_blocks = blocks_of(n_rows), of_windows = 0;
    for (const int32_t length : grid_->windows) of_windows += blocks_of(length);
    n_blocks = std::max(n_blocks, of_windows);
    ASSIGN_OR_RETURN(cache_, ops.make_cache(spec, {&n_blocks, 1}));
  }
  BatchBuilder builder(spec);
  const std::vector<TokenId> tokens(static_cast<size_t>(n_rows), TokenId{});
  std::vector<GroupBlocks> blocks;
  blocks.reserve(sequences.size());
  int first_block = 0;
  size_t row = 0;
  for (const int32_t length : sequences) {
    const auto n = static_cast<size_t>(length);
    blocks.push_back(consecutive_blocks(first_block, length, kBlock));
    first_block += blocks_of(length);
    BatchPart part{.tokens = std::span(tokens).first(n),
                   .kv = {&blocks.back(), 1},
                   .rows = BatchPart::Rows::kNone};
    if (!grid_->positions.empty()) part.axes = std::span(grid_->positions).subspan(row, n);
    builder.add(part);
    row += n;
  }
  const Batch batch = builder.build();
  const StepShape shape = ops.begin_step(&batch);
  const Tensor x = ops.new_tensor(shape.tokens, config.model_dim(), TensorRole::kStream);
  if (piece.first == 0) {
    read_patches(x, ops);
  } else {
    ops.write_rows(stream_, x);
  }
  if (w.conformer != nullptr) {
    w.conformer->forward(piece.first, piece.end, x, n_rows, *cache_, ops);
  } else if (w.clipped != nullptr) {
    w.clipped->forward(piece.first, piece.end, w.blocks.ropes, x, *cache_, ops);
  } else if (w.usm != nullptr) {
    w.usm->forward(piece.first, piece.end, x, n_rows, *cache_, ops);
  } else {
    ForwardOptions options;
    options.stream = &x, options.first_layer = piece.first, options.n_layers = piece.end;
    decoder_forward(config.layers, w.blocks, shape, *cache_, ops, options);
  }
  const int n_of_tokens =
      std::min(static_cast<int>(grid_->tokens.size()) * config.unit_places(), grid_->n_patches);
  const Tensor patches = x.row_range(0, n_of_tokens);
  if (piece.deep >= 0) {
    const auto at = static_cast<size_t>(piece.deep);
    give(w.deep[at].forward(patches, ops), ops, features_.deep[at]);
  }
  if (piece.last) {
    give(w.projector.forward(patches, ops), ops, features_.rows);
    if (config.tail.count > 0) add_tail();
  } else {
    stream_.resize(static_cast<size_t>(n_rows) * static_cast<size_t>(config.model_dim()));
    ops.read_rows(x.row_range(0, n_rows), stream_);
  }
  return end_piece(ops);
}

Status TowerPass::end_piece(Ops& ops) {
  ops.wait(ops.submit());
  RETURN_IF_ERROR(ops.status());
  if (++piece_ < pieces_.size()) return {};
  piece_ = 0;
  ++frame_;
  return {};
}

}  // namespace penstock
