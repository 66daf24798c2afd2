// LLaVA-NeXT and LLaVA-OneVision: the whole picture, then tiles of the listed resolution that keeps most of
// it, padded with black. Features of the padding are cut away (StitchedGrid), each row ends in a newline.
#include <algorithm>
#include <cmath>

#include "images/view_processor.h"

namespace penstock {
namespace {

class AnyResolutionProcessor : public ViewProcessor {
 public:
  AnyResolutionProcessor(const FamilyInputs& inputs, bool onevision) : onevision_(onevision) {
    ProcessorSettings& settings = inputs.settings;
    pixels_ = read_pixel_settings(settings, {.mean = kClipMean, .std = kClipStd});
    const SizeSetting size = settings.size(
        "size",
        onevision ? SizeSetting{.height = 384, .width = 384} : SizeSetting{.shortest_edge = 224},
        true);
    tile_ = size.height > 0 ? size.height : size.shortest_edge;
    if (tile_ < 1 || (size.height > 0 && size.width != size.height))
      settings.refuse("size", "a square or a shortest edge", "other sizes");
    tile_ = std::max(tile_, 1);
    const SizeSetting crop = settings.size("crop_size", {.height = tile_, .width = tile_});
    const bool crops = settings.flag("do_center_crop", !onevision);
    if (crops && (crop.height != tile_ || crop.width != tile_))
      settings.refuse("crop_size", fmt::format("{} as size", tile_), "another");
    settings.ignore({"do_pad", "pad_size", "aspect_ratio_setting"});
    resolutions_ = settings.pairs("image_grid_pinpoints");
    if (resolutions_.empty()) add_published_resolutions();
    for (const auto& [height, width] : resolutions_)
      if (height % tile_ != 0 || width % tile_ != 0)
        settings.refuse("image_grid_pinpoints", fmt::format("multiples of {}", tile_),
                        fmt::format("[{}, {}]", height, width));
    read_tokens(inputs);
    placeholder_ = soft_token_ =
        inputs.token("image_token", settings.processor_text("image_token", "<image>").c_str());
  }
  // OneVision cuts a picture only if it is the only one.
  std::unique_ptr<ImageProcessor> for_several() const override {
    if (!onevision_) return nullptr;
    auto several = std::make_unique<AnyResolutionProcessor>(*this);
    several->whole_ = true;
    return several;
  }

 private:
  void add_published_resolutions() {
    if (!onevision_) {
      resolutions_ = {{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}};
      return;
    }
    for (int rows = 1; rows <= 6; ++rows)
      for (int columns = 1; columns <= 6; ++columns)
        resolutions_.emplace_back(384 * rows, 384 * columns);
  }

  static std::string config_text(const FamilyInputs& inputs, const char* name,
                                 const char* fallback) {
    const auto& config = inputs.files.config;
    return config.is_object() && config.contains(name) && config[name].is_string()
               ? config[name].get<std::string>()
               : fallback;
  }

  void read_tokens(const FamilyInputs& inputs) {
    ProcessorSettings& settings = inputs.settings;
    const int tower = inputs.config_integer({"vision_config", "patch_size"});
    grid_patch_ = settings.processor_integer("patch_size", tower > 0 ? tower : 14, 1, 256);
    side_ = tile_ / grid_patch_;
    if (side_ < 1)
      settings.refuse("patch_size", fmt::format("at most {}, the side of a tile", tile_),
                      std::to_string(grid_patch_));
    base_ = side_ * side_;
    const std::string strategy = settings.processor_text(
        "vision_feature_select_strategy",
        config_text(inputs, "vision_feature_select_strategy", onevision_ ? "full" : "default")
            .c_str());
    if (onevision_) {
      base_ = settings.processor_integer("num_image_tokens", base_, 1);
      side_ = static_cast<int>(std::sqrt(base_));
      const std::string ratio = settings.processor_text(
          "vision_aspect_ratio",
          config_text(inputs, "vision_aspect_ratio", "anyres_max_9").c_str());
      const std::string digits = ratio.starts_with("anyres_max_") ? ratio.substr(11) : "";
      if (digits.empty() || digits.size() > 4 ||
          digits.find_first_not_of("0123456789") != std::string::npos || std::stoi(digits) < 1)
        settings.refuse("vision_aspect_ratio", "anyres_max_N", ratio);
      else
        most_tiles_ = std::stoi(digits);
    } else {
      const bool described =
          inputs.files.processor.is_object() && inputs.files.processor.contains("patch_size");
      base_ += settings.processor_integer("num_additional_image_tokens", described ? 0 : 1);
    }
    if (strategy == "default") --base_;
  }

