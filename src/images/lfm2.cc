// LFM2-VL: a picture of moderate size as it is, a large one as tiles and a thumbnail.
#include <algorithm>
#include <cmath>

#include "images/view_processor.h"

namespace penstock {
namespace {

class Lfm2Processor : public ViewProcessor {
 public:
  explicit Lfm2Processor(const FamilyInputs& inputs) {
    ProcessorSettings& settings = inputs.settings;
    pixels_ = read_pixel_settings(settings, {.filter = ResizeFilter::kBilinear});
    order_ = {.layout = PixelLayout::kPatches,
              .patch = settings.integer("encoder_patch_size", 16, 1, 256),
              .channels_last = true};
    downsample_ = settings.integer("downsample_factor", 2, 1, 16);
    split_ = settings.flag("do_image_splitting", true);
    min_tiles_ = settings.integer("min_tiles", 2, 1, 1024);
    max_tiles_ = settings.integer("max_tiles", 10, 1, 1024);
    if (min_tiles_ > max_tiles_)
      settings.refuse("min_tiles", "at most max_tiles", std::to_string(min_tiles_));
    if (min_tiles_ == 1 && max_tiles_ == 1) split_ = false;
    thumbnail_ = settings.flag("use_thumbnail", true);
    least_tokens_ = settings.integer("min_image_tokens", 64);
    most_tokens_ = settings.integer("max_image_tokens", 256);
    tile_ = settings.integer("tile_size", 512, 1, 65536);
    if (tile_ % (order_.patch * downsample_) != 0)
      settings.refuse("tile_size", fmt::format("a multiple of {}", order_.patch * downsample_),
                      std::to_string(tile_));
    tolerance_ = settings.number("max_pixels_tolerance", 2.0);
    settings.ignore({"size", "do_pad", "pad_size", "return_row_col_info", "max_num_patches"});
    special_tokens_ = settings.processor_flag("use_image_special_tokens", true);
    placeholder_ = soft_token_ = inputs.token("image_token", "<image>");
    begin_ = inputs.token("image_start_token", "<|image_start|>");
    end_ = inputs.token("image_end_token", "<|image_end|>");
    thumbnail_token_ = inputs.token("image_thumbnail_token", "<|img_thumbnail|>");
  }

 private:
  int factor() const { return order_.patch * downsample_; }

  bool is_large(int width, int height) const {
    const double w = std::max<double>(
        order_.patch, python_round(static_cast<double>(width) / factor()) * factor());
    const double h = std::max<double>(
        order_.patch, python_round(static_cast<double>(height) / factor()) * factor());
    return h * w > static_cast<double>(most_tokens_) * factor() * factor() * tolerance_;
  }

  // Sides in multiples of the factor, within the limits of tokens. Returns width and height.
  std::pair<int, int> fit(double width, double height) const {
    const double f = factor(), least = least_tokens_ * f * f, most = most_tokens_ * f * f;
    double w = std::max(f, python_round(width / f) * f),
           h = std::max(f, python_round(height / f) * f);
    if (h * w > most) {
      const double beta = std::sqrt(height * width / most);
      h = std::max(f, std::floor(height / beta / f) * f),
      w = std::max(f, std::floor(width / beta / f) * f);
    } else if (h * w < least) {
      const double beta = std::sqrt(least / (height * width));
      h = std::ceil(height * beta / f) * f, w = std::ceil(width * beta / f) * f;
    }
    return {static_cast<int>(std::min(w, 1e6)), static_cast<int>(std::min(h, 1e6))};
  }

  int tokens_of(int height, int width) const { return (height / factor()) * (width / factor()); }

  void add_named(ImagePlan& plan, const std::string& name) const {
    if (special_tokens_) add_text(plan, name);
  }

  Status plan_views(int width, int height, ImagePlan& plan) const override {
    const auto [w, h] = fit(width, height);
    if (split_ && is_large(width, height)) {
      const auto [columns, rows] =
          nearest_tiles(width, height, tile_, tile_, min_tiles_, max_tiles_);
      plan.tile_cols = columns, plan.tile_rows = rows;
    }
    const bool several = plan.tile_rows * plan.tile_cols > 1;
    add_named(plan, begin_);
    for (int row = 0; row < plan.tile_rows; ++row)
      for (int column = 0; column < plan.tile_cols; ++column) {
        if (several) add_named(plan, fmt::format("<|img_row_{}_col_{}|>", row + 1, column + 1));
        add_view(plan, tile_, tile_, tokens_of(tile_, tile_));
        add_soft(plan, tokens_of(tile_, tile_));
      }
    if (plan.tile_rows == 0 || (several && thumbnail_)) {
      if (several) add_named(plan, thumbnail_token_);
      add_view(plan, h, w, tokens_of(h, w));
      add_soft(plan, tokens_of(h, w));
    }
    add_named(plan, end_);
    return {};
  }

  std::vector<Image> make_views(const Image& image, const ImagePlan& plan) const override {
    std::vector<Image> views;
    if (plan.tile_rows > 0)
      add_tiles(resize_image(image, tile_ * plan.tile_cols, tile_ * plan.tile_rows, pixels_.filter),
                plan.tile_rows, plan.tile_cols, views);
    if (views.size() < plan.views.size())
      views.push_back(
          resize_image(image, plan.views.back().width, plan.views.back().height, pixels_.filter));
    return views;
  }

  int downsample_ = 0, min_tiles_ = 0, max_tiles_ = 0, least_tokens_ = 0, most_tokens_ = 0,
      tile_ = 0;
  bool split_ = true, thumbnail_ = true, special_tokens_ = true;
  double tolerance_ = 0;
  std::string begin_, end_, thumbnail_token_;
};

}  // namespace

std::unique_ptr<ImageProcessor> make_lfm2_images(const FamilyInputs& inputs) {
  return std::make_unique<Lfm2Processor>(inputs);
}

}  // namespace penstock
