#include "engine/open/picture_encoder.h"

#include "engine/open/open.h"
#include "model/towers/tower.h"
#include "ops/ops.h"

namespace penstock {
namespace {

constexpr int kLayersPerPiece = 1;

PictureGrid grid_of(const PicturePixels& view, int patch_size) {
  if (view.height == 0) return {1, view.rows, view.cols};
  return {1, view.height / patch_size, view.width / patch_size};
}

TowerSense tower_sense(PictureEncoder::Sense sense) {
  return sense == PictureEncoder::Sense::kSight ? TowerSense::kSight : TowerSense::kHearing;
}

}  // namespace

Result<std::unique_ptr<PictureEncoder>> PictureEncoder::open(const WeightSource& source,
                                                             const EngineConfig& config,
                                                             Sense sense) {
  ASSIGN_OR_RETURN(const auto known, Tower::read_config(source, tower_sense(sense)));
  if (!known) return nullptr;
  OpsConfig where{config.threads, config.batch_invariant, config.thread_weight};
  where.eager = config.enforce_eager;
  ASSIGN_OR_RETURN(auto ops, make_ops(backend_of(config), where));
  ASSIGN_OR_RETURN(auto tower, Tower::load(source, *ops, tower_sense(sense)));
  return std::unique_ptr<PictureEncoder>(new PictureEncoder(std::move(ops), std::move(tower)));
}

bool PictureEncoder::has_tower(const WeightSource& source, Sense sense) {
  const auto known = Tower::read_config(source, tower_sense(sense));
  return !known || known->has_value();
}

PictureEncoder::PictureEncoder(std::unique_ptr<Ops> ops, std::unique_ptr<Tower> tower)
    : ops_(std::move(ops)), tower_(std::move(tower)) {}

PictureEncoder::~PictureEncoder() = default;

int64_t PictureEncoder::weight_bytes() const { return tower_->weight_bytes(); }
int PictureEncoder::patch_size() const { return tower_->config().patch_size; }
int PictureEncoder::unit() const { return tower_->config().unit; }
int PictureEncoder::row_size() const { return tower_->config().text_dim; }
int PictureEncoder::levels() const { return 1 + static_cast<int>(tower_->config().deep.size()); }
bool PictureEncoder::grid_positions() const { return tower_->config().grid_positions; }

std::span<const float> PictureEncoder::newline() const { return tower_->newline(); }

Status PictureEncoder::check(const PicturePixels& view) const {
  return tower_->check(grid_of(view, patch_size()));
}

int PictureEncoder::n_rows(const PicturePixels& view) const {
  return tower_->config().n_tokens(grid_of(view, patch_size()));
}

struct PictureEncoder::Pass::State {
  Ops& ops;
  std::vector<float> cut;  // patches of a view that came as planes
  TowerPass pass;

  State(const Tower& tower, Ops& with, const PicturePixels& view, std::vector<float> patches)
      : ops(with),
        cut(std::move(patches)),
        pass(tower,
             {view.height > 0 ? std::span<const float>(cut) : view.values,
              grid_of(view, tower.config().patch_size)},
             kLayersPerPiece) {}
};

PictureEncoder::Pass::Pass(std::unique_ptr<State> state) : state_(std::move(state)) {}
PictureEncoder::Pass::~Pass() = default;

size_t PictureEncoder::Pass::n_pieces() const { return state_->pass.n_pieces(); }
size_t PictureEncoder::Pass::bytes() const { return state_->pass.bytes(); }
bool PictureEncoder::Pass::done() const { return state_->pass.done(); }

Status PictureEncoder::Pass::advance(size_t n_pieces, const std::function<Status()>& goes_on) {
  for (size_t i = 0; i < n_pieces && !done(); ++i) {
    RETURN_IF_ERROR(goes_on());
    RETURN_IF_ERROR(state_->pass.advance(state_->ops));
  }
  return {};
}

EmbeddingRows PictureEncoder::Pass::take() {
  PictureFeatures features = state_->pass.take();
  EmbeddingRows rows;
  rows.n_rows = features.n_tokens;
  rows.levels = 1 + static_cast<int>(features.deep.size());
  rows.values = std::move(features.rows);
  for (const std::vector<float>& level : features.deep)
    rows.values.insert(rows.values.end(), level.begin(), level.end());
  return rows;
}

Result<std::unique_ptr<PictureEncoder::Pass>> PictureEncoder::begin(const PicturePixels& view) {
  RETURN_IF_ERROR(check(view));
  std::vector<float> cut;
  if (view.height > 0) cut = cut_patches(view.values, 1, view.height, view.width, patch_size());
  RETURN_IF_ERROR(tower_->check(PicturePatches{
      view.height > 0 ? std::span<const float>(cut) : view.values, grid_of(view, patch_size())}));
  auto state = std::make_unique<Pass::State>(*tower_, *ops_, view, std::move(cut));
  return std::unique_ptr<Pass>(new Pass(std::move(state)));
}

Result<EmbeddingRows> PictureEncoder::encode(std::span<const PicturePixels> views,
                                             const std::function<Status()>& goes_on) {
  std::vector<EmbeddingRows> parts;
  for (const PicturePixels& view : views) {
    ASSIGN_OR_RETURN(const auto pass, begin(view));
    RETURN_IF_ERROR(pass->advance(pass->n_pieces(), goes_on));
    parts.push_back(pass->take());
  }
  return joined_rows(parts);
}

EmbeddingRows joined_rows(std::span<const EmbeddingRows> parts) {
  EmbeddingRows result;
  if (parts.empty()) return result;
  result.levels = parts[0].levels;
  const auto levels = static_cast<size_t>(result.levels);
  size_t size = 0;
  for (const EmbeddingRows& part : parts) result.n_rows += part.n_rows, size += part.values.size();
  result.values.reserve(size);
  for (size_t level = 0; level < levels; ++level) {
    for (const EmbeddingRows& part : parts) {
      const size_t n = part.values.size() / levels;
      const auto first = part.values.begin() + static_cast<ptrdiff_t>(level * n);
      result.values.insert(result.values.end(), first, first + static_cast<ptrdiff_t>(n));
    }
  }
  return result;
}

}  // namespace penstock
