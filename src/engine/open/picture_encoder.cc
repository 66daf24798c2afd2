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

Result<EmbeddingRows> PictureEncoder::encode(std::span<const PicturePixels> views,
                                             const std::function<Status()>& goes_on) {
  EmbeddingRows result;
  result.levels = levels();
  std::vector<std::vector<float>> levels(static_cast<size_t>(result.levels));
  for (const PicturePixels& view : views) {
    RETURN_IF_ERROR(check(view));
    std::vector<float> cut;
    if (view.height > 0) cut = cut_patches(view.values, 1, view.height, view.width, patch_size());
    const PicturePatches patches{view.height > 0 ? std::span<const float>(cut) : view.values,
                                 grid_of(view, patch_size())};
    RETURN_IF_ERROR(tower_->check(patches));
    TowerPass pass(*tower_, patches, kLayersPerPiece);
    while (!pass.done()) {
      RETURN_IF_ERROR(goes_on());
      RETURN_IF_ERROR(pass.advance(*ops_));
    }
    const PictureFeatures features = pass.take();
    result.n_rows += features.n_tokens;
    levels[0].insert(levels[0].end(), features.rows.begin(), features.rows.end());
    for (size_t l = 1; l < levels.size(); ++l)
      levels[l].insert(levels[l].end(), features.deep[l - 1].begin(), features.deep[l - 1].end());
  }
  for (const std::vector<float>& level : levels)
    result.values.insert(result.values.end(), level.begin(), level.end());
  return result;
}

}  // namespace penstock