  std::pair<int, int> choose_resolution(int width, int height) const {
    std::pair<int, int> best = resolutions_.front();
    int64_t most_kept = 0, least_wasted = INT64_MAX;
    for (const auto& [tall, wide] : resolutions_) {
      const double scale =
          std::min(static_cast<double>(wide) / width, static_cast<double>(tall) / height);
      const auto scaled =
          int64_t{static_cast<int>(width * scale)} * static_cast<int>(height * scale);
      const int64_t kept = std::min(scaled, int64_t{width} * height),
                    wasted = int64_t{wide} * tall - kept;
      if (kept > most_kept || (kept == most_kept && wasted < least_wasted))
        most_kept = kept, least_wasted = wasted, best = {tall, wide};
    }
    return best;
  }

  // int(round(x, 7)) of Python.
  static int round_down(double value) {
    return static_cast<int>(std::nearbyint(value * 1e7) / 1e7);
  }

  StitchedGrid stitch(int width, int height, int tile_rows, int tile_columns) const {
    StitchedGrid grid{.rows = side_ * tile_rows, .cols = side_ * tile_columns};
    grid.n_rows = grid.rows, grid.n_cols = grid.cols;
    if (static_cast<double>(width) / height > static_cast<double>(grid.cols) / grid.rows) {
      grid.first_row =
          (grid.rows - round_down(height * (static_cast<double>(grid.cols) / width))) / 2;
      grid.n_rows -= 2 * grid.first_row;
    } else {
      grid.first_col =
          (grid.cols - round_down(width * (static_cast<double>(grid.rows) / height))) / 2;
      grid.n_cols -= 2 * grid.first_col;
    }
    grid.shrunk_rows = grid.n_rows, grid.shrunk_cols = grid.n_cols;
    if (!onevision_) return grid;
    const double ratio = std::sqrt(static_cast<double>(grid.n_rows) * grid.n_cols /
                                   (static_cast<double>(most_tiles_) * side_ * side_));
    if (ratio > 1.1) {
      grid.shrunk_rows = static_cast<int>(std::floor(grid.n_rows / ratio));
      grid.shrunk_cols = static_cast<int>(std::floor(grid.n_cols / ratio));
    }
    return grid;
  }

  Status plan_views(int width, int height, ImagePlan& plan) const override {
    if (whole_) {
      RETURN_IF_ERROR(check_square(width, height));
      plan.stitched.newline_behind = true;
      add_view(plan, tile_, tile_, base_);
      add_soft(plan, base_ + 1);
      return {};
    }
    const auto [tall, wide] = choose_resolution(width, height);
    plan.tile_rows = tall / tile_, plan.tile_cols = wide / tile_;
    plan.stitched = stitch(width, height, plan.tile_rows, plan.tile_cols);
    const int n_stitched = plan.stitched.shrunk_rows * (plan.stitched.shrunk_cols + 1);
    add_view(plan, tile_, tile_, base_);
    for (int i = 0; i < plan.tile_rows * plan.tile_cols; ++i) add_view(plan, tile_, tile_, 0);
    add_soft(plan, base_ + n_stitched);
    return {};
  }

  // A whole picture on a square of the mean colour.
  std::vector<Image> make_whole(const Image& image) const {
    const int side = std::max(image.width, image.height);
    std::array<uint8_t, 3> color{};
    for (size_t i = 0; i < color.size(); ++i)
      color[i] = static_cast<uint8_t>(std::clamp(double{pixels_.mean[i]} * 255, 0.0, 255.0));
    const Image square =
        pad_image(image, (side - image.width) / 2, (side - image.height) / 2, side, side, color);
    return {resize_image(square, tile_, tile_, pixels_.filter)};
  }

  std::vector<Image> make_views(const Image& image, const ImagePlan& plan) const override {
    if (whole_) return make_whole(image);
    const int tall = tile_ * plan.tile_rows, wide = tile_ * plan.tile_cols;
    const double scale_w = static_cast<double>(wide) / image.width,
                 scale_h = static_cast<double>(tall) / image.height;
    int w = wide, h = tall;
    if (scale_w < scale_h)
      h = std::min(static_cast<int>(std::ceil(image.height * scale_w)), tall);
    else
      w = std::min(static_cast<int>(std::ceil(image.width * scale_h)), wide);
    const Image resized = resize_image(image, w, h, pixels_.filter);
    std::vector<Image> views = {resize_image(image, tile_, tile_, pixels_.filter)};
    add_tiles(pad_image(resized, (wide - w) / 2, (tall - h) / 2, wide, tall), plan.tile_rows,
              plan.tile_cols, views);
    return views;
  }

  bool onevision_;
  bool whole_ = false;  // pictures are not cut
  int tile_ = 0, side_ = 0, base_ = 0, most_tiles_ = 9;
  std::vector<std::pair<int, int>> resolutions_;  // height, width
};

}  // namespace

std::unique_ptr<ImageProcessor> make_llava_next_images(const FamilyInputs& inputs) {
  return std::make_unique<AnyResolutionProcessor>(inputs, false);
}
std::unique_ptr<ImageProcessor> make_onevision_images(const FamilyInputs& inputs) {
  return std::make_unique<AnyResolutionProcessor>(inputs, true);
}

}  // namespace penstock
